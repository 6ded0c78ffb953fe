"""TODO parameters."""
