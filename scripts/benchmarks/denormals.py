"""Adam's step where most parameters have had no gradient for long, with denormal numbers and without.

Usage: python scripts/benchmarks/denormals.py [--threads 1] [--rounds 5]

As long as the numbers are counted at all, the momentum of such a parameter ends at the smallest of them and stays there. The
net is as large as the Nature CNN. Prints the milliseconds of a step before, and after 1,500 steps without gradient.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import torch

from sb_dqn.accelerate import without_denormals

PARAMETERS = 1_687_206


def milliseconds(optimizer: torch.optim.Optimizer, steps: int = 20) -> float:
    """Median of one step."""
    found = []
    for _ in range(steps):
        began = time.perf_counter()
        optimizer.step()
        found.append(1e3 * (time.perf_counter() - began))
    return statistics.median(found)


def measure(share: float) -> tuple[float, float]:
    """A step while all parameters have a gradient, and one after `share` of them had none for 1,500 steps."""
    parameter = torch.nn.Parameter(torch.randn(PARAMETERS))
    optimizer = torch.optim.Adam([parameter], lr=1e-4, fused=True)
    parameter.grad = torch.full_like(parameter, 1e-3)
    before = milliseconds(optimizer)
    parameter.grad[: int(share * PARAMETERS)] = 0.0
    for _ in range(1_500):
        optimizer.step()
    return before, milliseconds(optimizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.5, help="of the parameters, without gradient")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: dict[str, list[tuple[float, float]]] = {"counted": [], "flushed": []}
    for _ in range(options.rounds):
        for name, context in (("counted", contextlib.nullcontext), ("flushed", without_denormals)):
            with context():
                found[name].append(measure(options.share))
    for name, pairs in found.items():
        before, after = ([round(value, 2) for value in column] for column in zip(*pairs, strict=True))
        print(json.dumps({"denormals": name, "before, ms": before, "after, ms": after}))


if __name__ == "__main__":
    main()
