"""Parameter storage and optimisers."""
