"""The benchmark of prioritized replay, at sizes too small for figures."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from sb_dqn.accelerate import Mode
from scripts.benchmarks import prioritized
from tests.marks import FULL, SLOW


@FULL
@pytest.mark.parametrize("mode", ["eager", "traced"])
def test_ours_is_measured_on_a_full_ring(mode: Mode) -> None:
    figures = prioritized.ours(leaves=3000, sizes=[8, 32], seconds=0.02, mode=mode)
    assert set(figures) == {"batch 8", "batch 32"}
    assert all(1.0 < figure < 1e5 for figure in figures.values())
    ring = prioritized._full_ring(3000)
    assert (len(ring), ring.startable()) == (3000, 2999)


@SLOW
@pytest.mark.parametrize(
    "peer",
    [
        pytest.param(peer, marks=pytest.mark.skipif(find_spec(peer) is None, reason="needs the extra bench"))
        for peer in ("cpprb", "tianshou")
    ],
)
def test_a_peer_is_measured(peer: str) -> None:
    figures = getattr(prioritized, peer)(leaves=3000, sizes=[8], seconds=0.02)
    assert figures["batch 8"] > 1.0


def test_each_comparison_has_both_sides() -> None:
    for compiled in (True, False):
        benchmark = prioritized.prioritized_benchmark(1.0, compiled=compiled)
        names = {f"{one.name} batch {size}" for one in benchmark.measurements for size in prioritized.SIZES}
        assert len(benchmark.comparisons) == 6
        assert all(set(one.peers) <= names and set(one.ours) & names for one in benchmark.comparisons)
        assert any("compiled" in name for name in names) == compiled
