"""Incremental checkpoints: replay rows in segment files that checkpoints share."""
