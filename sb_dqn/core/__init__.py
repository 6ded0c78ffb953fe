"""The training loop, configuration, checkpoints and model files."""
