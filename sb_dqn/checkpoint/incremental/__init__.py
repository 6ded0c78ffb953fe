"""TODO incremental."""
