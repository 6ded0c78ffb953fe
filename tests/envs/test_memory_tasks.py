"""The T-maze and CartPole without velocities: registration, seeds, observations and rewards."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sb_dqn.envs import make_vec_env
from sb_dqn.envs.memory_tasks import AHEAD, DOWN, UP, TMaze
from sb_dqn.errors import ConfigurationError


@pytest.mark.parametrize("env_id", ["sb_dqn/TMaze-v0", "sb_dqn/CartPoleNoVelocity-v0"])
def test_ids_are_registered_with_gymnasium(env_id: str) -> None:
    env = make_vec_env(env_id, 3, seed=0)
    obs, _ = env.reset()
    assert obs.shape[0] == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bounds that are infinite, as CartPole's are
        check_env(gymnasium.make(env_id).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("corridor", [1, 5, 20])
def test_the_sign_is_observed_only_at_the_start(corridor: int) -> None:
    env = TMaze(corridor)
    signs = set()
    for seed in range(12):
        obs, _ = env.reset(seed=seed)
        sign = UP if obs[0] else DOWN
        signs.add(sign)
        assert obs.tolist() == [sign == UP, sign == DOWN, False, True]
        for place in range(1, corridor + 1):
            obs, reward, terminated, truncated, _ = env.step(AHEAD)
            assert (obs.tolist(), reward, terminated, truncated) == ([0, 0, place == corridor, 1], 0.0, False, False)
        _, reward, terminated, _, info = env.step(sign if seed % 2 else UP + DOWN - sign)
        assert terminated
        assert (reward, info["is_success"]) == ((4.0, True) if seed % 2 else (-0.1, False))
    assert signs == {UP, DOWN}


def test_early_turns_do_not_move_and_the_episode_is_truncated() -> None:
    env = TMaze(3)
    env.reset(seed=0)
    for step in range(1, 17):
        _, reward, terminated, truncated, _ = env.step(UP)
        assert (reward, terminated, truncated) == (-0.1, False, step == 16)


def test_the_same_seed_gives_the_same_signs() -> None:
    def signs(seed: int) -> list[Any]:
        env = TMaze()
        return [env.reset(seed=seed if n == 0 else None)[0].tolist() for n in range(20)]

    assert signs(3) == signs(3)
    assert signs(3) != signs(4)


def test_velocities_are_hidden() -> None:
    hidden, whole = gymnasium.make("sb_dqn/CartPoleNoVelocity-v0"), gymnasium.make("CartPole-v1")
    seen, all_of_it = hidden.reset(seed=5)[0], whole.reset(seed=5)[0]
    for action in (0, 1, 1, 0):
        np.testing.assert_array_equal(seen, all_of_it[[0, 2]])
        seen, all_of_it = hidden.step(action)[0], whole.step(action)[0]
    assert hidden.spec is not None
    assert hidden.spec.max_episode_steps == 500


def test_a_corridor_without_steps_raises() -> None:
    with pytest.raises(ConfigurationError, match="corridor must be an integer >= 1, got 0"):
        TMaze(0)


def test_render() -> None:
    env = TMaze(4, render_mode="ansi")
    env.reset(seed=0)
    env.step(AHEAD)
    assert env.render()[1:] == " .@..|"
