"""First convolution of the Nature CNN on stored bytes: PyTorch's on scaled pixels compared with this library's.

Usage: python scripts/benchmarks/strided.py [--threads 1] [--rounds 15]

Forward twice (online and target net) and the gradient of the weights once, as in an update. Measures both in turn; prints for
each precision and batch the medians in milliseconds and the median of the ratios.
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
from torch import Tensor, nn

from sb_dqn.accelerate import keep_freed_memory
from sb_dqn.nn.layers.strided_conv import StridedConv2d


def update(convolution: Callable[[Tensor], Tensor], weights: list[Tensor], stored: Tensor) -> None:
    """What an update asks of one convolution."""
    with torch.no_grad():
        convolution(stored)
    out = convolution(stored)
    torch.autograd.grad(out, weights, torch.ones_like(out))


def pair(dtype: torch.dtype) -> dict[str, tuple[Callable[[Tensor], Tensor], list[Tensor]]]:
    """Both, of the same shape."""
    plain = nn.Conv2d(4, 32, 8, 4).to(dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's
    ours = StridedConv2d(4, 32, 8, 4).to(dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's

    def divided(stored: Tensor) -> Tensor:
        pixels = stored.contiguous(memory_format=torch.channels_last).to(dtype).mul_(1.0 / 255.0)
        out: Tensor = plain(pixels)
        return out

    return {"torch": (divided, list(plain.parameters())), "ours": (ours, list(ours.parameters()))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    for dtype in (torch.float32, torch.bfloat16):
        for batch in (32, 128):
            stored = torch.randint(256, (batch, 4, 84, 84), dtype=torch.uint8)
            found: dict[str, list[float]] = {"torch": [], "ours": []}
            both = pair(dtype)
            for number in range(options.rounds + 3):
                for name, (convolution, weights) in both.items():
                    began = time.perf_counter()
                    update(convolution, weights, stored)
                    if number >= 3:  # a warm-up
                        found[name].append(1e3 * (time.perf_counter() - began))
            ratios = [theirs / own for theirs, own in zip(found["torch"], found["ours"], strict=True)]
            medians = {name: round(statistics.median(times), 2) for name, times in found.items()}
            print(
                json.dumps(
                    {"dtype": str(dtype), "batch": batch, **medians, "ratio": round(statistics.median(ratios), 2)}
                )
            )


if __name__ == "__main__":
    main()
