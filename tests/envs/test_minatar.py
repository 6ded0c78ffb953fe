"""MinAtar: spaces, reproducible seeds, rendering, and the error without the package."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest

from sb_dqn.envs.make import make_env, make_vec_env, spec_of
from sb_dqn.envs.minatar import NAMESPACE
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError

GAMES = {"Asterix": (4, 5), "Breakout": (4, 3), "Freeway": (7, 3), "Seaquest": (10, 6), "SpaceInvaders": (6, 4)}
"""Number of channels and of effective actions, by game."""
installed = pytest.mark.skipif(find_spec("minatar") is None, reason="needs the extra minatar")


@pytest.fixture
def unregistered() -> Iterator[None]:
    """Restores the registry of a new process."""
    taken = {name: gymnasium.registry.pop(name) for name in list(gymnasium.registry) if name.startswith(NAMESPACE)}
    yield
    gymnasium.registry.update(taken)


def tape(env: Any, seed: int, steps: int = 400) -> list[Any]:
    """Returns all results of fixed actions after a seeded reset, over several episodes."""
    actions = np.random.default_rng(9).integers(env.action_space.n, size=steps)
    results = [env.reset(seed=seed)[0].tobytes()]
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(int(action))
        results.append((observation.tobytes(), float(reward), bool(terminated), bool(truncated)))
        if terminated:
            results.append(env.reset()[0].tobytes())
    return results


@installed
@pytest.mark.parametrize("game", GAMES)
def test_spaces_and_both_action_sets(game: str) -> None:
    channels, actions = GAMES[game]
    for version, expected in ((0, 6), (1, actions)):
        env = make_env(f"MinAtar/{game}-v{version}", {})
        assert isinstance(env.action_space, gymnasium.spaces.Discrete)
        assert env.action_space.n == expected
        assert (env.observation_space.shape, env.observation_space.dtype) == ((10, 10, channels), np.dtype(bool))


@installed
@pytest.mark.parametrize("game", GAMES)
def test_the_same_seed_gives_the_same_games_in_a_fresh_env_and_in_a_used_one(game: str) -> None:
    used = make_env(f"MinAtar/{game}-v1", {})
    first = tape(used, seed=5)
    used.step(2)  # what a sticky step would repeat, were it kept
    assert tape(used, seed=5) == first == tape(make_env(f"MinAtar/{game}-v1", {}), seed=5)
    assert tape(used, seed=6) != first


@installed
def test_no_action_is_kept_over_a_seeded_reset() -> None:
    """Makes every first action sticky, since 19 of 20 seeds would pass by chance in a short run."""
    env = make_env("MinAtar/Breakout-v1", {"sticky_action_prob": 1.0})
    columns = []
    for before in (1, 2):  # left, right
        env.reset(seed=0)
        inner: Any = env.unwrapped
        inner.game.act(inner.action_set[before])
        inner.game.last_action = inner.action_set[before]
        env.reset(seed=0)
        observation = env.step(0)[0]
        columns.append(int(observation[9, :, 0].argmax()))
    assert columns == [4, 4]  # the paddle stays where a game begins


@installed
def test_lanes_have_their_own_seeds() -> None:
    tapes = []
    for _ in range(2):
        stream = open_stream(make_vec_env("MinAtar/SpaceInvaders-v1", 4))
        rows = stream.begin(seed=3)
        assert rows.slots[0].obs["obs"].shape == (4, 10, 10, 6)
        rng = np.random.default_rng(0)
        rewards = [stream.step(rng.integers(4, size=4)).slots[-1].reward.copy() for _ in range(200)]
        tapes.append(np.stack(rewards))
        stream.close()
    assert (tapes[0] == tapes[1]).all()
    assert len({column.tobytes() for column in tapes[0].T}) == 4
    assert tapes[0].sum() > 0


@installed
def test_keywords_reach_the_game_and_large_seeds_are_accepted() -> None:
    env = make_env("MinAtar/Asterix-v1", {"sticky_action_prob": 0.0, "difficulty_ramping": False})
    inner: Any = env.unwrapped
    assert inner.game.sticky_action_prob == 0.0
    assert inner.game.env.ramping is False
    env.reset(seed=2**40 + 1)


@installed
def test_the_time_limit_of_freeway_is_a_termination() -> None:
    env = make_env("MinAtar/Freeway-v1", {})
    env.reset(seed=0)
    steps, over = 0, False
    while not over:
        _, _, over, truncated, _ = env.step(0)
        assert not truncated
        steps += 1
    assert steps == 2501


@installed
def test_render() -> None:
    env = make_env("MinAtar/Breakout-v1", {"render_mode": "rgb_array"})
    env.reset(seed=0)
    picture: Any = env.render()
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) == 3  # nothing, paddle, bricks; the ball begins among them
    assert env.metadata["render_fps"] == 15


@installed
def test_a_misspelt_game_names_the_nearest(unregistered: None) -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'MinAtar/Breakout-v1'"):
        spec_of("MinAtar/Brekout-v1")


def test_the_error_without_the_package_names_the_fix(unregistered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minatar.gym", None)
    for call in (lambda: spec_of("MinAtar/Breakout-v1"), lambda: make_vec_env("MinAtar/Breakout-v1", 2)):
        with pytest.raises(ConfigurationError, match=r'minatar must be installed.*pip install "sb_dqn\[minatar\]"'):
            call()
