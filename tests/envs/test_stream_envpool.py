"""EnvPool, where it is installed."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from sb_dqn.actors.lanes import open_lanes
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.cpp_vector import EnvPoolStream
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError

envpool: Any = pytest.importorskip("envpool", reason="EnvPool is a peer, installed by the bench extra")
pytestmark = pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision.*:UserWarning")


def test_cartpole_rows_are_those_of_the_env_itself() -> None:
    stream = open_stream(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=3))
    twin = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=3)
    rows, (obs, _), statistics = stream.begin(), twin.reset(), EpisodeStatistics(3)
    last, resets = np.zeros(3, bool), 0
    for tick in range(150):
        slot = rows.slots[0]
        assert np.array_equal(slot.obs["obs"], obs)
        assert slot.last.tolist() == last.tolist()
        resets += int((~rows.stepped).sum()) if tick else 0
        statistics.update(rows)
        action = np.array([0, 1, tick % 2])
        rows = stream.step(action)
        obs, _, terminated, truncated, _ = twin.step(action)
        last = terminated | truncated
    assert resets > 10
    assert statistics.num_episodes >= resets
    assert statistics.mean_return == statistics.mean_length
    with pytest.raises(SpaceError, match="action in lane 1 .*got 2"):
        stream.step(np.array([0, 2, 0]))  # EnvPool itself would take it in silence


def test_lives_and_raw_scores_of_atari() -> None:
    env = envpool.make("Breakout-v5", env_type="gymnasium", num_envs=2, seed=1, reward_clip=True, stack_num=1)
    stream = open_stream(env, frame_stack=4, options=StreamOptions(clip_reward=True, terminal_on_life_loss=True))
    assert stream.blueprint.observation_space.shape == (4, 84, 84)
    rows = stream.begin()
    lost = 0
    for tick in range(200):
        rows = stream.step(np.array([tick % 4, 2]))
        lost += int((rows.slots[0].terminal & ~rows.slots[0].last).sum())
    assert lost > 2


def test_a_process_opens_all_lanes_of_one_factory() -> None:
    stream = open_lanes(partial(envpool.make, "CartPole-v1", env_type="gymnasium", num_envs=2, seed=3), 2, None)
    assert isinstance(stream, EnvPoolStream)
    assert stream.num_envs == 2


def test_a_seed_after_construction_warns() -> None:
    stream = open_stream(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=1, seed=3))
    stream.begin(3)
    with pytest.warns(UserWarning, match="seeded only at construction.*seed=4"):
        stream.begin(4)


def test_unsupported_settings_raise() -> None:
    with pytest.raises(ConfigurationError, match="env_type='gymnasium'"):
        open_stream(envpool.make("CartPole-v1", env_type="dm", num_envs=1))
    with pytest.raises(ConfigurationError, match="Leave batch_size out"):
        open_stream(envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, batch_size=2))
    with pytest.warns(UserWarning, match="counts each life as an episode"):
        open_stream(envpool.make("Breakout-v5", env_type="gymnasium", num_envs=1, episodic_life=True))


def test_masks_in_the_info() -> None:
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=3)
    legal, step, reset = np.array([[1, 0], [0, 1], [1, 1]], np.int8), env.step, env.reset

    def with_masks(result: Any) -> Any:
        *rest, info = result
        return *rest, {**info, "action_mask": legal}

    env.step, env.reset = lambda action: with_masks(step(action)), lambda: with_masks(reset())
    stream = open_stream(env, action_mask="info")
    rows = stream.begin()
    for _ in range(30):
        assert rows.slots[0].mask is not None
        assert np.array_equal(rows.slots[0].mask, legal.astype(bool))
        rows = stream.step(np.array([0, 1, 1]))
    legal[1, 1] = 0
    with pytest.raises(EnvironmentFault, match="lane 1 at step 31 must allow an action"):
        while True:
            stream.step(np.array([0, 1, 1]))
