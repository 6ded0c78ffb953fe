"""Exploration in whole runs: it follows its schedule, goes on after a load, and is told in the log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb_dqn.algorithms import DQN
from sb_dqn.exploration import Boltzmann, EpsilonGreedy
from sb_dqn.schedules import Linear, Piecewise
from tests.marks import SLOW
from tests.tiny import Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

KINDS: dict[str, Any] = {
    "epsilon": "epsilon",
    "lines": {"schedule": Piecewise(((10, 1.0), (40, 0.2), (80, 0.1)))},
    "pairs": {"schedule": [[10, 1.0], [40, 0.2], [80, 0.1]]},
    "apex": {"ladder": "apex", "schedule": Linear(1.0, 0.4, steps=40)},
    "log": {"ladder": "log", "ladder_min": 0.001},
    "off": {"off_after": 50},
    "boltzmann": {"kind": "boltzmann", "temperature": Linear(2.0, 0.1, steps=100)},
    "none": "none",
}


def acting(env: Any = None, **kwargs: Any) -> DQN:
    """A model that only acts: no update falls due."""
    return quick(env, train_freq=10_000, **kwargs)


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_after_a_load(kind: str, tmp_path: Path) -> None:
    def make() -> list[Any]:
        return lanes(3, partial(Tiny, length=7))

    model = acting(make(), exploration=KINDS[kind], exploration_fraction=0.5).learn(60)
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=make())
    assert loaded.arguments == {**model.arguments, "device": "auto"}
    assert loaded.exploration_rate == model.exploration_rate < 1.0
    assert type(loaded.exploration) is type(model.exploration)
    before = loaded.exploration_rate
    loaded.learn(12)  # counts from 0 again: the schedule alone would begin anew
    assert loaded.exploration_rate <= before


@SLOW
def test_rates_by_hand() -> None:
    rates = {kind: acting(exploration=KINDS[kind]).learn(61).exploration_rate for kind in KINDS}
    # the last action was chosen at step 60
    assert rates["lines"] == rates["pairs"] == pytest.approx(0.15)
    assert rates["boltzmann"] == pytest.approx(2.0 - 1.9 * 0.6)
    assert rates["apex"] == pytest.approx(0.4)  # one lane: the final epsilon
    assert (rates["off"], rates["none"]) == (0.0, 0.0)


def test_each_lane_has_its_rung() -> None:
    model = acting(lanes(3), exploration=KINDS["apex"]).learn(60)
    assert isinstance(model.exploration, EpsilonGreedy)
    assert model.exploration.lane_epsilons == pytest.approx([0.4, 0.4**4.5, 0.4**8])
    assert model.exploration_rate == pytest.approx(np.mean([0.4, 0.4**4.5, 0.4**8]))
    assert model.log_facts()["rollout/exploration_rate"] == model.exploration_rate


def test_a_model_from_a_file_may_explore_in_another_way(tmp_path: Path) -> None:
    acting().learn(30).save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=Tiny(), exploration={"kind": "boltzmann", "temperature": 0.7})
    assert isinstance(loaded.exploration, Boltzmann)
    assert loaded.learn(10).exploration_rate == 0.7


@pytest.mark.parametrize("exploration", ["none", {"off_after": 10}])
def test_noisy_nets_explore_without_epsilon(exploration: Any) -> None:
    model = acting(
        Tiny(length=1000),
        noisy={"sigma": 20.0},
        exploration=exploration,
        exploration_initial_eps=1.0,
        exploration_final_eps=0.5,
        learning_starts=10,
    )
    env: Any = model.get_env().envs[0]
    model.learn(200)
    late = env.unwrapped.actions[20:]
    assert model.exploration_rate == 0.0
    assert len(set(late)) > 1  # the same weights all along, other noise at each step
