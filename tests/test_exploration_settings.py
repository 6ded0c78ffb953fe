"""The keyword `exploration`: what it makes, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration import (
    ApexLadder,
    Boltzmann,
    EpsilonGreedy,
    Exploration,
    ExplorationConfig,
    LogLadder,
    as_exploration,
)
from sb_dqn.schedules import Constant, FromProgress, Linear, Piecewise
from sb_dqn.spaces import ActionShape

DEFAULT = Linear(1.0, 0.05, fraction=0.1)


def build(given: Any, lanes: int = 4, evaluation_eps: float | None = None) -> Exploration:
    settings = as_exploration(given, DEFAULT, evaluation_eps)
    return settings.build(ActionShape((3,), (0,)), lanes, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("epsilon", ExplorationConfig("epsilon", DEFAULT)),
        ({}, ExplorationConfig("epsilon", DEFAULT)),
        ({"kind": "epsilon", "off_after": 1e6}, ExplorationConfig("epsilon", DEFAULT, off_after=1_000_000)),
        ({"schedule": 0.1}, ExplorationConfig("epsilon", Constant(0.1))),
        ({"schedule": "linear 1 0.1"}, ExplorationConfig("epsilon", Linear(1.0, 0.1))),
        (
            {"schedule": [[0, 1.0], [100, 0.1]]},
            ExplorationConfig("epsilon", Piecewise(((0, 1.0), (100, 0.1)))),
        ),
        ({"ladder": "apex"}, ExplorationConfig("epsilon", DEFAULT, ApexLadder(7.0))),
        ({"ladder": "apex", "ladder_alpha": 3}, ExplorationConfig("epsilon", DEFAULT, ApexLadder(3.0))),
        ({"ladder": "log", "ladder_min": 0.0005}, ExplorationConfig("epsilon", DEFAULT, LogLadder(0.0005))),
        ("boltzmann", ExplorationConfig("boltzmann", DEFAULT)),
        ({"kind": "boltzmann", "temperature": 2}, ExplorationConfig("boltzmann", Constant(2.0))),
        ("none", ExplorationConfig("none", Constant(0.0))),
    ],
)
def test_what_is_meant(given: Any, expected: ExplorationConfig) -> None:
    assert as_exploration(given, DEFAULT) == expected


def test_what_is_built() -> None:
    plain, ladder, boltzmann, none = (build(given) for given in ("epsilon", {"ladder": "apex"}, "boltzmann", "none"))
    assert isinstance(plain, EpsilonGreedy)
    assert isinstance(ladder, EpsilonGreedy)
    assert isinstance(boltzmann, Boltzmann)
    ladder.advance(10_000, 100_000)
    assert ladder.lane_epsilons == pytest.approx([0.05 ** (1 + 7 * i / 3) for i in range(4)])
    assert (plain.rate, boltzmann.rate, none.rate) == (1.0, 1.0, 0.0)
    assert [one.needs_values for one in (plain, ladder, boltzmann, none)] == [False, False, True, False]
    assert [one.evaluation is one for one in (plain, ladder, boltzmann, none)] == [True] * 4


@pytest.mark.parametrize("given", ["epsilon", "boltzmann", "none"])
def test_an_epsilon_for_evaluation(given: str) -> None:
    evaluation = build(given, evaluation_eps=0.001).evaluation
    assert isinstance(evaluation, EpsilonGreedy)
    assert evaluation.rate == 0.001


def test_a_function_that_falls() -> None:
    exploration = build({"schedule": lambda left: 0.1 + 0.9 * left})
    exploration.advance(50, 100)
    assert exploration.rate == pytest.approx(0.55)
    assert isinstance(as_exploration({"schedule": lambda left: left}, DEFAULT).schedule, FromProgress)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("greedy", "exploration must be one of .*'none'.* got 'greedy'"),
        ("epsilom", "Did you mean .*epsilon"),
        (None, "exploration=None is not allowed: give one of"),
        (0.1, "exploration=0.1 is not allowed: give one of"),
        ({"kind": "ucb"}, "exploration must be .* got 'ucb'"),
        ({"kind": None}, "exploration must be .* got None"),
        ({"epsilon": 0.1}, "exploration of kind 'epsilon' has no 'epsilon'; allowed are"),
        ({"temperature": 1.0}, "exploration of kind 'epsilon' has no 'temperature'"),
        ({"kind": "boltzmann", "ladder": "apex"}, "exploration of kind 'boltzmann' has no 'ladder'"),
        ({"kind": "boltzmann", "schedule": 0.1}, "exploration of kind 'boltzmann' has no 'schedule'"),
        ({"kind": "none", "off_after": 5}, "exploration of kind 'none' has no 'off_after'"),
        ({"schedule": 1.1}, "schedule.* must be a number >= 0 and <= 1.* got 1.1"),
        ({"schedule": -0.1}, "schedule.* must be .* got -0.1"),
        ({"schedule": Linear(2.0, 0.1)}, "the value of .* must be .* got 2.0"),
        ({"schedule": Linear(0.1, 0.5)}, "it rises, and exploration never rises again; give values that fall"),
        ({"schedule": [[0, 0.5], [9, 0.1], [20, 0.2]]}, "it rises"),
        ({"schedule": lambda left: 1.0 - left}, "it rises"),
        ({"schedule": [[5, 0.5], [5, 0.1]]}, "increasing steps"),
        ({"schedule": [[5, 0.5, 0.1]]}, "must be \\(env step, value\\) pairs"),
        ({"schedule": [[-5, 0.5]]}, "the step of .* must be .* got -5"),
        ({"schedule": [[5, "x"]]}, "the value of .* must be .* got 'x'"),
        ({"schedule": "cosine"}, "must be a schedule such as"),
        ({"off_after": -1}, "off_after.* must be an integer >= 0.* got -1"),
        ({"off_after": 0.5}, "off_after.* must be .* got 0.5"),
        ({"ladder": "linear"}, "ladder.* must be one of .'apex', 'log'..* got 'linear'"),
        ({"ladder": True}, "ladder.* must be .* got True"),
        ({"ladder_alpha": 3}, "does not belong to ladder=None"),
        ({"ladder": "apex", "ladder_min": 0.1}, "does not belong to ladder='apex'; .* ladder_min for 'log'"),
        ({"ladder": "log", "ladder_min": 0.01, "ladder_alpha": 3}, "does not belong to ladder='log'"),
        ({"ladder": "apex", "ladder_alpha": 0}, "ladder_alpha.* must be a number > 0.* got 0"),
        ({"ladder": "log"}, "ladder_min.* must be a number > 0 and <= 0.05.* got None"),
        ({"ladder": "log", "ladder_min": 0}, "ladder_min.* must be .* got 0"),
        ({"ladder": "log", "ladder_min": 0.1}, "ladder_min.* must be .* got 0.1"),
        ({"ladder": "apex", "schedule": Linear(1.0, 0.0)}, "no lanes to tell apart where epsilon ends at 0"),
        ({"kind": "boltzmann", "temperature": -1.0}, "temperature.* must be .* got -1.0"),
        ({"kind": "boltzmann", "temperature": 0.0}, "begins at temperature 0, which explores nothing"),
        ({"kind": "boltzmann", "temperature": Linear(0.1, 1.0)}, "it rises"),
        ({"kind": "boltzmann", "temperature": math.nan}, "temperature.* must be .* got nan"),
    ],
)
def test_what_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        as_exploration(given, DEFAULT)


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan, True, "0.1", [0.1]])
def test_evaluation_epsilons_that_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="evaluation_eps must be a number >= 0 and <= 1, got"):
        as_exploration("epsilon", DEFAULT, value)


def test_noisy_nets_without_epsilon_need_a_temperature() -> None:
    with pytest.raises(ConfigurationError, match=r"exploration=dict\(kind='boltzmann', temperature=...\)"):
        as_exploration("boltzmann", Linear(0.0, 0.0))
