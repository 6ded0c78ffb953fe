"""TODO format."""
