"""TODO torsos."""
