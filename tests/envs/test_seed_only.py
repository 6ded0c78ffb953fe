"""Environments whose `reset` accepts a seed but no options, as Stable-Baselines3 supports them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from sb_dqn import DQN, evaluate_policy, make_vec_env
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.env_state import layers_state
from sb_dqn.envs.vector.seed_only import with_reset_options
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import EnvironmentFault
from tests.tiny import quick

pytestmark = pytest.mark.usefixtures("eagerly")


class SeedAlone(gymnasium.Env[Any, Any]):
    """Environment without `options`: episodes end with probability 0.2, first observations depend on the seed."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]  # the subject
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, bool(self.np_random.random() < 0.2), False, {}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


@pytest.mark.parametrize(
    "make",
    [
        SeedAlone,
        lambda: [SeedAlone, SeedAlone],
        lambda: make_vec_env(SeedAlone, 2),
        lambda: make_vec_env(SeedAlone, 2, monitor_kwargs={}),
        lambda: make_vec_env(SeedAlone, 2, wrapper_class=TimeLimit, wrapper_kwargs={"max_episode_steps": 5}),
        lambda: make_vec_env(SeedAlone, 2, vec_env_cls="sync"),
    ],
)
def test_it_trains_and_is_evaluated(make: Callable[[], Any]) -> None:
    model = quick(make()).learn(60)
    assert model.num_timesteps >= 60
    mean, _ = evaluate_policy(model, make(), n_eval_episodes=2)
    assert np.mean(mean) >= 1


def test_processes_run_it() -> None:
    stream = open_stream(make_vec_env(SeedAlone, 2, vec_env_cls="async"))
    rows = stream.begin(3)
    mine = open_stream([SeedAlone, SeedAlone]).begin(3)
    assert np.array_equal(rows.slots[0].obs["obs"], mine.slots[0].obs["obs"])
    stream.close()


def test_its_full_checkpoints_resume_exactly(tmp_path: Path) -> None:
    model = quick(make_vec_env(SeedAlone, 1), seed=0)
    model.learn(60, callback=CheckpointCallback(40, tmp_path, full=True))
    resumed = DQN.load(tmp_path / "rl_model_40_steps", env=make_vec_env(SeedAlone, 1)).resume()
    assert resumed.num_timesteps == 60
    for name, parameter in resumed.policy.state_dict().items():
        assert parameter.equal(model.policy.state_dict()[name])


def test_files_store_the_wrapper_under_its_first_name() -> None:
    state = layers_state(with_reset_options(SeedAlone()))
    assert [layer["class"] for layer in state] == ["sb_dqn.envs.seed_only:SeedOnly", f"{__name__}:SeedAlone"]


def test_options_reach_environments_that_accept_them() -> None:
    class Taking(SeedAlone):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.options = options
            return super().reset(seed)

    env = make_vec_env(Taking, 1)
    env.reset(options={"level": 3})
    assert env.get_attr("options") == ({"level": 3},)


@pytest.mark.parametrize("make", [partial(Lanes, [SeedAlone]), partial(make_vec_env, SeedAlone)])
def test_options_that_it_does_not_accept_raise(make: Callable[[], Any]) -> None:
    with pytest.raises(EnvironmentFault, match=r"unexpected keyword argument 'options'; gymnasium's reset\("):
        make().reset(options={"level": 3})
