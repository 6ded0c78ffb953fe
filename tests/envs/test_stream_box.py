"""Continuous actions with every kind of env: stored as sent, and checked against the bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.buffers import Layout, Ring, TransitionView
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.spaces import BoxActions, actions_of
from sb_dqn.types import Rows
from tests.invariants import check_valid
from tests.toys import KINDS, ToyGame, naive_rows

LOW, HIGH = np.array([-2.0, 0.1]), np.array([0.5, 30.7])


class BoxGame(ToyGame):
    """Toy game that records its actions, and overwrites the action arrays."""

    def __init__(self, lane: int, seed: int, dtype: Any = np.float32) -> None:
        super().__init__(lane, seed)
        self.action_space: Any = spaces.Box(LOW.astype(dtype), HIGH.astype(dtype), dtype=dtype)
        self.recorded: dict[tuple[int, int], list[float]] = {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        frame = len(self.log), self.t
        self.recorded[frame] = action.astype(np.float32).tolist()
        action[:] = 1e6
        self.log[-1].actions.append(0)
        life, self.t = self.rng.random() < 0.2, self.t + 1
        self.lives -= int(life)
        return self._arrive(float(self.t), self.lives == 0, self.t >= self.limit)


def box_stream(kind: str, lanes: int, dtype: Any = np.float32) -> tuple[list[BoxGame], Stream]:
    games = [BoxGame(lane, 5, dtype) for lane in range(lanes)]
    makes: list[Callable[[], Any]] = [lambda game=game: game for game in games]  # type: ignore[misc]
    return games, open_stream(KINDS[kind](makes))


def numbers(rows: Rows, rng: np.random.Generator) -> Any:
    """Returns random actions, some of them at a bound."""
    draws = rng.uniform(-0.2, 1.2, (len(rows.stepped), 2)).clip(0, 1)
    return np.clip((LOW + draws * (HIGH - LOW)).astype(np.float32), np.float32(LOW), np.float32(HIGH))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_actions_equal_sent_actions(kind: str, lanes: int, dtype: Any) -> None:
    games, stream = box_stream(kind, lanes, dtype)
    ring = Ring(
        Layout(
            400 * lanes, lanes, {"obs": stream.observation_space}, num_actions=0, action_axes=stream.action_shape.shape
        )
    )
    rng, rows = np.random.default_rng(0), stream.begin()
    for _ in range(120):
        ring.cut() if rows.action is None else ring.depart(rows.action)
        for slot in rows.slots:
            ring.arrive(slot)
        rows = stream.step(numbers(rows, rng))
    assert check_valid(ring) == (True, "valid")
    ring.refresh_bounds()
    view = TransitionView(ring, Horizon(ring.n_steps, 0.9))
    compared = 0
    for lane, game in enumerate(games):
        for row, (episode, t) in enumerate(naive_rows(game.log)[: ring.cursor[lane] - 1]):
            at = torch.tensor([lane]), torch.tensor([row])
            if not bool(ring.may_start(*at)):
                assert view.gather(*at, torch.ones(1)).action.tolist() == [[0.0, 0.0]]
                continue
            batch = view.gather(*at, torch.ones(1))
            assert batch.action.dtype == torch.float32
            number = next(i for i, one in enumerate(game.log) if one is episode) + 1
            assert batch.action[0].tolist() == game.recorded[number, t]
            compared += 1
    assert compared > 60 * lanes


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([[0.0, 1.0], [0.0, 31.0]], r"action at \(1,\) in lane 1 must be from 0.1.* to 30.7.*, got 31.0"),
        ([[0.0, np.nan], [0.0, 1.0]], r"action at \(1,\) in lane 0 .*got nan"),
        ([[-np.inf, 1.0], [0.0, 1.0]], "got -inf"),
        ([0.0, 1.0], r"shape \(2, 2\), one row per lane, got \(2,\)"),
        ([[True, True], [True, True]], "numeric dtype, got bool"),
        ([["a", "b"], ["c", "d"]], "numeric dtype, got <U1"),
    ],
)
def test_illegal_actions_raise(action: Any, message: str) -> None:
    games, stream = box_stream("lanes", 2)
    stream.begin()
    with pytest.raises(SpaceError, match=message):
        stream.step(np.array(action))
    assert not any(game.recorded for game in games)


def test_large_actions_are_checked() -> None:
    wide = spaces.Box(-1.0, 1.0, (5, 9), np.float32)

    class Wide(ToyGame):
        def __init__(self) -> None:
            super().__init__()
            self.action_space: Any = wide

        def step(self, action: Any) -> Any:
            assert wide.contains(action)
            self.t += 1
            return self._arrive(0.0, False, False)

    stream = open_stream(Wide())
    stream.begin()
    action = np.zeros((1, 5, 9), np.float32)
    assert stream.step(action).steps == 1
    action[0, 3, 2] = 1.5
    with pytest.raises(SpaceError, match=r"action at \(3, 2\) in lane 0 .*got 1.5"):
        stream.step(action)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(-np.inf, 1.0, (2,)), "must be finite float32 numbers with low < high"),
        (spaces.Box(-1.0, 1e300, (2,), np.float64), "must be finite float32 numbers with low < high"),
        (spaces.Box(1.0, 1.0, (2,)), "low < high"),
        (spaces.Box(0, 4, (2,), np.int64), "For integers use MultiDiscrete"),
        (spaces.Box(0.0, 1.0, (0,)), "length 0"),
    ],
)
def test_unsupported_boxes_raise(space: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        actions_of(space)


def test_options_of_discrete_actions_raise() -> None:
    for options, message in (
        (StreamOptions(terminal_on_life_loss=True, fire_after_life_loss=True), "must be Discrete with fire_after"),
        (StreamOptions(action_mask="info"), "None for continuous actions"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            open_stream(BoxGame(0, 0), options=options)


def test_uniform_draws_fill_the_box() -> None:
    actions = actions_of(spaces.Box(LOW.astype(np.float32), HIGH.astype(np.float32)))
    assert isinstance(actions, BoxActions)
    drawn = actions.uniform(4000, np.random.default_rng(1))
    assert drawn.dtype == np.float32
    assert drawn.shape == (4000, 2)
    assert (drawn >= actions.low).all()
    assert (drawn <= actions.high).all()
    np.testing.assert_allclose(drawn.mean(0), (LOW + HIGH) / 2, rtol=0.05)


@pytest.mark.filterwarnings("ignore:.*Box (low|high)'s precision.*:UserWarning")
def test_envpool() -> None:
    envpool: Any = pytest.importorskip("envpool", reason="EnvPool is a peer, installed by the bench extra")
    stream = open_stream(envpool.make("Pendulum-v1", env_type="gymnasium", num_envs=2, seed=3))
    twin = envpool.make("Pendulum-v1", env_type="gymnasium", num_envs=2, seed=3)
    stream.begin()
    twin.reset()
    action = np.array([[-2.0], [0.3]], np.float32)
    rows, (obs, *_) = stream.step(action), twin.step(action.copy())
    assert np.array_equal(rows.slots[0].obs["obs"], obs)
    with pytest.raises(SpaceError, match="must be from"):
        stream.step(action * 1.1)
