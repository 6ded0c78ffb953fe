"""TODO numpy_backend."""
