"""The zip format of model files: reading, writing and verification."""
