"""Replay of recorded graphs with NumPy, for small networks on a CPU."""
