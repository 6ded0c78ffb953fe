"""Prioritized replay in isolation: sampling a batch of indices with weights, and writing their priorities back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from scripts.benchmarks.machine import finish_kernels
from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.table import Comparison

if TYPE_CHECKING:
    from sb_dqn.accelerate import Mode

LEAVES = 2**20
SIZES = (32, 256, 512)
ALPHA, BETA = 0.6, 0.4
TARGETS = {32: 0.5, 256: 1.0, 512: 1.0}
"""How many times as fast as cpprb at each batch size."""
FED_BACK = 16
"""Different priorities that are fed back in turn."""
WARM_UP = 50

Call = Callable[[Any], Any]
"""Draws a batch and writes the priorities given back."""


def prioritized_benchmark(seconds: float, leaves: int = LEAVES, compiled: bool = True) -> Benchmark:
    """All ways of ours beside cpprb (C++) and Tianshou (numba).

    Args:
        seconds: to measure each batch size of each for.
        leaves: rows held.
        compiled: whether torch.compile takes part.
    """
    common = {"leaves": leaves, "sizes": list(SIZES), "seconds": seconds}
    modes = ["eager", "traced", *(["compiled"] if compiled else [])]
    ours = [Measurement(f"ours {mode}", "prioritized.ours", {**common, "mode": mode}) for mode in modes]
    peers = [Measurement(name, f"prioritized.{name}", common, peer=name) for name in ("cpprb", "tianshou")]
    return Benchmark(
        "prioritized",
        f"microseconds, sample + update at {leaves:,} leaves",
        (*ours, *peers),
        tuple(
            Comparison(
                f"times as fast as {peer.name}, batch {size}",
                (f"ours compiled batch {size}", f"ours traced batch {size}"),
                (f"{peer.name} batch {size}",),
                at_least=TARGETS[size] if peer.name == "cpprb" else None,
            )
            for peer in peers
            for size in SIZES
        ),
        less_is_better=True,
    )


def ours(*, leaves: int, sizes: list[int], seconds: float, mode: Mode, device: str = "cpu") -> dict[str, float]:
    """Places, weights and new priorities as one function, run as `mode` says; the draws are part of what is measured."""
    import torch

    from sb_dqn.accelerate import accelerate
    from sb_dqn.buffers import Prioritized, PrioritizedSampler

    torch.set_num_threads(1)
    ring = _full_ring(leaves, device)
    generator = torch.Generator(device).manual_seed(0)
    found = {}
    for size in sizes:
        sampler = PrioritizedSampler(ring, size, Prioritized(ALPHA, BETA))
        sampler.refresh()
        sampler.tree.leaves[:leaves].uniform_(generator=generator).mul_(sampler.tree.leaves[:leaves] > 0)
        sampler.tree.rebuild()

        def both(noise: Any, priority: Any, sampler: PrioritizedSampler = sampler) -> tuple[Any, ...]:
            lane, row, weight = sampler.locate(noise)
            sampler.feedback(torch.stack([lane, row]), priority)
            return row, weight

        noise = torch.zeros(sampler.noise_shape, dtype=torch.float64, device=device)
        fed_back = torch.rand(FED_BACK, size, generator=generator, device=device)
        run = accelerate(both, (noise, fed_back[0]), mode)

        def draw_and_run(priority: Any, run: Any = run, noise: Any = noise) -> None:
            run(noise.uniform_(generator=generator), priority)
            finish_kernels()

        found[f"batch {size}"] = _median(draw_and_run, list(fed_back), seconds)
    return found


def cpprb(*, leaves: int, sizes: list[int], seconds: float) -> dict[str, float]:
    """cpprb's prioritized buffer; `sample` gathers transitions too, so they are one number each."""
    from cpprb import PrioritizedReplayBuffer

    rng = np.random.default_rng(0)
    buffer = PrioritizedReplayBuffer(leaves, {"rew": {}}, alpha=ALPHA)
    buffer.add(rew=np.zeros(leaves, np.float32), priorities=rng.random(leaves, np.float32))
    found = {}
    for size in sizes:

        def both(priority: Any, size: int = size) -> None:
            batch = buffer.sample(size, beta=BETA)
            buffer.update_priorities(batch["indexes"], priority)

        found[f"batch {size}"] = _median(both, list(rng.random((FED_BACK, size), np.float32)), seconds)
    return found


def tianshou(*, leaves: int, sizes: list[int], seconds: float) -> dict[str, float]:
    """Tianshou's prioritized buffer: places and weights alone, without its gathering of transitions."""
    from tianshou.data import PrioritizedReplayBuffer

    rng = np.random.default_rng(0)
    buffer = PrioritizedReplayBuffer(leaves, alpha=ALPHA, beta=BETA)
    buffer._size = leaves  # as if filled: rows one by one would take minutes
    buffer.update_weight(np.arange(leaves), rng.random(leaves))
    found = {}
    for size in sizes:

        def both(priority: Any, size: int = size) -> None:
            index = buffer.sample_indices(size)
            weight: Any = buffer.get_weight(index)
            weight /= weight.max()
            buffer.update_weight(index, priority)

        found[f"batch {size}"] = _median(both, list(rng.random((FED_BACK, size))), seconds)
    return found


def _median(both: Call, fed_back: Sequence[Any], seconds: float) -> float:
    """Median microseconds of a call."""
    for count in range(WARM_UP):
        both(fed_back[count % len(fed_back)])
    times: list[float] = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end or not times:
        both(fed_back[len(times) % len(fed_back)])
        times.append(time.perf_counter() - start)
    return 1e6 * median(times)


def _full_ring(rows: int, device: str = "cpu") -> Any:
    """A ring of small rows that has just been filled."""
    import torch
    from gymnasium import spaces

    from sb_dqn.buffers import Layout, Ring

    ring = Ring(Layout(rows, 1, {"obs": spaces.Box(-1, 1, (1,), np.float32)}, num_actions=2, device=device))
    state = {name: column[:rows].view(rows, 1, *column.shape[1:]) for name, column in ring.columns.items()}
    ring.load_state_dict(
        {**state, "cursor": torch.tensor([rows]), "first": torch.tensor([0]), "rows": torch.tensor(rows)}
    )
    return ring
