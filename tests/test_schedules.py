"""Schedules: values computed by hand, conversions, and refused values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from sb_dqn.errors import ConfigurationError
from sb_dqn.schedules import Constant, FromProgress, Linear, Piecewise, Schedule, as_schedule, parse


# decoys, what pl_bolts' code has: .9999933 at 0, .5 at 75,000, .02 from 147,000 on
@pytest.mark.parametrize(
    ("step", "expected"), [(0, 1.0), (75_000, 0.51), (147_000, 0.0396), (150_000, 0.02), (150_001, 0.02), (10**9, 0.02)]
)
def test_a_line_over_steps(step: int, expected: float) -> None:
    assert Linear(1.0, 0.02, steps=150_000)(step, 1) == pytest.approx(expected)


@pytest.mark.parametrize(("step", "expected"), [(0, 1.0), (250, 0.7625), (500, 0.525), (1000, 0.05), (9999, 0.05)])
def test_a_line_over_a_share_of_the_horizon(step: int, expected: float) -> None:
    assert Linear(1.0, 0.05, fraction=0.1)(step, 10_000) == pytest.approx(expected)


@pytest.mark.parametrize("schedule", [Linear(1.0, 0.05, fraction=0.0), Linear(1.0, 0.05)])
def test_a_line_of_no_length_is_at_its_end(schedule: Schedule) -> None:
    assert schedule(0, 0) == 0.05


def test_a_line_upwards() -> None:
    assert Linear(0.4, 1.0, steps=100)(50, 1) == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 1.0), (100, 1.0), (150, 0.75), (200, 0.5), (300, 0.3), (400, 0.1), (500, 0.1)]
)
def test_lines_between_points(step: int, expected: float) -> None:
    assert Piecewise(((100, 1.0), (200, 0.5), (400, 0.1)))(step, 1) == pytest.approx(expected)


@pytest.mark.parametrize(("iteration", "expected"), [(0, 1.0), (1562, 1.0), (16406, 0.505), (31250, 0.01)])
def test_the_epsilon_of_rlpyt(iteration: int, expected: float) -> None:
    """An iteration has 32 env steps: two in each of 16 lanes."""
    falling = Piecewise(((50_000, 1.0), (1_000_000, 0.01)))
    assert falling(32 * iteration, 1) == pytest.approx(expected, abs=1e-4)


def test_one_point_is_a_constant() -> None:
    assert [Piecewise(((5, 0.3),))(step, 1) for step in (0, 5, 9)] == [0.3, 0.3, 0.3]


def test_a_function_of_the_progress_remaining() -> None:
    schedule = FromProgress(lambda remaining: remaining * 2)
    assert [schedule(step, 100) for step in (0, 25, 100)] == [2.0, 1.5, 0.0]
    assert schedule(0, 0) == 2.0  # before any learn the horizon is 0


@pytest.mark.parametrize("schedule", [Constant(1.0), Linear(1.0, 0.0), Piecewise(((0, 1.0),))])
def test_schedules_are_frozen(schedule: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        schedule.value = 3


@pytest.mark.parametrize("points", [(), ((5, 1.0), (5, 2.0)), ((5, 1.0), (3, 2.0))])
def test_points_must_rise(points: Any) -> None:
    with pytest.raises(ConfigurationError, match="points must be .* increasing steps, got"):
        Piecewise(points)


@pytest.mark.parametrize("kwargs", [{"steps": 0}, {"steps": -3}, {"steps": 1.5}, {"fraction": -0.1}, {"fraction": 1.1}])
def test_lines_that_are_refused(kwargs: dict[str, Any]) -> None:
    (name,) = kwargs
    with pytest.raises(ConfigurationError, match=f"{name} must be"):
        Linear(1.0, 0.0, **kwargs)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.001", Constant(0.001)),
        ("1e-4", Constant(1e-4)),
        ("linear 0.001", Linear(0.001, 0.0)),
        ("linear 0.001 0.0001", Linear(0.001, 0.0001)),
        ("lin_2.5e-4", Linear(2.5e-4, 0.0)),
    ],
)
def test_texts(text: str, expected: Schedule) -> None:
    assert parse(text) == expected
    assert as_schedule("learning_rate", text) == expected


@pytest.mark.parametrize("text", ["", "fast", "linear", "linear x", "linear 1 2 3", "0.1 0.2", "cosine 0.1"])
def test_malformed_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="learning_rate must be a schedule such as '0.001'"):
        as_schedule("learning_rate", text)


def test_conversions_to_a_schedule() -> None:
    assert as_schedule("learning_rate", 0.5) == Constant(0.5)
    assert as_schedule("learning_rate", 1) == Constant(1.0)
    line = Linear(1.0, 0.0)
    assert as_schedule("learning_rate", line) is line

    def own(remaining: float) -> float:
        return 0.1 * remaining

    assert as_schedule("learning_rate", own) == FromProgress(own)


class Halving(Schedule):
    def __call__(self, step: int, horizon: int) -> float:
        return 0.5 ** (step // 1000)

    def values(self) -> tuple[float, ...]:
        return 1.0, 0.0


def test_a_user_defined_schedule_is_used_and_checked() -> None:
    own = Halving()
    assert as_schedule("learning_rate", own) is own
    assert (own.ends(), own.rises(), own(2500, 10_000)) == ((1.0, 0.0), False, 0.25)
    with pytest.raises(ConfigurationError, match="the value of .* must be .* got 1.0"):
        as_schedule("learning_rate", own, high=0.5)


def breaks(remaining: float) -> float:
    raise ZeroDivisionError("by hand")


@pytest.mark.parametrize(
    "value",
    [
        0, -1e-3, math.nan, math.inf, True, None, [0.1], {"lr": 0.1}, "-0.001", "nan", "inf", "0", "linear -1",
        "linear 0.1 -1", "linear nan", Constant(-1.0), Constant(math.nan), Linear(0.1, -0.1), Linear(math.inf, 0.1),
        Piecewise(((0, 0.1), (5, -0.1), (9, 0.1))), lambda remaining: -1.0, lambda remaining: math.nan,
        lambda remaining: remaining - 0.1,
        lambda remaining: "fast", lambda: 0.1, breaks,
    ],
)  # fmt: skip
def test_rates_that_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="learning_rate.* must be .* got"):
        as_schedule("learning_rate", value)


def test_a_warm_up_may_begin_at_0() -> None:
    warm_up = Piecewise(((0, 0.0), (1000, 0.1), (2000, 0.0)))
    assert as_schedule("learning_rate", warm_up) is warm_up
    by_progress = as_schedule("learning_rate", lambda remaining: 1e-3 * (1 - remaining))
    assert [by_progress(step, 100) for step in (0, 50, 100)] == [0.0, 5e-4, 1e-3]


def test_pairs_are_lines_between_points() -> None:
    assert as_schedule("learning_rate", [[0, 0.1], (1e3, 0.05)]) == Piecewise(((0, 0.1), (1000, 0.05)))


@pytest.mark.parametrize("pairs", [[[0, 0.1, 0.2]], [[0.5, 0.1]], [[-1, 0.1]], [[0, "x"]], [[5, 0.1], [5, 0.2]], [[]]])
def test_pairs_that_are_refused(pairs: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be .* got"):
        as_schedule("learning_rate", pairs)


@pytest.mark.parametrize("value", [1.5, Linear(0.5, 1.5), "linear 2 0", [[0, 1.5]]])
def test_values_above_the_largest(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a number .*<= 1, got"):
        as_schedule("exploration['schedule']", value, high=1.0)


@pytest.mark.parametrize(
    ("schedule", "expected", "upwards"),
    [
        (Constant(0.3), (0.3, 0.3), False),
        (Linear(1.0, 0.1, steps=5), (1.0, 0.1), False),
        (Linear(0.1, 1.0, fraction=0.0), (0.1, 1.0), True),
        (Piecewise(((5, 0.5), (9, 0.7), (10, 0.1))), (0.5, 0.1), True),
        (FromProgress(lambda remaining: 0.2 + remaining), (1.2, 0.2), False),
        (FromProgress(lambda remaining: 1.0 - remaining), (0.0, 1.0), True),
    ],
)
def test_ends_of_schedules(schedule: Schedule, expected: tuple[float, float], upwards: bool) -> None:
    assert schedule.ends() == pytest.approx(expected)
    assert schedule.rises() is upwards
