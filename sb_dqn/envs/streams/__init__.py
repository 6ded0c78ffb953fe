"""Streams: every kind of vector environment, read as rows."""
