"""Overlapped acting: the order of events, resume at any tick, and errors of the environment."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from sb_dqn import DQN, SAC
from sb_dqn.actors import OverlappedActors
from sb_dqn.actors.overlapped import LaneGroup, OverlappedCollector
from sb_dqn.callbacks import BaseCallback
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.types import Rows
from tests.actors.games import Ledger, check_rows
from tests.continuing import differences
from tests.invariants import check_valid
from tests.marks import SLOW, a_few
from tests.toy_actors import toy_actor, toy_control
from tests.toys import toy_policy, toy_stream

SMALL: dict[str, Any] = {
    "learning_starts": 20, "batch_size": 8, "buffer_size": 2_000, "seed": 5, "policy_kwargs": {"net_arch": [8]}, "device": "cpu",
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("eagerly")


def test_actions_are_chosen_before_a_tick_is_given_out() -> None:
    _, stream = toy_stream("lanes", 2)
    chosen: list[Rows] = []
    group = LaneGroup(toy_actor(stream, chosen.append), slice(0, 2))
    ticks = OverlappedCollector(stream, [group], toy_control(3)).rows()
    first = next(ticks)
    assert first.action is None
    assert chosen == [first]
    second = next(ticks)
    assert second.action is not None
    assert second.action.tolist() == toy_policy(first).tolist()
    assert chosen == [first, second]


class SaveAt(BaseCallback):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def _on_step(self) -> bool:
        if 60 <= self.num_timesteps < 72:
            self.model.save(str(self.folder / f"{self.num_timesteps}.zip"), full=True)
        return True


@SLOW
@pytest.mark.parametrize("kind", a_few([DQN, SAC], DQN))
def test_a_run_depends_on_the_seed_alone_and_resumes_at_any_tick(kind: Any, tmp_path: Path) -> None:
    kwargs = SMALL if kind is SAC else {**SMALL, "prioritized_replay": True, "normalize_observations": True}
    envs = [Ledger, partial(Ledger, pause=0.0005)]
    whole = kind("MlpPolicy", envs, actors="overlapped", **kwargs).learn(160, SaveAt(tmp_path))
    undisturbed = kind("MlpPolicy", envs, actors="overlapped", **kwargs).learn(160)
    assert differences(whole, undisturbed) == []
    assert whole.statistics.ep_success_buffer == undisturbed.statistics.ep_success_buffer
    count, cuts = check_rows(whole.replay.ring) if kind is DQN else (160, 0)
    assert count >= 150
    assert cuts == 0
    for file in sorted(tmp_path.glob("*.zip")):
        assert differences(whole, kind.load(file, env=[Ledger, Ledger]).resume()) == []
    inline = kind("MlpPolicy", envs, **kwargs).learn(160)
    assert differences(whole, inline) != []  # the learner lacks the newest arrival


@SLOW
def test_the_environment_steps_while_the_learner_learns() -> None:
    class Busy(DQN):
        def gradient_step(self) -> Any:
            time.sleep(0.02)
            return super().gradient_step()

    def seconds(actors: Any) -> float:
        model = Busy("MlpPolicy", partial(Ledger, pause=0.02), actors=actors, **{**SMALL, "train_freq": 1})
        model.learn(21)
        start = time.monotonic()
        model.learn(30, reset_num_timesteps=False)
        return time.monotonic() - start

    assert seconds("overlapped") < 0.8 * seconds(None)  # half, but for what the machine does meanwhile


def test_an_error_of_the_environment_reaches_the_user_and_the_model_stays_usable() -> None:
    model: Any = DQN("MlpPolicy", partial(Ledger, "raises", 40), actors="overlapped", **SMALL)
    with pytest.raises(EnvironmentFault, match="the door is locked"):
        model.learn(100)
    assert 35 <= model.num_timesteps < 40
    model.set_env(Ledger)
    model.learn(50, reset_num_timesteps=False)
    assert check_valid(model.replay.ring) == (True, "valid")


EXITING = """
import sys, time
from pathlib import Path
from sb_dqn import DQN
from tests.toy_actors import toy_actor, toy_control
from tests.actors.games import Ledger

class Noted(Ledger):
    def step(self, action):
        with Path(sys.argv[1]).open("a") as file:
            file.write("begun\\n")
        time.sleep(0.2)
        with Path(sys.argv[1]).open("a") as file:
            file.write("done\\n")
        return super().step(action)

DQN("MlpPolicy", Noted, actors="overlapped", device="cpu").learn(3)
"""


@SLOW
def test_a_step_under_way_ends_before_the_process_does(tmp_path: Path) -> None:
    """Emulators in C++ would abort it."""
    steps = tmp_path / "steps.txt"
    done = subprocess.run([sys.executable, "-c", EXITING, str(steps)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = steps.read_text().splitlines()
    assert lines.count("begun") == lines.count("done") >= 3


class Reusing(VectorEnv[Any, Any, Any]):
    """Counts its steps, in arrays that the next step overwrites."""

    def __init__(self) -> None:
        self.num_envs = 2
        self.single_observation_space, self.single_action_space = spaces.Box(0, 1e6, (20_000,)), spaces.Discrete(2)
        self.observation_space, self.action_space = spaces.Box(0, 1e6, (2, 20_000)), spaces.MultiDiscrete([2, 2])
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self.obs, self.reward = np.zeros((2, 20_000), np.float32), np.zeros(2, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.obs[:] = 0
        return self.obs, {}

    def step(self, actions: Any) -> Any:
        self.obs += 1
        self.reward[:] = self.obs[:, 0]
        actions[:] = 7
        return self.obs, self.reward, np.zeros(2, bool), np.zeros(2, bool), {}


@pytest.mark.parametrize("actors", [None, "overlapped"])
def test_an_environment_may_reuse_its_arrays_and_change_its_actions(actors: Any) -> None:
    model = DQN(
        "MlpPolicy",
        Reusing(),
        actors=actors,
        buffer_size=100,
        learning_starts=1_000,
        seed=0,
        policy_kwargs={"net_arch": [2]},
    )
    model.learn(60)
    ring = model.replay.ring
    counted = np.arange(30, dtype=np.float32)
    for lane in range(2):
        stored = ring.obs["obs"].view(-1, 2, 20_000)[:30, lane].numpy()
        np.testing.assert_array_equal(stored, np.broadcast_to(counted[:, None], stored.shape))
    assert int(ring.action.max()) == 1


def test_groups_must_not_share_an_environment() -> None:
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ConfigurationError, match="each factory must make its own environment"):
        DQN("MlpPolicy", lambda: env, actors=OverlappedActors(groups=2), **SMALL)
