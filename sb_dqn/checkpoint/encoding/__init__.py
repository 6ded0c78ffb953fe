"""Encoding of constructor arguments, spaces and nested state as JSON and tensors."""
