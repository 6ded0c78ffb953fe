"""Pages and pictures of the results in `docs/benchmarks`; `publish.py` writes them."""
