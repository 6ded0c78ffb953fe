"""Table of a comparison, by hand, and the file of results that it is made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sb_dqn.cli.compare.table import Score, as_table, caption
from sb_dqn.runs.result_file import Result, read_result, write_result
from sb_dqn.runs.statistics import Estimate


def test_table_and_caption() -> None:
    scores = [
        Score("DQN", np.array([10.0, 20.0, 30.0]), 5_000, np.array([60.0, 80.0, 100.0])),
        Score("QRDQN", np.array([40.0]), 5_000, np.array([7.0])),
    ]
    text = as_table("CartPole-v1", scores, [Estimate(20.0, (10.0, 30.0)), Estimate(40.0, None)])
    assert text.splitlines()[2:] == [
        "| DQN | 20.0 ± 10.0 | 20.0 [10.0, 30.0] | 3 | 5,000 | 80 s |",
        "| QRDQN | 40.0 | 40.0 | 1 | 5,000 | 7 s |",
    ]
    assert "one run, 2 at a time" in caption(2)


def test_table_of_single_seeds_has_no_interval() -> None:
    score = Score("DQN", np.array([40.0]), 5_000, np.array([7.0]))
    text = as_table("CartPole-v1", [score], [Estimate(40.0, None)])
    assert text.splitlines()[0] == "| CartPole-v1 | mean | IQM | seeds | env steps | wall-clock |"
    assert "no interval can be computed" in caption(1, several=False)
    assert "bootstrap" not in caption(1, several=False)


def test_result_round_trips(tmp_path: Path) -> None:
    assert read_result(tmp_path) == Result(0, 0.0)
    write_result(tmp_path, Result(500, 1.25, (1.0, 2.5)))
    assert read_result(tmp_path) == Result(500, 1.25, (1.0, 2.5))
    assert [path.name for path in tmp_path.iterdir()] == ["result.yaml"]
