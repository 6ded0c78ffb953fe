"""Frame stacks: equal for acting and replay."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch

from sb_dqn.buffers.frame_stack import FrameStack
from sb_dqn.buffers.n_step_transitions import Horizon, TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.errors import ConfigurationError
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, naive_stack, play
from tests.marks import ON_DEVICES_IN_FULL

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("lanes", [1, 3])
def test_stacks_for_acting_equal_those_of_replay_and_of_the_episodes(kind: str, k: int, lanes: int) -> None:
    rng = np.random.default_rng(k)
    names = ["go"] * 4 + list(EVENTS)
    games = [Game(lane, [names[i] for i in rng.integers(0, len(names), 30)]) for lane in range(lanes)]
    acting = FrameStack(k, lanes, SPACES)
    ring = Ring(Layout(40 * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, frame_stack=k))
    view, seen = TransitionView(ring, Horizon(ring.n_steps, 0.9)), {}
    for rows in islice(play(games, kind, rng, restart=17), 60):
        if rows.action is None:
            ring.cut()
        else:
            ring.depart(rows.action)
        for slot in rows.slots:
            ring.arrive(slot)
        acting.extend(rows)
        stacked = acting.stacked()
        for lane, game in enumerate(games):
            episode = game.episodes[-1]
            for key in SPACES:
                np.testing.assert_array_equal(stacked[key][lane], naive_stack(episode, len(episode.steps) - 1, key, k))
            seen[lane, len(game.rows()) - 1] = {key: stacked[key][lane] for key in SPACES}
        ring.refresh_bounds()
    pairs = torch.tensor(sorted(seen)).T
    lane, row = pairs[:, ring.may_start(*pairs)]
    batch = view.gather(lane, row, torch.ones(len(row)))
    assert len(row) > 20 * lanes
    for i, pair in enumerate(zip(lane.tolist(), row.tolist(), strict=True)):
        for key in SPACES:
            np.testing.assert_array_equal(batch.obs[key][i], seen[pair][key])


def test_returned_stacks_are_not_overwritten() -> None:
    game = Game(0, ["go"])
    acting = FrameStack(4, 1, SPACES)
    stacks = []
    for rows in islice(play([game], "NEXT_STEP", np.random.default_rng(0)), 8):
        acting.extend(rows)
        stacks.append((acting.stacked()["camera"], acting.stacked()["camera"].copy()))
    assert all((stack == copy).all() for stack, copy in stacks)
    assert stacks[0][0].shape == (1, 4, 2, 3)


def test_only_frames_can_be_stacked() -> None:
    with pytest.raises(ConfigurationError, match="three axes"):
        FrameStack(4, 1, {"joints": SPACES["joints"]})
