"""Vector environments of this library, and helpers for those of other packages."""
