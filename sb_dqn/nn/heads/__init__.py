"""Heads: networks from features to values or action distributions, and the objects that they return."""
