"""Wrappers of Stable-Baselines3: supported around a `VecEnv`, an error around a gymnasium vector env."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import make_atari_env, make_vec_env
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError
from tests.tiny import quick

peer = pytest.importorskip("stable_baselines3.common.vec_env", reason="the peer, installed by the test extra")

make_cartpole = partial(make_vec_env, "CartPole-v1", 2)
WAYS = {
    "VecNormalize": "normalize_observations=True*",
    "VecMonitor": "make_vec_env(..., monitor_dir=...) *",
    "VecCheckNan": "leave the wrappers out.",
    "VecFrameStack": "make_vec_env(*wrapper_class=gymnasium.wrappers.FrameStackObservation, *'stack_size': 4*",
}


def wrapped(name: str, env: Any) -> Any:
    return peer.VecFrameStack(env, 4) if name == "VecFrameStack" else getattr(peer, name)(env)


@pytest.mark.parametrize(
    ("backend", "kind"),
    [("lanes", "Lanes"), ("sync", "SyncLanes"), ("async", "WorkerLanes"), ("vector", "CartPoleVectorEnv")],
)
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.filterwarnings("ignore:The `render_mode` attribute:UserWarning")  # the peer's, of "vector"
def test_around_a_gymnasium_vector_env_the_error_names_replacements(name: str, backend: str, kind: str) -> None:
    env = make_cartpole(vec_env_cls=backend)
    with pytest.raises(ConfigurationError) as refusal:
        quick(wrapped(name, env))
    expected = f"*must be around a VecEnv, got {name}({kind}), *make_vec_env(..., vec_env_cls=*DummyVecEnv*{WAYS[name]}"
    assert fnmatchcase(str(refusal.value), expected)
    env.close()


@pytest.mark.filterwarnings("ignore:The `render_mode` attribute:UserWarning")
def test_around_atari_lanes_the_error_names_the_models_frame_stack() -> None:
    env = make_atari_env("ALE/Pong-v5", 2)
    with pytest.raises(ConfigurationError, match=r"got VecFrameStack\(AtariLanes\), .* the model stacks 4 frames "):
        open_stream(wrapped("VecFrameStack", env))
    env.close()


def test_several_wrappers_are_named_from_outside_in() -> None:
    env = peer.VecCheckNan(peer.VecMonitor(peer.VecNormalize(make_cartpole())))
    with pytest.raises(ConfigurationError, match=r"got VecCheckNan\(VecMonitor\(VecNormalize\(Lanes\)\)\), "):
        open_stream(env)


def test_around_a_vec_env_they_are_supported() -> None:
    stream = open_stream(peer.VecFrameStack(peer.VecNormalize(make_cartpole(vec_env_cls=peer.DummyVecEnv)), 4))
    assert stream.blueprint.observation_space.shape == (16,)
    stream.begin(0)
    assert stream.step(np.zeros(2, np.int64)).steps == 2


class Numbered(gymnasium.Env[Any, Any]):
    """Environment with the number of its lane as attribute."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("backend", ["lanes", "sync", "async", "restart"])
def test_attributes_of_some_lanes(backend: str) -> None:
    numbers = iter(range(10, 13))
    restarts = {"on_env_error": "restart"} if backend == "restart" else {}
    backend = "async" if restarts else backend
    env = make_vec_env(lambda: Numbered(next(numbers)), 3, vec_env_cls=backend, vec_env_kwargs=restarts)
    all_lanes = (10, 11, 12) if backend == "lanes" else env.get_attr("number")
    assert env.get_attr("number") == env.get_attr("number", None) == all_lanes
    assert env.get_attr("number", [2, 0]) == (all_lanes[2], all_lanes[0])
    assert env.get_attr("number", indices=1) == (all_lanes[1],)
    with pytest.raises(ConfigurationError, match="indices must be numbers of lanes from 0 to 2, got 3. Leave"):
        env.get_attr("number", 3)
    env.close()
