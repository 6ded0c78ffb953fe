"""TODO layers."""
