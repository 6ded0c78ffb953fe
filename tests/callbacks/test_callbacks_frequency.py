from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sb_dqn.callbacks import Every
from sb_dqn.errors import ConfigurationError


def test_fires_when_a_multiple_is_crossed() -> None:
    every = Every(10)
    assert [n for n in range(0, 42, 3) if every.crossed(n)] == [12, 21, 30]


def test_begin_swallows_what_was_crossed_before() -> None:
    every = Every(10)
    every.begin(25)
    assert [n for n in range(25, 45) if every.crossed(n)] == [30, 40]
    every.begin(0)
    assert [n for n in range(12) if every.crossed(n)] == [10]


@given(st.integers(1, 50), st.lists(st.integers(0, 60), max_size=40))
def test_agrees_with_looking_at_every_single_step(frequency: int, ticks: list[int]) -> None:
    every, now = Every(frequency), 0
    for steps in ticks:
        expected = any(n % frequency == 0 for n in range(now + 1, now + steps + 1))
        now += steps
        assert every.crossed(now) is expected


@pytest.mark.parametrize("frequency", [0, -1, 2.5, "10", None, float("nan")])
def test_refuses_what_is_no_frequency(frequency: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"save_freq must be an integer >= 1, got"):
        Every(frequency, "save_freq")
