"""TODO heads."""
