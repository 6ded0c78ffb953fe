"""`callback.training_env` answers as Stable-Baselines3's does, and as gymnasium's vector environments do beside that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from sb_dqn import DQN, evaluate_policy, make_atari_env, make_vec_env
from sb_dqn.actors import OverlappedActors
from sb_dqn.callbacks import BaseCallback
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError
from tests.tiny import Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")

SINGLE = gymnasium.make("CartPole-v1")


class Levelled(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole with an attribute and a method of its own."""

    def __init__(self, env: Any = None) -> None:
        super().__init__(env or gymnasium.make("CartPole-v1"))
        self.level, self.names = 1, [""]
        self.calls = 0

    def raised(self, by: int) -> int:
        self.calls += 1
        return int(self.level) + by


class Looks(BaseCallback):
    """Hands its `training_env` to a function in the first step, then stops."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        super().__init__()
        self.look = look

    def _on_step(self) -> bool:
        self.seen = self.look(self.training_env)
        return False


def seen_by(env: Any, look: Callable[[Any], Any]) -> Any:
    callback = Looks(look)
    quick(env).learn(10, callback=callback)
    return callback.seen


def as_sb3_programs_use_it(env: Any) -> Any:
    env.set_attr("level", 5)
    env.set_attr("names", ["left", "right"])  # one list for all
    env.set_attr("level", 7, indices=[1])
    return (
        env.observation_space,
        env.action_space,
        env.num_envs,
        env.get_attr("level"),
        env.get_attr("level", 0),
        env.get_attr("names"),
        env.env_method("raised", 2, indices=[0]),
        env.env_method("raised", by=3, indices=0),
        env.get_attr("calls", indices=[0, 1]),
        [method(1) for method in env.get_attr("raised")],
    )


def test_it_answers_as_stable_baselines3s_does() -> None:
    sb3 = pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
    from stable_baselines3.common.callbacks import BaseCallback as Theirs
    from stable_baselines3.common.vec_env import DummyVecEnv

    class Peer(Theirs):
        def _on_step(self) -> bool:
            self.seen = as_sb3_programs_use_it(self.training_env)
            return False

    theirs = Peer()
    sb3.DQN("MlpPolicy", DummyVecEnv([Levelled, Levelled]), device="cpu").learn(10, callback=theirs)
    for env in ([Levelled, Levelled], make_vec_env(Levelled, 2, vec_env_cls="sync"), DummyVecEnv([Levelled, Levelled])):
        ours = seen_by(env, as_sb3_programs_use_it)
        assert ours == theirs.seen
        assert ours[3:] == ([5, 7], [5], [["left", "right"]] * 2, [7], [8], [2, 0], [6, 8])


@pytest.mark.parametrize(
    ("env", "lanes"),
    [
        ("CartPole-v1", 1),
        (gymnasium.make("CartPole-v1"), 1),
        (lambda: make_vec_env("CartPole-v1", 2, vec_env_cls="vector"), 2),
        (lambda: make_vec_env("CartPole-v1", 2, vec_env_cls="async"), 2),
    ],
)
def test_its_spaces_are_those_of_one_lane(env: Any, lanes: int) -> None:
    made = env() if callable(env) else env

    def look(env: Any) -> Any:
        assert env.single_observation_space == env.observation_space  # gymnasium's name for the same
        assert env.unwrapped.observation_space.shape == (lanes, 4)
        return env.observation_space, env.action_space, env.num_envs

    assert seen_by(made, look) == (SINGLE.observation_space, SINGLE.action_space, lanes)
    if lanes > 1:
        made.close()


def test_of_atari_they_are_those_of_one_game() -> None:
    callback = Looks(lambda env: (env.observation_space.shape, env.action_space.n))
    DQN("CnnPolicy", make_atari_env("ALE/Pong-v5", 2), buffer_size=500).learn(4, callback=callback)
    assert callback.seen == ((1, 84, 84), 6)


def test_gymnasiums_names_answer_as_before() -> None:
    def look(env: Any) -> Any:
        assert env.call("raised", 1) == (2, 2)
        assert len(env.envs) == 2
        env.note = "kept"
        with pytest.raises(AttributeError, match="'Lanes' object has no attribute 'nonsense'"):
            _ = env.nonsense
        return env.note

    env = make_vec_env(Levelled, 2)
    assert seen_by(env, look) == "kept"
    assert env.note == "kept"
    assert env.observation_space.shape == (2, 4)  # what the user holds is gymnasium's


def test_lanes_that_are_not_there_and_lanes_of_processes_are_refused() -> None:
    def absent(env: Any) -> None:
        for ask in (env.get_attr, env.env_method):
            with pytest.raises(ConfigurationError, match="indices must be numbers of lanes from 0 to 1, got 2"):
                ask("raised", indices=[2])

    seen_by([Levelled, Levelled], absent)

    def processes(env: Any) -> None:
        assert env.env_method("raised", 1) == [2, 2]
        with pytest.raises(ConfigurationError, match="indices must be None for a WorkerLanes.*vec_env_cls='lanes'"):
            env.env_method("raised", 1, indices=[0])

    env = make_vec_env(Levelled, 2, vec_env_cls="async")
    seen_by(env, processes)
    env.close()


def test_it_is_an_environment_like_any_other() -> None:
    callback = Looks(lambda env: env)
    model = quick([Tiny, Tiny])
    model.learn(10, callback=callback)
    assert open_stream(callback.seen).env is model.get_env()

    def evaluate(env: Any) -> None:
        with pytest.raises(ConfigurationError, match="the one that the model is learning on"):
            evaluate_policy(model, env, 1)

    model.learn(10, callback=Looks(evaluate))
    assert np.isfinite(evaluate_policy(model, callback.seen, 1, warn=False)[0])


def test_lanes_of_actors_have_a_number_but_cannot_be_reached() -> None:
    found: list[Any] = []

    def look(env: Any) -> None:
        found.append((env.num_envs, env.action_space))
        with pytest.raises(ConfigurationError, match="must have get_attr"):
            env.get_attr("level")

    model = DQN("MlpPolicy", "CartPole-v1", actors=OverlappedActors(groups=2), buffer_size=100)
    model.learn(4, callback=Looks(look))
    assert found == [(2, SINGLE.action_space)]


def test_lanes_of_restarted_workers_are_reached() -> None:
    env = make_vec_env(Levelled, 2, vec_env_cls="async", vec_env_kwargs={"on_env_error": "restart"})
    env.set_attr("level", [3, 4])
    assert env.get_attr("level") == (3, 4)
    assert env.call("raised", 2) == (5, 6)
    env.close()
