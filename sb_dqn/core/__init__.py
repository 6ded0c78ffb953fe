"""The engine: the training loop, acting, learning, checkpoints and configuration."""
