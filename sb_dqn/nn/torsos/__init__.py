"""Feature extractors: networks from observations to features."""
