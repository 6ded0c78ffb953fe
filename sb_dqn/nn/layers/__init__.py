"""Layers: noisy and low-precision linear layers, norms, recurrent layers, convolutions."""
