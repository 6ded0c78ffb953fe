"""Diagnosis: measures of a model that does not learn, with thresholds from the literature, and checks of environments."""
