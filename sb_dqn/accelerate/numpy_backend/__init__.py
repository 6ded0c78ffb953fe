"""Execution of traced graphs with NumPy, for small networks on a CPU."""
