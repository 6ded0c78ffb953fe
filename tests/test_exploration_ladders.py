"""Epsilon ladders: worked numbers, decay and a single lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sb_dqn.exploration import ApexLadder, EpsilonGreedy, Ladder, LogLadder
from sb_dqn.schedules import Constant, FromProgress, Linear, Piecewise, Schedule
from sb_dqn.spaces import ActionShape
from tests.marks import SLOW


def explorer(epsilon: float | Schedule, lanes: int, **kwargs: Any) -> EpsilonGreedy:
    schedule = Constant(epsilon) if isinstance(epsilon, float) else epsilon
    return EpsilonGreedy(schedule, ActionShape((4,), (0,)), lanes, np.random.default_rng(0), **kwargs)


@pytest.mark.parametrize(
    ("ladder", "base", "expected"),
    [
        (ApexLadder(), 0.4, [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]),
        (ApexLadder(3.0), 0.5, [0.5, 0.25, 0.125, 0.0625]),
        (LogLadder(0.0005), 0.1, [0.0005, 0.0029240177, 0.0170997595, 0.1]),
        (ApexLadder(), 0.4, [0.4]),
        (LogLadder(0.0005), 0.1, [0.1]),
    ],
)
def test_worked_ladders(ladder: Ladder, base: float, expected: list[float]) -> None:
    exploration = explorer(base, len(expected), ladder=ladder)
    exploration.advance(0, 1)
    assert exploration.lane_epsilons == pytest.approx(expected, rel=1e-6)
    assert exploration.rate == pytest.approx(np.mean(expected))


def test_each_lane_decays_to_its_own_final_epsilon() -> None:
    exploration, epsilons = explorer(Linear(1.0, 0.1, steps=100), 4, ladder=LogLadder(0.0005)), []
    for step in (0, 50, 100, 200):
        exploration.advance(step, 1)
        epsilons.append(exploration.lane_epsilons.tolist())
    finals = np.array([0.0005, 0.0029240177, 0.0170997595, 0.1])
    assert np.array(epsilons) == pytest.approx(np.stack([np.ones(4), (1 + finals) / 2, finals, finals]), rel=1e-6)


def test_a_ladder_scales_down_below_the_schedule_and_to_0() -> None:
    exploration = explorer(Linear(1.0, 0.4, steps=100), 8, ladder=ApexLadder(), off_after=300)
    exploration.load_state_dict({"epsilon": 0.2})  # reached by the loaded model
    exploration.advance(200, 1)
    assert exploration.lane_epsilons[:2] == pytest.approx([0.2, 0.08])
    exploration.advance(300, 1)
    assert exploration.lane_epsilons.tolist() == [0.0] * 8


def test_a_ladder_from_a_function_of_the_progress() -> None:
    exploration = explorer(FromProgress(lambda left: 0.4 + 0.6 * left), 8, ladder=ApexLadder())
    exploration.advance(50, 100)
    assert exploration.lane_epsilons[[0, 7]] == pytest.approx([0.7, 0.5 * (1 + 0.00065536)])


@SLOW
def test_shares_on_a_ladder() -> None:
    exploration, draws = explorer(0.8, 3, ladder=ApexLadder(2.0)), 20_000
    epsilons = np.array([0.8, 0.8**2, 0.8**3])
    chosen = np.array([exploration.select(lambda: np.zeros(3, np.int64)) for _ in range(draws)])
    not_greedy = (chosen != 0).mean(0)  # 1 - P(greedy) = e - e / 4 in each lane
    expected = 0.75 * epsilons
    tolerance = 4.5 * np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(not_greedy - expected) < tolerance).all()
    assert (np.abs(not_greedy - expected.mean()) > tolerance).any()  # decoy: one epsilon for all lanes


def test_the_ladder_adapts_to_the_number_of_lanes() -> None:
    exploration = explorer(0.4, 8, ladder=ApexLadder())
    exploration.num_lanes = 2
    assert exploration.lane_epsilons == pytest.approx([0.4, 0.4**8])
    assert exploration.select(lambda: np.zeros(2, np.int64)).shape == (2,)


@pytest.mark.parametrize("ladder", [ApexLadder(), LogLadder(0.01)])
def test_a_ladder_follows_a_schedule_that_rises_and_falls(ladder: Ladder) -> None:
    """Every lane explores most at the peak, in proportion to the way from its own final epsilon to 1."""
    exploration = explorer(Piecewise(((0, 0.1), (1000, 1.0), (2000, 0.1))), 3, ladder=ladder)
    final = ladder.finals(0.1, 3)
    for step, share in ((0, 0.0), (500, 0.5), (1000, 1.0), (2000, 0.0)):
        exploration.advance(step, 2000)
        assert exploration.lane_epsilons == pytest.approx(final + share * (1 - final))
