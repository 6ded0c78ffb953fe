"""The keyword `exploration`: parsing, construction and invalid values."""

from __future__ import annotations

from pathlib import Path
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
from tests.marks import SLOW
from tests.tiny import quick

DEFAULT = Linear(1.0, 0.05, fraction=0.1)


def build(value: Any, lanes: int = 4, evaluation_eps: float | None = None) -> Exploration:
    config = as_exploration(value, DEFAULT, evaluation_eps)
    return config.build(ActionShape((3,), (0,)), lanes, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("value", "expected"),
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
def test_parsed_values(value: Any, expected: ExplorationConfig) -> None:
    assert as_exploration(value, DEFAULT) == expected


def test_built_exploration() -> None:
    plain, ladder, boltzmann, none = (build(value) for value in ("epsilon", {"ladder": "apex"}, "boltzmann", "none"))
    assert isinstance(plain, EpsilonGreedy)
    assert isinstance(ladder, EpsilonGreedy)
    assert isinstance(boltzmann, Boltzmann)
    ladder.advance(10_000, 100_000)
    assert ladder.lane_epsilons == pytest.approx([0.05 ** (1 + 7 * i / 3) for i in range(4)])
    assert (plain.rate, boltzmann.rate, none.rate) == (1.0, 1.0, 0.0)
    assert [built.needs_values for built in (plain, ladder, boltzmann, none)] == [False, False, True, False]
    assert [built.evaluation is built for built in (plain, ladder, boltzmann, none)] == [True] * 4


@pytest.mark.parametrize("value", ["epsilon", "boltzmann", "none"])
def test_an_epsilon_for_evaluation(value: str) -> None:
    evaluation = build(value, evaluation_eps=0.001).evaluation
    assert isinstance(evaluation, EpsilonGreedy)
    assert evaluation.rate == 0.001


def test_a_function_as_schedule() -> None:
    exploration = build({"schedule": lambda left: 0.1 + 0.9 * left})
    exploration.advance(50, 100)
    assert exploration.rate == pytest.approx(0.55)
    assert isinstance(as_exploration({"schedule": lambda left: left}, DEFAULT).schedule, FromProgress)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("epsilom", "exploration.*'epsilom'.*Did you mean .*epsilon"),
        (
            None,
            "exploration must be one of .*'none'.* a dict, or a subclass of Exploration, got None. Use for instance",
        ),
        (0.1, "exploration must be one of .* got 0.1"),
        ({"kind": "ucb"}, "exploration.*'ucb'"),
        ({"epsilon": 0.1}, "exploration of kind 'epsilon' .*'epsilon'"),
        ({"temperature": 1.0}, "exploration of kind 'epsilon' .*'temperature'"),
        ({"kind": "boltzmann", "ladder": "apex"}, "exploration of kind 'boltzmann' .*'ladder'"),
        ({"kind": "none", "off_after": 5}, "exploration of kind 'none' .*'off_after'"),
        ({"schedule": 1.1}, r"exploration\['schedule'\].*1\.1"),
        ({"schedule": "cosine"}, r"exploration\['schedule'\].*'cosine'"),
        ({"off_after": -1}, r"exploration\['off_after'\].*-1"),
        ({"ladder": "linear"}, r"exploration\['ladder'\].*'apex', 'log'.*'linear'"),
        ({"ladder_alpha": 3}, "must be unset with ladder=None, got 3. Remove it, or set ladder='apex'"),
        ({"ladder": "apex", "ladder_min": 0.1}, "must be unset with ladder='apex', got 0.1.* set ladder='log'"),
        ({"ladder": "log", "ladder_min": 0.01, "ladder_alpha": 3}, "must be unset with ladder='log', got 3"),
        ({"ladder": "apex", "ladder_alpha": 0}, r"exploration\['ladder_alpha'\].*0"),
        ({"ladder": "log"}, r"exploration\['ladder_min'\] must be a number > 0 and <= 0.05, got None"),
        ({"ladder": "log", "ladder_min": 0.1}, r"exploration\['ladder_min'\].*0.1"),
        ({"ladder": "apex", "schedule": Linear(1.0, 0.0)}, "final epsilon must be above 0 with .*got 0"),
        ({"kind": "boltzmann", "temperature": -1.0}, r"exploration\['temperature'\].*-1.0"),
        ({"kind": "boltzmann", "temperature": 0.0}, "must start above 0"),
    ],
)
def test_invalid_values_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        as_exploration(value, DEFAULT)


def test_an_invalid_evaluation_epsilon_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="evaluation_eps.*1.5"):
        as_exploration("epsilon", DEFAULT, 1.5)


def test_boltzmann_requires_a_temperature_where_epsilon_is_0() -> None:
    with pytest.raises(ConfigurationError, match=r"exploration=dict\(kind='boltzmann', temperature=...\)"):
        as_exploration("boltzmann", Linear(0.0, 0.0))


@SLOW
def test_a_rising_schedule_is_followed() -> None:
    model = quick(exploration_initial_eps=0.1, exploration_final_eps=0.5, exploration_fraction=0.5)
    assert model.learn(40).exploration_rate == pytest.approx(0.5)
    model.learn(40, callback=lambda locals_, _: locals_["self"].num_timesteps < 10)
    assert 0.1 < model.exploration_rate < 0.5  # a falling one would keep the smallest
    up_and_down = quick(exploration={"schedule": [(0, 0.5), (10, 0.1), (20, 0.9)]}).learn(40)
    assert up_and_down.exploration_rate == 0.9


class Cycle(Exploration):
    """Each lane takes one action after the other."""

    rate = 1.0

    def __init__(self, actions: ActionShape, num_lanes: int, rng: np.random.Generator) -> None:
        super().__init__(actions, num_lanes, rng)
        self.turn = 0

    def advance(self, step: int, horizon: int) -> None:
        pass

    def select(self, act: Any, mask: Any = None) -> Any:
        self.turn += 1
        return np.full(self.num_lanes, self.turn % self.actions.num_actions)

    def explore(self, act: Any, rows: int, rng: np.random.Generator, mask: Any = None) -> Any:
        return act()

    def state_dict(self) -> dict[str, Any]:
        return {"turn": self.turn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.turn = int(state["turn"])


def test_an_exploration_of_the_user(tmp_path: Path) -> None:
    taken: list[int] = []

    def note(locals_: Any, _: Any) -> bool:
        taken.extend(locals_["actions"].tolist())
        return True

    model = quick(exploration=Cycle, learning_starts=0, evaluation_eps=None)
    model.learn(30, callback=note)
    assert np.diff(taken).all()  # no action twice in a row
    model.save(tmp_path / "cycle")
    loaded = type(model).load(tmp_path / "cycle", custom_objects={"exploration": Cycle})
    assert isinstance(loaded.exploration, Cycle)
    assert loaded.exploration.turn >= 30
    with pytest.raises(
        ConfigurationError, match=r"exploration must return an Exploration from \(actions, num_lanes, rng\)"
    ):
        quick(exploration=lambda actions, num_lanes, rng: None)
    with pytest.raises(ConfigurationError, match="exploration must be a function .actions, num_lanes, rng."):
        quick(exploration=lambda: None)
    with pytest.raises(ConfigurationError, match="evaluation_eps must be None with an exploration of your own"):
        quick(exploration=Cycle, evaluation_eps=0.1)
