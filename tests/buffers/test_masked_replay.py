"""Masks and branches in replay: each kind of vector env, through ring and view, against the logs of its games."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from sb_dqn.buffers import FrameStack, Layout, ReplayBuffer, Ring, TransitionView, UniformSampler, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.checkpoint import read_archive, write_archive
from sb_dqn.envs.streams.base import Stream
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.spaces import flatten_space
from sb_dqn.types import Batch, Rows, Slot
from tests.buffers.toy_rows import SPACES, Game, slot_of
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL
from tests.masked_toys import ACTION_SPACES, BRANCHES, MaskedGame, frames_of, legal_actions, masked_stream
from tests.toys import KINDS, naive_transition

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

GAMMA = 0.9


def replay_of(stream: Stream, n: int = 1, rows: int = 30, masks: bool = True, path: Path | None = None) -> ReplayBuffer:
    ring = Ring(
        Layout(
            rows * stream.num_envs,
            stream.num_envs,
            flatten_space(stream.observation_space),
            num_actions=stream.action_shape.num_actions,
            action_axes=stream.action_shape.shape,
            masks=masks,
            n_steps=n,
            path=path,
        )
    )
    return ReplayBuffer(
        ring, UniformSampler(ring, 16), TransitionView(ring, Horizon(ring.n_steps, GAMMA)), UpdateSchedule()
    )


def startable(ring: Ring) -> torch.Tensor:
    pairs = torch.tensor([(b, r) for b in range(ring.num_lanes) for r in range(int(ring.cursor[b]))]).T
    return pairs[:, ring.may_start(*pairs)]


def everything(replay: ReplayBuffer) -> Batch:
    replay.refresh()
    lane, row = startable(replay.ring)
    return replay.view.gather(lane, row, torch.ones(len(row)))


def compare(batch: Batch, games: list[MaskedGame], n: int, life_loss: bool) -> None:
    rows = [frames_of(game) for game in games]
    assert batch.mask is not None
    assert batch.next_mask is not None
    assert batch.mask.dtype == batch.next_mask.dtype == torch.bool
    assert batch.action.dtype == torch.int64
    for i, (lane, row) in enumerate(batch.place.T.tolist()):
        episode, t = rows[lane][row]
        game, (_, _, return_, discount, end) = games[lane], naive_transition(episode, t, n, 1, GAMMA, life_loss)
        start = episode.steps[t].frame
        np.testing.assert_allclose([batch.return_[i], batch.discount[i]], [return_, discount], rtol=1e-5, atol=1e-5)
        assert np.array_equal(batch.mask[i].numpy(), game.wanted[start])
        assert np.array_equal(batch.next_mask[i].numpy(), game.wanted[tuple(end[-1])])
        assert batch.action[i].reshape(-1).tolist() == game.played[start]
        assert batch.action[i].shape == game.action_space.shape


def run(kind: str, space: str, where: str, lanes: int, n: int, life_loss: bool) -> None:
    games, stream = masked_stream(kind, lanes, space, where, "flat", life_loss)
    replay, rng, compared = replay_of(stream, n), np.random.default_rng(3), 0
    rows = stream.begin()
    for tick in range(100):
        replay.extend(rows)
        if tick % 20 == 19:
            assert check_valid(replay.ring) == (True, "valid")
            batch = everything(replay)
            compare(batch, games, n, life_loss)
            compared += len(batch.weight)
        rows = stream.begin() if tick % 47 == 46 else stream.step(legal_actions(rows, rng))
    assert compared > 30 * lanes
    assert int(replay.ring.cursor.min()) > 2 * replay.ring.rows
    mask = replay.ring.mask
    assert mask is not None
    assert mask.any(-1).all()


KINDS_OF_ACTIONS, SIZES = ("discrete", "uneven", "binary"), ((1, 1), (3, 1), (3, 3))


@pytest.mark.parametrize(  # each pair of kind, space and sizes
    ("kind", "space", "lanes", "n"),
    [(kind, KINDS_OF_ACTIONS[(i + j) % 3], *SIZES[j]) for i, kind in enumerate(KINDS) for j in range(3)],
)
def test_masks_equal_those_of_the_log(kind: str, space: str, lanes: int, n: int) -> None:
    run(kind, space, "info" if n == 1 else "legal", lanes, n, life_loss=lanes == 3)


def filled(space: str = "uneven", n: int = 1, ticks: int = 60, rows: int = 30) -> tuple[Any, Stream, ReplayBuffer]:
    games, stream = masked_stream("same_step", 3, space, "info", "flat")
    replay, rng = replay_of(stream, n, rows), np.random.default_rng(3)
    tick = stream.begin()
    replay.extend(tick)
    for _ in range(ticks):
        tick = stream.step(legal_actions(tick, rng))
        replay.extend(tick)
    return games, stream, replay


@pytest.mark.parametrize("rows", [30, 12, 50])
@pytest.mark.parametrize("space", ["discrete", "uneven"])
def test_masks_are_saved_and_loaded(space: str, rows: int, tmp_path: Path) -> None:
    games, stream, replay = filled(space)
    write_archive(tmp_path / "replay.zip", {"kind": "replay"}, {"replay": replay.state_dict()})
    twin = replay_of(stream, rows=rows, path=tmp_path / "rows.bin")
    twin.load_state_dict(read_archive(tmp_path / "replay.zip")[1]["replay"])
    assert check_valid(twin.ring) == (True, "valid")
    batch = everything(twin)
    compare(batch, games, 1, False)
    kept = everything(replay).place.T.tolist()
    assert len(batch.weight) > 20
    assert all(place in kept for place in batch.place.T.tolist())


def test_rows_with_and_without_masks_are_not_mixed() -> None:
    _, stream, replay = filled()
    state = replay.state_dict()
    with pytest.raises(CheckpointError, match=r"got a difference in \['mask'\]. .*action masks in both or in neither"):
        replay_of(stream, masks=False).load_state_dict(state)
    with pytest.raises(
        CheckpointError, match=r"'action' must be torch.uint8 of shape \(\d,\), got torch.uint8 of shape \(3,\)"
    ):
        other = masked_stream("lanes", 3, "even", "info", "flat")[1]
        replay_of(other).load_state_dict(state)


def test_a_trace_reads_the_current_masks() -> None:
    games, stream, replay = filled(ticks=20)
    replay.refresh()
    noise = torch.zeros(replay.sampler.noise_shape, dtype=torch.float64)

    def sample(u: torch.Tensor) -> tuple[Any, ...]:
        batch = replay.sample_from(u)
        return batch.mask, batch.next_mask, batch.action, batch.place

    graph, rng, rows = make_fx(sample)(noise), np.random.default_rng(4), stream.begin()
    for _ in range(40):
        replay.extend(rows)
        rows = stream.step(legal_actions(rows, rng))
    replay.refresh()
    noise.uniform_(generator=torch.Generator().manual_seed(0))
    mask, next_mask, action, place = graph(noise)
    compare(replay.sample_from(noise), games, 1, False)
    again = replay.sample_from(noise)
    assert again.mask is not None
    assert again.next_mask is not None
    for got, want in ((mask, again.mask), (next_mask, again.next_mask), (action, again.action), (place, again.place)):
        assert torch.equal(got, want)


@pytest.mark.parametrize("space", ["discrete", "uneven"])
def test_bytes_per_row(space: str) -> None:
    _, stream = masked_stream("lanes", 2, space, "info", "flat")
    width, plain = max(BRANCHES[space]), replay_of(stream, masks=False).ring
    branches = math.prod(stream.action_shape.shape)
    masked = replay_of(stream).ring
    assert plain.mask is None
    assert plain.layout.bytes_per_row == 3 * 4 + branches + 4 + 1 + 1
    assert masked.layout.bytes_per_row == plain.layout.bytes_per_row + branches * width
    assert masked.action.dtype == torch.uint8
    assert tuple(masked.action.shape[1:]) == ACTION_SPACES[space].shape


def test_without_masks_a_batch_has_none() -> None:
    _, stream = masked_stream("lanes", 2, "uneven", "info", "flat")
    replay, rng, rows = replay_of(stream, masks=False), np.random.default_rng(0), stream.begin()
    for _ in range(20):
        replay.extend(rows)
        rows = stream.step(legal_actions(rows, rng))
    batch = everything(replay)
    assert batch.mask is None
    assert batch.next_mask is None
    assert batch.action.shape[1:] == (3,)


def test_the_action_of_a_last_row_is_zero_in_all_branches() -> None:
    ring = Ring(Layout(20, 2, SPACES, num_actions=4, action_axes=(3,)))
    game = [Game(0, ["truncated"]), Game(1, ["go"])]
    ring.arrive(slot_of([one.reset() for one in game]))
    ring.depart(np.ones((2, 3), np.int64))
    ring.arrive(slot_of([one.step(1) for one in game]))
    ring.depart(np.full((2, 3), 2))
    ring.flush()
    assert ring.action[:4].tolist() == [[1] * 3, [1] * 3, [0] * 3, [2] * 3]
    assert check_valid(ring) == (True, "valid")
    ring.action[2, 1] = 3
    assert check_valid(ring) == (False, "a `last` row has an action")


def test_a_slot_without_masks_is_rejected_except_by_frame_stacks() -> None:
    ring = Ring(Layout(20, 1, SPACES, num_actions=4, masks=True))
    with pytest.raises(
        ConfigurationError,
        match="every row must have an action mask in a ring with masks=True, got None. Open the stream with",
    ):
        ring.arrive(slot_of([Game(0, ["go"]).reset()]))
    slot: Slot = slot_of([Game(0, ["go"]).reset()])
    slot.mask = np.ones((1, 4), bool)
    FrameStack(4, 1, SPACES).extend(Rows(None, (slot,), slot.valid, 0))
