"""Lanes of one process that fail: seeds and names of their restarts, failures while restarting, and resumed runs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN
from sb_dqn.actors import OverlappedActors
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.envs import Lanes, make_vec_env, open_stream
from sb_dqn.errors import EnvironmentFault

ACTIONS = np.zeros(1, np.int64)


class Flaky(gymnasium.Env[Any, Any]):
    """Episodes of `length` steps that begin with a random number; `failing` says which step of which instance raises."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)
    made = 0
    failing: tuple[tuple[int, int], ...] = ()
    unmade: tuple[int, ...] = ()
    length = 5

    def __init__(self) -> None:
        Flaky.made += 1
        self.number, self.steps, self.t = Flaky.made, 0, 0
        if self.number in self.unmade:
            raise OSError("port in use")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.random(1).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps, self.t = self.steps + 1, self.t + 1
        if (self.number, self.steps) in self.failing:
            raise RuntimeError("simulator lost")
        return np.full(1, self.t / 10, np.float32), 1.0, self.t >= self.length, False, {}

    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.t, self.steps = state["t"], state["steps"]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "made", 0)
    warnings.simplefilter("ignore")


def first_observations(seed: int) -> list[float]:
    """Those of the episodes after a restart in the third step."""
    Flaky.made = 0
    stream = open_stream(Lanes([Flaky], on_env_error="restart"))
    stream.begin(seed)
    rows = [stream.step(ACTIONS) for _ in range(16)]
    return [float(row.slots[-1].obs["obs"][0, 0]) for row in rows if not row.stepped[0]]


def test_episodes_after_a_restart_depend_on_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "failing", ((1, 3),))
    assert len(first_observations(100)) == 3
    assert first_observations(100) == first_observations(100)
    assert not set(first_observations(100)) & set(first_observations(5000))


def test_the_warning_numbers_the_lane_as_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "failing", ((2, 1),))
    stream = open_stream(Lanes([Flaky] * 2, on_env_error="restart"))
    stream.number_lanes(6)
    stream.begin(0)
    with pytest.warns(UserWarning, match="lane 7 raised at step 1"):
        stream.step(np.zeros(2, np.int64))


def test_a_lane_that_cannot_be_made_again_counts_as_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "failing", ((1, 3),))
    monkeypatch.setattr(Flaky, "unmade", (2,))
    lanes = Lanes([Flaky], on_env_error="restart")
    stream = open_stream(lanes)
    stream.begin(0)
    rows = [stream.step(ACTIONS) for _ in range(4)]
    assert lanes.restarts == 2
    assert rows[2].slots[-1].last[0]
    monkeypatch.setattr(Flaky, "failing", ((3, 2),))
    monkeypatch.setattr(Flaky, "unmade", tuple(range(4, 20)))
    with pytest.raises(EnvironmentFault, match=r"lane 0 raised at step 6: OSError: port in use"):
        for _ in range(4):
            stream.step(ACTIONS)


def test_failures_before_a_reset_are_not_in_a_row_with_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "failing", tuple((number, 2) for number in range(1, 9)))
    lanes = Lanes([Flaky], on_env_error="restart")
    stream = open_stream(lanes)
    for seed in range(8):
        stream.begin(seed)
        stream.step(ACTIONS)
        stream.step(ACTIONS)
        stream.step(ACTIONS)
    assert lanes.restarts == 8


def test_a_lane_may_fail_in_the_first_step_of_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "length", 50)
    settings: dict[str, Any] = {"buffer_size": 100, "learning_starts": 1_000, "seed": 0}
    model = DQN("MlpPolicy", Lanes([Flaky], on_env_error="restart"), **settings)
    model.learn(20, callback=CheckpointCallback(10, str(tmp_path), full=True))
    expected = model.replay.ring.obs["obs"][:11].clone()
    lanes = Lanes([Flaky], on_env_error="restart")
    monkeypatch.setattr(Flaky, "failing", ((Flaky.made, 11),))
    resumed = DQN.load(tmp_path / "rl_model_10_steps.zip", lanes).resume()
    assert lanes.restarts == 1
    found = resumed.replay.ring.obs["obs"]
    assert found[:11].equal(expected)
    assert found[11].equal(expected[10])  # the final row repeats the observation before the failure


def test_restarts_of_all_groups_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "failing", ((2, 4), (3, 6)))
    actors = OverlappedActors(groups=2, lanes=2)
    make = lambda: make_vec_env(Flaky, 2, vec_env_kwargs={"on_env_error": "restart"})  # noqa: E731
    model = DQN("MlpPolicy", make, actors=actors, buffer_size=400, learning_starts=1_000)
    model.learn(60)
    assert model.log_facts()["rollout/env_restarts"] == 2
