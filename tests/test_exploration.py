"""Who explores is drawn for each lane by itself, and epsilon never rises again."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

from sb_dqn.exploration import EpsilonGreedy
from sb_dqn.schedules import Constant, Linear
from sb_dqn.types import IntArray

LANES, ACTIONS = 3, 4


def explorer(epsilon: float, lanes: int = LANES, seed: int = 0) -> EpsilonGreedy:
    return EpsilonGreedy(Constant(epsilon), ACTIONS, lanes, np.random.default_rng(seed))


def greedy() -> IntArray:
    return np.array([0, 1, 2])


def never() -> NoReturn:
    raise AssertionError("the net was asked for nothing")


def test_frequencies_per_lane() -> None:
    exploration, epsilon, draws = explorer(0.4), 0.4, 20_000
    chosen = np.array([exploration.select(greedy) for _ in range(draws)])  # [draws, B]
    frequency = np.stack([(chosen == action).mean(0) for action in range(ACTIONS)], 1)  # [B, A]
    expected = np.full((LANES, ACTIONS), epsilon / ACTIONS)
    expected[range(LANES), greedy()] += 1 - epsilon  # P(greedy) = 1 - e + e / |A|
    spread = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(frequency - expected) < 4.5 * spread).all()


def test_lanes_explore_independently() -> None:
    exploration, draws = explorer(0.5), 20_000
    off = np.array([exploration.select(greedy) != greedy() for _ in range(draws)])
    p = 0.5 * 0.75
    together = (off[:, 0] & off[:, 1]).mean()
    # decoys: one draw for all lanes, as in Stable-Baselines3: 0.5 * 0.75**2 = 0.281; independent: 0.1406
    assert abs(together - p * p) < 4.5 * np.sqrt(p * p * (1 - p * p) / draws)


def test_greedy_alone_and_random_alone() -> None:
    assert explorer(0.0).select(greedy).tolist() == [0, 1, 2]
    assert explorer(1.0).select(never).shape == (LANES,)


def test_uniform_actions() -> None:
    exploration = explorer(0.1)
    counts = np.bincount(np.concatenate([exploration.uniform() for _ in range(4000)]), minlength=ACTIONS)
    assert counts.size == ACTIONS
    assert (np.abs(counts - 3000) < 4.5 * np.sqrt(12_000 * 0.25 * 0.75)).all()


def test_the_same_generator_gives_the_same_actions() -> None:
    first, second, other = explorer(0.5), explorer(0.5), explorer(0.5, seed=1)
    actions = [[e.select(greedy).tolist() for _ in range(20)] for e in (first, second, other)]
    assert actions[0] == actions[1] != actions[2]


def test_epsilon_follows_its_schedule() -> None:
    exploration = EpsilonGreedy(Linear(1.0, 0.1, fraction=0.5), ACTIONS, LANES, np.random.default_rng(0))
    assert exploration.epsilon == 1.0
    seen = []
    for step in (0, 25, 50, 100):
        exploration.advance(step, 100)
        seen.append(exploration.epsilon)
    assert seen == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_epsilon_never_rises_again() -> None:
    exploration = EpsilonGreedy(Linear(1.0, 0.1, steps=100), ACTIONS, LANES, np.random.default_rng(0))
    exploration.advance(50, 1)
    exploration.advance(0, 1)  # a second learn counts from 0
    assert exploration.epsilon == pytest.approx(0.55)
    exploration.advance(60, 1)
    assert exploration.epsilon == pytest.approx(0.46)


def test_epsilon_goes_on_after_a_load() -> None:
    first, second = explorer(1.0), explorer(1.0)
    first.epsilon = 0.3
    second.load_state_dict(first.state_dict())
    second.advance(0, 1)
    assert second.epsilon == 0.3
