"""Version of the package; imports nothing."""

__version__ = "0.1.0"
