"""A Tuple observation is learned from as the Dict with the keys "0", "1" and so on, in every kind of environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from sb_dqn import DQN, check_env, evaluate_policy
from sb_dqn.errors import SpaceError
from sb_dqn.spaces import with_dicts
from tests.marks import SLOW
from tests.tiny import quick

BLACKJACK = "Blackjack-v1"
PLACE = spaces.Box(-1, 1, (3,), np.float32)
NESTED = spaces.Dict({"pair": spaces.Tuple([spaces.Discrete(3), spaces.Tuple([PLACE])]), "place": PLACE})


class AsDict(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Blackjack with its three numbers by name."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make(BLACKJACK))
        inner: Any = self.env.observation_space
        self.observation_space = spaces.Dict({str(number): part for number, part in enumerate(inner)})

    def observation(self, observation: Any) -> Any:
        return {str(number): part for number, part in enumerate(observation)}


def as_tuple() -> Any:
    return gymnasium.make(BLACKJACK)


def stable_baselines3(make: Any) -> Any:
    return pytest.importorskip("stable_baselines3.common.vec_env").DummyVecEnv([make, make])


KINDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "environment": lambda make: {"env": make()},
    "lanes": lambda make: {"env": [make, make]},
    "vector": lambda make: {"env": SyncVectorEnv([make, make])},
    "vector, same step": lambda make: {"env": SyncVectorEnv([make, make], autoreset_mode=AutoresetMode.SAME_STEP)},
    "worker processes": lambda make: {"env": AsyncVectorEnv([make, make])},
    "Stable-Baselines3": lambda make: {"env": stable_baselines3(make)},
    "process actors": lambda make: {"env": make, "actors": "process:2x1"},
}


def weights(model: Any) -> Any:
    return torch.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


@SLOW
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_learned_from_as_the_same_dict(kind: str) -> None:
    models = [quick(policy="MultiInputPolicy", seed=3, **KINDS[kind](make)).learn(120) for make in (as_tuple, AsDict)]
    assert models[0].observation_space == models[1].observation_space == AsDict().observation_space
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_predict_evaluate_and_load_take_tuples(tmp_path: Path) -> None:
    model = quick(BLACKJACK, policy="MultiInputPolicy", seed=0)
    model.learn(60)
    one, batch = (14, 10, 1), (np.array([14, 20]), np.array([10, 2]), np.array([1, 0]))
    named = {str(number): part for number, part in enumerate(batch)}
    assert model.q_values(batch).tolist() == model.q_values(named).tolist()
    assert np.allclose(model.q_values(one), model.q_values(batch)[0])
    assert model.predict(batch, deterministic=True)[0].tolist() == model.predict(named, deterministic=True)[0].tolist()
    assert evaluate_policy(model, BLACKJACK, 5) == evaluate_policy(model, AsDict(), 5)
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=BLACKJACK)
    assert loaded.q_values(batch).tolist() == model.q_values(batch).tolist()
    loaded.learn(20)
    with pytest.raises(SpaceError, match="Unpack it: obs, info = env.reset"):
        model.predict(gymnasium.make(BLACKJACK).reset())
    with pytest.raises(SpaceError, match=r"must have the keys \['0', '1', '2'\], got \['0', '1'\]"):
        model.predict((14, 10))


def test_check_env_plays_it() -> None:
    assert check_env(gymnasium.make(BLACKJACK)).steps_per_second > 0


def test_a_space_without_a_tuple_stays_the_same_object() -> None:
    assert with_dicts(PLACE) is PLACE
    outer = spaces.Dict({"a": spaces.Dict({"b": PLACE})})
    assert with_dicts(outer) is outer
    pair = spaces.Dict({"0": spaces.Discrete(3), "1": spaces.Dict({"0": PLACE})})
    assert with_dicts(NESTED) == spaces.Dict({"pair": pair, "place": PLACE})


class Nested(gymnasium.Env[Any, Any]):
    observation_space = NESTED
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 5, False, {}


def test_final_observations_keep_their_structure() -> None:
    finals: list[Any] = []

    def see(names: dict[str, Any], _: object) -> None:
        finals.extend(info["terminal_observation"] for info in names["infos"] if "terminal_observation" in info)

    quick(Nested(), policy="MultiInputPolicy").learn(20, callback=see)
    assert len(finals) == 4
    assert all(NESTED.contains(final) for final in finals)


def test_tuples_of_numbers_are_still_one_vector() -> None:
    model = quick("CartPole-v1", seed=0)
    assert model.predict((0.1, 0.0, 0.2, 0.0), deterministic=True)[0] in (0, 1)
    wrapped = partial(gymnasium.wrappers.TransformObservation, func=tuple, observation_space=None)
    quick(wrapped(gymnasium.make("CartPole-v1"))).learn(60)
