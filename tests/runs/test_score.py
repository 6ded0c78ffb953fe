"""Scores of agents and their table, by hand, and the file of results that they are made from."""

from __future__ import annotations

from pathlib import Path

from sb_dqn.runs.folder import Result, read_result, write_result
from sb_dqn.runs.run import Run
from sb_dqn.runs.score import Score, as_table, caption


def score(root: Path, label: str, *results: tuple[float, float]) -> Score:
    """Writes runs of 5,000 env steps with these mean returns and seconds; returns their score."""
    runs = [Run(root / label / str(number)) for number in range(len(results))]
    for run, (mean, seconds) in zip(runs, results, strict=True):
        write_result(run.folder, Result(5_000, seconds, (mean - 1, mean + 1)))
    return Score(label, runs)


def test_table_and_caption(tmp_path: Path) -> None:
    scores = [score(tmp_path, "DQN", (10, 60), (20, 80), (30, 100)), score(tmp_path, "QRDQN", (40, 7))]
    text = as_table("CartPole-v1", scores)
    assert text.splitlines()[2:] == [
        "| DQN | 20.0 ± 10.0 | 20.0 [10.0, 30.0] | 3 | 5,000 | 80 s |",
        "| QRDQN | 40.0 | 40.0 | 1 | 5,000 | 7 s |",
    ]
    assert "one run, 2 at a time" in caption(2)


def test_table_of_single_seeds_has_no_interval(tmp_path: Path) -> None:
    text = as_table("CartPole-v1", [score(tmp_path, "DQN", (40, 7))])
    assert text.splitlines()[0] == "| CartPole-v1 | mean | IQM | seeds | env steps | wall-clock |"
    assert "no interval can be computed" in caption(1, several=False)
    assert "bootstrap" not in caption(1, several=False)


def test_result_round_trips(tmp_path: Path) -> None:
    assert read_result(tmp_path) == Result(0, 0.0)
    write_result(tmp_path, Result(500, 1.25, (1.0, 2.5)))
    assert read_result(tmp_path) == Result(500, 1.25, (1.0, 2.5))
    assert [path.name for path in tmp_path.iterdir()] == ["result.yaml"]
