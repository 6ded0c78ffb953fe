"""What learning cannot work with is warned of once, in the first `learn`; no preset is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RescaleAction, TransformObservation, TransformReward

from sb_dqn.algorithms import DQN, PPO, SAC
from sb_dqn.diagnosis.first_learn import FirstLearn
from sb_dqn.envs.by_id import open_env, policy_alias
from sb_dqn.errors import ConfigurationError
from sb_dqn.presets import list_presets
from sb_dqn.presets.catalogue import Preset
from sb_dqn.runs.settings_syntax import algorithm_class
from sb_dqn.types import Blueprint
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, quick

pytestmark = [pytest.mark.filterwarnings("error:learning may fail"), pytest.mark.usefixtures("eagerly")]
CARTPOLE = "CartPole-v1"


def observed(change: Callable[[Any], Any], high: float = np.inf, shape: tuple[int, ...] = (4,)) -> Any:
    return TransformObservation(gymnasium.make(CARTPOLE), change, spaces.Box(-high, high, shape, np.float32))


def rewarded(factor: float) -> Any:
    return TransformReward(gymnasium.make(CARTPOLE), lambda reward: factor * float(reward))


def from_0_to_1() -> Any:
    return RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(0), np.float32(1))


def ppo(env: Any, **settings: Any) -> Any:
    return PPO("MlpPolicy", env, n_steps=64, n_epochs=1, seed=0, device="cpu", **settings)


FAULTS: dict[str, tuple[Callable[[], Any], int]] = {
    r"target_update_interval must be below the 700 env steps of this run, got 700: .* Lower it, for example to 14\.": (
        lambda: quick(CARTPOLE, target_update_interval=700, train_freq=1),
        700,
    ),
    r"target_update_interval must be below the 700 env steps of this run, got 700: the target head is never copied\.": (
        lambda: quick(CARTPOLE, target_update_interval=700, train_freq=1, target="shared"),
        700,
    ),
    r"target_update_interval must be below the 590 updates": (
        lambda: quick("Pendulum-v1", algorithm=SAC, target_update_interval=2_000, policy_kwargs={"net_arch": [4]}),
        600,
    ),
    r"learning_rate must be at most 0\.1, got 0\.2\.": (lambda: quick(CARTPOLE, learning_rate=0.2), 50),
    r"bounds of the actions must be symmetric around 0, .*Box\(0\.0, 1\.0": (
        lambda: ppo(from_0_to_1()),
        64,
    ),
    r"observations must be within their space, got 'obs' from -\d.* in Box\(-0\.01": (
        lambda: quick(observed(lambda obs: obs, high=0.01)),
        150,
    ),
    r"observations must be within their space, got 'obs' from -\d.* in Box\(-0\.01, 0\.01, \(\)": (
        lambda: quick(observed(lambda obs: np.asarray(obs[1]), high=0.01, shape=())),
        150,
    ),
    r"observations must be around 1, got entries of a mean size of \d": (
        lambda: quick(observed(lambda obs: obs * np.float32(1e4))),
        150,
    ),
    r"rewards must be around 1, got 5,000\. Set normalize_rewards=True": (lambda: ppo(rewarded(-5_000.0)), 150),
    r"episodes must end, got none that did within 1,\d00 steps": (
        lambda: quick(Tiny(length=10**9), train_freq=50),
        1_200,
    ),
}


@SLOW
@pytest.mark.parametrize("message", FAULTS)
def test_a_fault_is_warned_of_once_where_learn_was_called(message: str) -> None:
    make, steps = FAULTS[message]
    model = make()
    is_setting = message.startswith(("target", "learning_rate", "bounds"))  # which is known before the first step
    with pytest.warns(UserWarning, match=f"learning may fail: {message}") as seen:
        model.learn(steps, callback=(lambda *_: False) if is_setting else None)
    assert [str(one.message)[:18] for one in seen] == ["learning may fail:"], "it is the only fault"
    assert seen[0].filename == __file__
    model.learn(100, reset_num_timesteps=False)  # a second warning would be an error


SOUND: dict[str, tuple[Callable[[], Any], int]] = {
    "one copy of the target before the end": (lambda: quick(CARTPOLE, target_update_interval=600, train_freq=1), 700),
    "few updates, as in a first try": (lambda: quick(CARTPOLE, target_update_interval=10_000, train_freq=4), 700),
    "large observations, normalized": (
        lambda: quick(observed(lambda obs: obs * np.float32(1e4)), normalize_observations=True),
        150,
    ),
    "large rewards, normalized": (lambda: ppo(rewarded(5_000.0), normalize_rewards=True), 150),
    "asymmetric bounds of a squashed policy": (
        lambda: ppo(from_0_to_1(), policy_kwargs={"squash_output": True}),
        64,
    ),
    "a time limit beyond the run": (
        lambda: quick(gymnasium.wrappers.TimeLimit(gymnasium.make("MountainCar-v0").unwrapped, 5_000), train_freq=50),
        1_200,
    ),
}


@SLOW
@pytest.mark.parametrize("run", SOUND)
def test_what_only_looks_like_a_fault_is_not_warned_of(run: str) -> None:
    make, steps = SOUND[run]
    make().learn(steps, callback=(lambda *_: False) if "target" in run or "updates" in run else None)


@pytest.mark.parametrize("norm_obs", [True, False])
def test_observations_that_vec_normalize_scales_may_leave_their_space(norm_obs: bool) -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="VecNormalize is its wrapper")
    env = vec_env.DummyVecEnv([lambda: observed(lambda obs: obs, high=0.01)])
    model = ppo(vec_env.VecNormalize(env, norm_obs=norm_obs, norm_reward=False))
    if norm_obs:
        model.learn(150)
    else:
        with pytest.warns(UserWarning, match="observations must be within their space"):
            model.learn(150)


ENVS = {
    "ALE/*": "ALE/Pong-v5",
    "*NoFrameskip-v4": "PongNoFrameskip-v4",
    "MinAtar/*": "MinAtar/Breakout-v1",
    "tmaze-50": "sb_dqn/TMaze-v0",
    "bbf-vectors": "LunarLander-v3",
    "minatar-100k": "MinAtar/Breakout-v1",
}
"""An environment for each pattern; other entries that are no environment are for Pong, one of them for CartPole."""


def env_of(preset: Preset) -> str:
    return ENVS.get(preset.name) or (
        preset.name if "-v" in preset.name else CARTPOLE if "cartpole" in preset.name else "ALE/Pong-v5"
    )


@cache
def blueprint(env: str, kwargs: tuple[tuple[str, Any], ...]) -> Blueprint:
    try:
        with closing(open_env(env, 1, dict(kwargs))) as stream:
            return stream.blueprint
    except ConfigurationError as error:
        if "Run pip install" not in str(error):
            raise
        pytest.skip(str(error))


PRESETS = {f"{preset.algorithm} {preset.name}": preset for preset in list_presets()}
SMALL = [name for name in PRESETS if env_of(PRESETS[name]) in (CARTPOLE, "LunarLander-v3", "Pendulum-v1", "Acrobot-v1")]


@pytest.mark.parametrize("name", a_few(PRESETS, *SMALL))
def test_no_preset_is_warned_of_before_its_run(name: str) -> None:
    preset = PRESETS[name]
    settings = {key: value for key, value in preset.settings.items() if key != "actors"}
    spaces_of = blueprint(env_of(preset), tuple(preset.env_kwargs.items()))
    model = algorithm_class(preset.algorithm)(preset.policy, spaces_of, **settings, seed=0, device="cpu")
    FirstLearn().check_settings(model, preset.n_timesteps)


@pytest.mark.parametrize(
    "env", a_few(sorted({env_of(preset) for preset in PRESETS.values()}), CARTPOLE, "LunarLander-v3")
)
def test_no_environment_of_a_preset_is_warned_of(env: str) -> None:
    space = blueprint(env, ()).action_space
    algorithm: Any = SAC if isinstance(space, gymnasium.spaces.Box) else DQN
    with closing(open_env(env, 2, {})) as stream:
        policy = policy_alias(stream, algorithm.__name__)
        model = algorithm(policy, stream, learning_starts=10**6, buffer_size=2_000, seed=0, device="cpu")
        model.learn(2_100)  # its actions are random
