"""Parameter storage and optimizers."""
