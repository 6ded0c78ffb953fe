"""Each kind of vector env, through ring and view, against the logs of the games."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.buffers import FrameStack, Layout, ReplayBuffer, Ring, TransitionView, UniformSampler, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.spaces import flatten_observation, flatten_space
from sb_dqn.types import Batch, Rows
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL
from tests.toys import ACTIONS, KINDS, ToyGame, is_last, naive_rows, naive_transition, toy_stream

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

GAMMA = 0.9


def actions_of(rows: Rows, tick: int) -> Any:
    """Returns arbitrary actions; the games log them."""
    return (np.arange(len(rows.stepped)) + tick * tick) % ACTIONS


def expected_obs(game: ToyGame, stack: Any, k: int) -> dict[str, Any]:
    """Returns the expected policy input, from the frames of the log."""
    if k > 1:
        return {"obs": np.concatenate([game.observe(tuple(frame)) for frame in stack])}
    return flatten_observation(game.observe(tuple(stack[-1])), ())


def compare(batch: Batch, games: list[ToyGame], n: int, k: int, life_loss: bool) -> None:
    rows = [naive_rows(game.log) for game in games]
    for i, (lane, row) in enumerate(batch.place.T.tolist()):
        episode, t = rows[lane][row]
        stack, action, return_, discount, end = naive_transition(episode, t, n, k, GAMMA, life_loss)
        assert int(batch.action[i]) == action
        np.testing.assert_allclose([batch.return_[i], batch.discount[i]], [return_, discount], rtol=1e-5, atol=1e-5)
        for got, want in ((batch.obs, stack), (batch.next_obs, end)):
            for key, value in expected_obs(games[lane], want, k).items():
                np.testing.assert_array_equal(got[key][i], value, err_msg=f"{key} of lane {lane} row {row}")


def run(kind: str, observation: str, lanes: int, n: int, k: int, life_loss: bool) -> None:
    options = StreamOptions(terminal_on_life_loss=life_loss, frame_stack=k)
    games, stream = toy_stream(kind, lanes, seed=n, observation=observation, options=options)
    leaves = flatten_space(stream.observation_space)
    ring = Ring(Layout(30 * lanes, lanes, leaves, num_actions=ACTIONS, frame_stack=k, n_steps=n))
    replay = ReplayBuffer(
        ring, UniformSampler(ring, 16), TransitionView(ring, Horizon(ring.n_steps, GAMMA)), UpdateSchedule()
    )
    acting = FrameStack(k, lanes, leaves)
    generator, compared = torch.Generator().manual_seed(0), 0
    rows = stream.begin(seed=3)
    for tick in range(105):
        replay.extend(rows)
        acting.extend(rows)
        if tick % 25 == 24:
            replay.refresh()
            assert check_valid(ring) == (True, "valid")
            pairs = torch.tensor([(b, r) for b in range(lanes) for r in range(int(ring.cursor[b]))]).T
            lane, row = pairs[:, ring.may_start(*pairs)]
            compare(replay.view.gather(lane, row, torch.ones(len(row))), games, n, k, life_loss)
            batch = replay.sample_from(torch.rand(4, 16, dtype=torch.float64, generator=generator))
            assert bool(ring.may_start(*batch.place)[batch.weight > 0].all())
            compared += len(row)
            for b, game in enumerate(games):
                episode = game.log[-1]
                seen = {key: array[b] for key, array in acting.stacked().items()}
                frames = [step.frame for step in episode.steps[-k:]]
                for key, value in expected_obs(game, [(0, 0, 0)] * (k - len(frames)) + frames, k).items():
                    np.testing.assert_array_equal(seen[key], value)
        rows = stream.begin() if tick % 50 == 49 else stream.step(actions_of(rows, tick))
    assert compared > 50 * lanes
    assert int(ring.cursor.min()) > 2 * ring.rows
    assert ring.last.any()
    assert any(is_last(episode, -1) and len(episode.steps) > 1 for game in games for episode in game.log)


OBSERVATIONS, SIZES = (("vector", 1), ("dict", 1), ("frames", 4)), ((1, 3), (3, 1), (5, 3))


@pytest.mark.parametrize(  # each pair of kind, observation and sizes
    ("kind", "observation", "k", "n", "lanes"),
    [(kind, *OBSERVATIONS[(i + j) % 3], *SIZES[j]) for i, kind in enumerate(KINDS) for j in range(3)],
)
def test_targets_equal_those_of_the_log(kind: str, observation: str, k: int, n: int, lanes: int) -> None:
    observation = "flat" if observation == "dict" and kind == "sb3" else observation  # it takes no nested Dict
    run(kind, observation, lanes, n, k, life_loss=(n != 3))
