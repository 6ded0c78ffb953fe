"""TODO vector."""
