"""The benchmark of R2D2's update: both sides run on the same sequences."""

from __future__ import annotations

import pytest

from scripts.benchmarks import sequences
from tests.marks import FULL


@FULL
def test_both_sides_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequences, "LANES", 1)
    monkeypatch.setattr(sequences, "ROWS", 180)
    figures = sequences.update_and_network(sequences=1, seconds=0.0)
    assert figures.keys() == {"update", "network"}
    assert all(value > 0 for value in figures.values())


def test_the_goal_is_said() -> None:
    benchmark = sequences.sequence_benchmark(1.0)
    assert [one.at_least for one in benchmark.comparisons] == [0.87, 0.87]
    assert benchmark.less_is_better
