"""TODO encoding."""
