"""`Lanes`: behavior of gymnasium's SyncVectorEnv, and the seed of the first reset."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.spaces import flatten_observation
from tests.toys import OBSERVATIONS, ToyGame, batched


def same(left: Any, right: Any) -> bool:
    a, b = flatten_observation(left, ()), flatten_observation(right, ())
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) and a[key].dtype == b[key].dtype for key in a)


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_results_equal_those_of_sync_vector_env(kind: str) -> None:
    ours: Any = Lanes([partial(ToyGame, lane, 5, kind) for lane in range(3)])
    theirs: Any = SyncVectorEnv([partial(ToyGame, lane, 5, kind) for lane in range(3)])
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert same(ours.reset()[0], theirs.reset()[0])
    rng = np.random.default_rng(0)
    for _ in range(100):
        actions = rng.integers(2, 6, 3)
        mine, other = ours.step(actions), theirs.step(actions)
        assert same(mine[0], other[0])
        for left, right in zip(mine[1:4], other[1:4], strict=True):
            assert np.array_equal(left, right)
            assert left.dtype == right.dtype
        assert mine[4].keys() == other[4].keys()
        assert np.array_equal(mine[4]["lives"], other[4]["lives"])


def test_seeds_count_up_over_the_lanes_and_the_first_one_is_used_once() -> None:
    env = Lanes([lambda: gymnasium.make("CartPole-v1")] * 3, seed=11)
    first, _ = env.reset()
    singles = [gymnasium.make("CartPole-v1").reset(seed=11 + lane)[0] for lane in range(3)]
    assert np.array_equal(first, batched(singles))
    assert not np.array_equal(env.reset()[0], first)
    assert np.array_equal(env.reset(seed=[11, 12, 13])[0], first)
    with pytest.raises(ConfigurationError, match="one seed for each of 3 lanes, got 2"):
        env.reset(seed=[1, 2])


def test_the_stream_uses_its_seed_once() -> None:
    stream = open_stream("CartPole-v1", num_envs=2, seed=11)
    first = stream.begin().slots[0].obs["obs"].copy()
    assert not np.array_equal(stream.begin().slots[0].obs["obs"], first)
    assert np.array_equal(stream.begin(11).slots[0].obs["obs"], first)


def test_illegal_actions_raise_with_their_lane() -> None:
    env = Lanes([ToyGame, ToyGame])
    env.reset()
    with pytest.raises(SpaceError, match="action in lane 1 must be in .*got .*7"):
        env.step(np.array([2, 7]))
    with pytest.raises(SpaceError, match="one for each of 2 lanes, got 1"):
        env.step(np.array([2]))


def test_observations_of_the_previous_tick_do_not_change() -> None:
    stream = open_stream("CartPole-v1", num_envs=2, seed=0)
    before = stream.begin().slots[0].obs["obs"]
    kept = before.copy()
    stream.step(np.array([0, 1]))
    assert np.array_equal(before, kept)


def test_closing_and_rendering_reach_every_lane() -> None:
    closed = []

    class Closes(ToyGame):
        def render(self) -> Any:
            return np.full((2, 2, 3), self.lane, np.uint8)

        def close(self) -> None:
            closed.append(self.lane)

    env = Lanes([lambda: Closes(0), lambda: Closes(1)])
    pictures = env.render()
    assert pictures is not None
    assert [int(picture.max()) for picture in pictures] == [0, 1]
    open_stream(env).close()
    assert closed == [0, 1]


def test_methods_and_attributes_like_gymnasiums_vector_envs() -> None:
    makes = [lambda: gymnasium.make("CartPole-v1")] * 2
    made: list[Any] = [Lanes(makes), SyncVectorEnv(makes)]
    for env in made:
        env.set_attr("gravity", 3.0)
        env.set_attr("length", [0.1, 0.2])
        assert (env.get_attr("gravity"), env.get_attr("length")) == ((3.0, 3.0), (0.1, 0.2))
        assert env.call("has_wrapper_attr", "nonsense") == (False, False)
        assert env.envs[0].unwrapped.gravity == 3.0
        with pytest.raises(ValueError, match="one for each of 2 lanes|length"):
            env.set_attr("gravity", [1.0])
        env.close()


def test_deleting_lanes_leaves_the_environments_of_a_user_open(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: Any = Lanes([ToyGame])
    monkeypatch.setattr(lanes, "close", pytest.fail)
    lanes.__del__()  # gymnasium before 1.3 calls close in it
