"""Statistics of a comparison against values computed by hand and against rliable."""

from __future__ import annotations

from dataclasses import astuple
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from sb_dqn.cli.compare import statistics
from sb_dqn.cli.compare.statistics import (
    Estimate,
    Score,
    as_table,
    caption,
    estimate_iqm,
    interquartile_mean,
    mean_band,
)
from sb_dqn.cli.train.result_file import Result, read_result, write_result
from tests.full import FULL

installed = pytest.mark.skipif(find_spec("rliable") is None, reason="needs the extra compare")


@pytest.fixture
def without_rliable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "has_rliable", lambda: False)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([7.0], 7.0),
        ([0.0, 30.0, 3.0], 11.0),  # a quarter of three, rounded down, is 0
        ([100.0, 1.0, 3.0, -50.0], 2.0),  # the mean is 13.5
        ([5, 1, 2, 3, 4, 1000, 6, -900], 3.5),  # two cut at each end; one would give 3.5 too, hence the next case
        ([1000, 900, 2, 3, 4, 7, -800, -900], 4.0),  # one cut at each end would give 19.3
    ],
)
def test_interquartile_mean_by_hand(scores: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(scores, np.float64)) == pytest.approx(expected)


def test_interquartile_mean_along_any_axis() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 5))
    assert interquartile_mean(scores, axis=0) == pytest.approx([interquartile_mean(column) for column in scores.T])


@installed
@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 8, 11])
def test_interquartile_mean_equals_that_of_rliable(runs: int) -> None:
    from rliable import metrics

    scores = np.random.default_rng(runs).standard_cauchy((runs, 1))
    assert interquartile_mean(scores[:, 0]) == pytest.approx(metrics.aggregate_iqm(scores))


def test_interval_equals_that_of_all_equally_likely_resamples(without_rliable: None) -> None:
    """Five runs have 3,125 resamples, whose exact percentiles the drawn ones approximate."""
    means = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    exact = [np.mean(sorted(drawn)[1:4]) for drawn in product(means, repeat=5)]
    estimate = estimate_iqm(means)
    assert estimate.value == pytest.approx(14 / 3)
    assert estimate.interval == pytest.approx(np.quantile(exact, [0.025, 0.975]), abs=0.35)
    assert estimate_iqm(means) == estimate  # fixed seed


@FULL
@installed
def test_interval_equals_that_of_rliable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Averages three calls: rliable draws from NumPy's global generator, so a bound varies by 0.5 from call to call."""
    means = np.random.default_rng(1).normal(200.0, 30.0, size=10)
    values, intervals = zip(*(astuple(estimate_iqm(means)) for _ in range(3)), strict=True)
    monkeypatch.setattr(statistics, "has_rliable", lambda: False)
    estimate = estimate_iqm(means)
    assert estimate.value == pytest.approx(values[0])
    assert estimate.interval == pytest.approx(np.mean(intervals, 0), abs=1.2)
    assert estimate.interval != pytest.approx((193.8, 216.9), abs=1.0)  # the interval of the mean


def test_strata_are_resampled_independently() -> None:
    scores = np.array([[0.0, 100.0], [1.0, 101.0], [2.0, 102.0]])
    drawn = statistics.resample(scores, np.random.default_rng(0), 4_000)
    assert drawn.shape == (4_000, 3, 2)
    assert (drawn[:, :, 0] < 3).all()
    assert (drawn[:, :, 1] >= 100).all()
    assert np.corrcoef(drawn[:, 0, 0], drawn[:, 0, 1])[0, 1] == pytest.approx(0.0, abs=0.06)


def test_single_run_has_no_interval(without_rliable: None) -> None:
    assert estimate_iqm(np.array([3.0])) == Estimate(3.0, None)


def test_mean_band_resamples_whole_curves() -> None:
    curves = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 60.0]])
    mean, low, high = mean_band(curves, np.random.default_rng(0))
    assert mean == pytest.approx([1.0, 30.0])
    assert low == pytest.approx([0.0, 10.0])  # 1 of 27 resamples has the lowest run three times: 3.7 % > 2.5 %
    assert high == pytest.approx([2.0, 60.0])
    mean, low, high = mean_band(curves[:1], np.random.default_rng(0))
    assert (low == high).all()


def test_table_and_caption(without_rliable: None) -> None:
    scores = [
        Score("DQN", np.array([10.0, 20.0, 30.0]), 5_000, np.array([60.0, 80.0, 100.0])),
        Score("QRDQN", np.array([40.0]), 5_000, np.array([7.0])),
    ]
    text = as_table("CartPole-v1", scores, [Estimate(20.0, (10.0, 30.0)), Estimate(40.0, None)])
    assert text.splitlines()[2:] == [
        "| DQN | 20.0 ± 10.0 | 20.0 [10.0, 30.0] | 3 | 5,000 | 80 s |",
        "| QRDQN | 40.0 | 40.0 | 1 | 5,000 | 7 s |",
    ]
    assert "built in" in caption(1)
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
