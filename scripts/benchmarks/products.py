"""Float32 matrix products of a hidden layer by PyTorch (MKL) and by oneDNN, forward and backward.

Usage: python scripts/benchmarks/products.py [--threads 1] [--rounds 15]

Measures both in turn; prints for each shape the medians in microseconds and the median of the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import torch
from torch import Tensor

from sb_dqn.accelerate import keep_freed_memory, onednn_linear

SHAPES = {
    "64 x 64, batch 32": (32, 64, 64),
    "256 x 256, batch 64": (64, 256, 256),
    "256 x 256, batch 128": (128, 256, 256),
    "3136 x 512 (Nature CNN), batch 32": (32, 3136, 512),
    "3136 x 512 (Nature CNN), batch 128": (128, 3136, 512),
}
REPEATS = 20


def microseconds(layer: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor, slope: Tensor) -> float:
    """Of one pass forward and backward."""
    began = time.perf_counter()
    for _ in range(REPEATS):
        torch.autograd.grad(layer(x, weight, bias), [x, weight, bias], slope)
    return 1e6 * (time.perf_counter() - began) / REPEATS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    onednn_linear.mkl_is_slow = lambda: True  # type: ignore[assignment]  # whatever processor this is
    onednn_linear.LARGE = 0
    for name, (rows, width, out) in SHAPES.items():
        x, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((rows, width), (out, width), (out,)))
        slope = torch.randn(rows, out)
        ways: dict[str, Callable[..., Tensor]] = {"torch": torch.nn.functional.linear, "onednn": onednn_linear.linear}
        found: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(options.rounds + 3):
            for way, layer in ways.items():
                taken = microseconds(layer, x, weight, bias, slope)
                if number >= 3:  # a warm-up
                    found[way].append(taken)
        ratios = [theirs / own for theirs, own in zip(found["torch"], found["onednn"], strict=True)]
        medians = {way: round(statistics.median(times), 1) for way, times in found.items()}
        print(json.dumps({"layer": name, **medians, "ratio": round(statistics.median(ratios), 2)}))


if __name__ == "__main__":
    main()
