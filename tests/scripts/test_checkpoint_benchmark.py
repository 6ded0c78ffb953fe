"""The benchmark of checkpoints: an incremental one writes less, and what is loaded is what was saved."""

from __future__ import annotations

from pathlib import Path

from scripts.benchmarks import checkpoints
from tests.marks import SLOW


@SLOW
def test_each_kind_is_measured(tmp_path: Path) -> None:
    costs = checkpoints.compare(rows=400, lanes=2, new=[20], folder=tmp_path)
    assert list(costs) == ["a whole zip", "the first incremental one", "incremental, 20 rows later"]
    assert all(0 < cost.stopped <= cost.seconds and cost.written > 400 * 84 * 84 for cost in costs.values())
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["0.zip", "1.zip", "replay_rows"]
