"""TODO streams."""
