"""Statistics over runs against values computed by hand and against rliable."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sb_dqn.runs.statistics import (
    Estimate,
    aggregate_iqm,
    interquartile_mean,
    iqm_curve,
    mean_band,
    performance_profile,
    probability_of_improvement,
)
from tests.marks import FULL, SLOW


@pytest.fixture(scope="module")
def rliable() -> Any:
    """Returns the package, or skips the test: version 1.2 raises a TypeError beside the arch of 2026 and pandas 3."""
    try:
        import rliable.library
        import rliable.metrics
    except (ImportError, TypeError) as error:
        pytest.skip(f"rliable cannot be imported: {error}")
    return rliable


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


def test_text_of_an_estimate() -> None:
    assert Estimate(2.5, (1.0, 4.04)).text("{:.1f}".format) == "2.5 [1.0, 4.0]"
    assert Estimate(2.5, None).text("{:.1f}".format) == "2.5"


def test_interquartile_mean_along_any_axis() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 5))
    assert interquartile_mean(scores, axis=0) == pytest.approx([interquartile_mean(column) for column in scores.T])


@SLOW
@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 7, 8, 11])
def test_interquartile_mean_equals_that_of_rliable(runs: int, rliable: Any) -> None:
    scores = np.random.default_rng(runs).standard_cauchy((runs, 1))
    assert interquartile_mean(scores[:, 0]) == pytest.approx(rliable.metrics.aggregate_iqm(scores))


def test_interval_equals_that_of_all_equally_likely_resamples() -> None:
    """Five runs have 3,125 resamples, whose exact percentiles the drawn ones approximate."""
    means = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    exact = [np.mean(sorted(drawn)[1:4]) for drawn in product(means, repeat=5)]
    estimate = aggregate_iqm(means[:, None])
    assert estimate.value == pytest.approx(14 / 3)
    assert estimate.interval == pytest.approx(np.quantile(exact, [0.025, 0.975]), abs=0.35)
    assert aggregate_iqm(means[:, None]) == estimate  # fixed seed


@FULL
def test_interval_equals_that_of_rliable(rliable: Any) -> None:
    """Averages three calls: rliable draws from NumPy's global generator, so a bound varies by 0.5 from call to call."""
    means = np.random.default_rng(1).normal(200.0, 30.0, size=(10, 1))
    estimate = aggregate_iqm(means)

    def function(drawn: Any) -> Any:
        return np.array([rliable.metrics.aggregate_iqm(drawn)])

    calls = [rliable.library.get_interval_estimates({"it": means}, function, reps=10_000) for _ in range(3)]
    assert estimate.value == pytest.approx(calls[0][0]["it"][0])
    assert estimate.interval == pytest.approx(np.mean([bounds["it"][:, 0] for _, bounds in calls], axis=0), abs=1.2)
    assert estimate.interval != pytest.approx((193.8, 216.9), abs=1.0)  # the interval of the mean


def test_strata_are_resampled_independently() -> None:
    """Two environments with opposite scores have a spread, which they would not have if the same runs were drawn for both."""
    interval = aggregate_iqm(np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]])).interval
    assert interval is not None
    assert interval[1] - interval[0] > 0.5


def test_single_run_has_no_interval() -> None:
    assert aggregate_iqm(np.array([[3.0]])) == Estimate(3.0, None)


def test_mean_band_resamples_whole_curves() -> None:
    curves = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 60.0]])
    mean, interval = mean_band(curves)
    assert interval is not None
    low, high = interval
    assert mean == pytest.approx([1.0, 30.0])
    assert low == pytest.approx([0.0, 10.0])  # 1 of 27 resamples has the lowest run three times: 3.7 % > 2.5 %
    assert high == pytest.approx([2.0, 60.0])
    assert mean_band(curves[:1]).interval is None


SCORES = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 30.0], [9.0, 100.0]])
"""Four runs on two environments."""


def test_iqm_is_over_all_runs_and_environments() -> None:
    """The middle half of 0 1 2 9 10 20 30 100 is 2 9 10 20."""
    assert aggregate_iqm(SCORES).value == pytest.approx(10.25)
    decoys = {"mean": SCORES.mean(), "median": np.median(SCORES), "of the environments": np.mean([1.5, 25.0])}
    assert decoys == {"mean": 21.5, "median": 9.5, "of the environments": 13.25}


def test_probability_of_improvement_by_hand() -> None:
    """First environment: 5 of 6 pairs are won. Second: 1 is won and 2 are ties, which count one half, so 2 of 6."""
    first = np.array([[3.0, 1.0], [1.5, 2.0], [4.0, 1.0]])
    second = np.array([[1.0, 1.0], [2.0, 4.0]])
    estimate = probability_of_improvement(first, second)
    assert estimate.value == pytest.approx((5 / 6 + 2 / 6) / 2)
    assert probability_of_improvement(second, first).value == pytest.approx(1 - estimate.value)
    without_ties = (first[:, None] > second).mean()
    assert without_ties == pytest.approx(0.5)


def test_profile_counts_runs_above_a_threshold() -> None:
    band = performance_profile(SCORES, np.array([-1.0, 0.0, 9.0, 15.0, 100.0]))
    np.testing.assert_allclose(band.value, [1, 7 / 8, 4 / 8, 3 / 8, 0])  # "at least" would give 1, 5/8, 3/8 and 1/8
    assert band.interval is not None
    assert [bound[[0, 4]].tolist() for bound in band.interval] == [[1, 0], [1, 0]]


def test_curve_is_the_iqm_at_each_point() -> None:
    curves = np.stack([SCORES, SCORES[::-1] * 2, np.full((4, 2), 7.0)], axis=-1)
    band = iqm_curve(curves)
    np.testing.assert_allclose(band.value, [10.25, 20.5, 7])
    assert band.interval is not None
    low, high = band.interval
    assert (low[2], high[2]) == (7, 7)
    assert low[0] < 10.25 < high[0]


@pytest.mark.parametrize("runs", [1, 2])
def test_one_run_has_no_interval(runs: int) -> None:
    scores = SCORES[:runs]
    assert (aggregate_iqm(scores).interval is None) is (runs == 1)
    assert (performance_profile(scores, np.zeros(1)).interval is None) is (runs == 1)
    assert (iqm_curve(scores[..., None]).interval is None) is (runs == 1)
    assert (probability_of_improvement(scores, SCORES).interval is None) is (runs == 1)


def test_interval_resamples_each_environment_by_itself() -> None:
    """Runs that are constant on each environment have no spread; exchanging scores between environments would give one."""
    estimate = aggregate_iqm(np.array([[1.0, 5.0, 9.0]] * 4))
    assert estimate.interval == (estimate.value, estimate.value) == (5, 5)


@pytest.mark.parametrize(("runs", "tasks"), [(3, 1), (5, 4), (8, 3)])
def test_values_equal_those_of_rliable(runs: int, tasks: int, rliable: Any) -> None:
    rng = np.random.default_rng(runs)
    first, second = rng.normal(size=(runs, tasks)).round(1), rng.normal(0.3, size=(runs + 1, tasks)).round(1)
    thresholds = np.linspace(-2, 2, 9)
    assert aggregate_iqm(first).value == pytest.approx(rliable.metrics.aggregate_iqm(first))
    expected = rliable.metrics.probability_of_improvement(first, second)
    assert probability_of_improvement(first, second).value == pytest.approx(expected)
    np.testing.assert_allclose(
        performance_profile(first, thresholds).value, rliable.library.score_distributions(first, thresholds)
    )


def test_intervals_are_close_to_those_of_rliable(rliable: Any) -> None:
    """rliable draws from NumPy's global generator, so its bounds vary by about 0.01."""
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(6, 4)), rng.normal(-0.5, size=(5, 4))
    thresholds = np.array([-0.5, 0.0, 1.0])

    def above(scores: Any) -> Any:
        return (scores[..., None] > thresholds).mean(axis=(0, 1))

    def wins(x: Any, y: Any) -> Any:
        return np.array([(x[:, None] > y).mean()])

    _, profile = rliable.library.get_interval_estimates({"it": first}, above, reps=2000)
    bounds_of_profile = performance_profile(first, thresholds).interval
    assert bounds_of_profile is not None
    np.testing.assert_allclose(np.stack(bounds_of_profile), profile["it"], atol=0.05)
    _, bounds = rliable.library.get_interval_estimates({"it": [first, second]}, wins, reps=2000)
    interval = probability_of_improvement(first, second).interval
    assert interval == pytest.approx(bounds["it"][:, 0], abs=0.03)
    assert interval != pytest.approx((0.0, 1.0), abs=0.2)


@settings(max_examples=15)
@given(arrays(np.float64, (3, 2), elements=st.integers(-5, 5)), arrays(np.float64, (4, 2), elements=st.integers(-5, 5)))
def test_probabilities_of_both_directions_add_up_to_one(first: Any, second: Any) -> None:
    forth, back = probability_of_improvement(first, second), probability_of_improvement(second, first)
    assert forth.value + back.value == pytest.approx(1)
    assert forth.interval is not None
    assert forth.interval[0] - 1e-9 <= forth.interval[1]
    assert probability_of_improvement(first * 3 + 1, second * 3 + 1) == forth  # the scale does not matter
