"""Ticks of some lanes only, as they come from other processes, against one ring per lane."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.buffers import Layout, ReplayBuffer, Ring, Sequences, TransitionView, UniformSampler, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.normalize import NormalizeRewards, RewardNormalizer
from sb_dqn.types import Rows, Slot
from tests.invariants import check_valid
from tests.marks import SLOW

LANES = 3
SPACE = {"obs": spaces.Box(-np.inf, np.inf, (1,), np.float32)}


def replay(lanes: int, host_visible: bool) -> ReplayBuffer:
    rule = Sequences(batch_T=2, warmup_T=0, store_rnn_state_interval=2).start_rule(1, 1, 2, ())
    ring = Ring(Layout(60 * lanes, lanes, SPACE, num_actions=4, start_rule=rule), host_visible=host_visible)
    view = TransitionView(ring, Horizon(ring.n_steps, 0.9), lambda reward: reward)
    return ReplayBuffer(ring, UniformSampler(ring, 4), view, UpdateSchedule())


def tick(kinds: list[str], number: int, rng: np.random.Generator) -> Rows:
    """A tick in which each lane steps, ends its episode, restarts or is absent."""
    lanes = len(kinds)
    valid = np.array([kind != "absent" for kind in kinds])
    departed = np.array([kind in ("step", "end") for kind in kinds])
    last = np.array([kind == "end" for kind in kinds])
    reward = np.where(departed, rng.integers(1, 9, lanes), 0).astype(np.float32)
    obs = {"obs": np.full((lanes, 1), number, np.float32) + np.arange(lanes, dtype=np.float32)[:, None] / 10}
    slot = Slot(obs, reward, reward, last & False, last, valid, bool(valid.all()))
    extra = {"state": rng.normal(size=(lanes, 2)).astype(np.float32)}
    extra |= {name: rng.normal(size=lanes).astype(np.float32) for name in ("q_taken", "q_best")}
    whole = valid.all() and (departed.all() or not departed.any())
    action = rng.integers(0, 4, lanes) if departed.any() else None
    return Rows(action, (slot,), departed, int(departed.sum()), extra=extra, departed=None if whole else departed)


def of_lane(rows: Rows, lane: int) -> Rows | None:
    """The tick of one lane alone; None if it is absent."""
    (slot,) = rows.slots
    if not slot.valid[lane]:
        return None
    one = slice(lane, lane + 1)
    own = Slot(
        {"obs": slot.obs["obs"][one]},
        slot.reward[one],
        slot.score[one],
        slot.terminal[one],
        slot.last[one],
        slot.valid[one],
    )
    departs = rows.stepped[lane]
    action = None if rows.action is None or not departs else rows.action[one]
    extra = {name: values[one] for name, values in rows.extra.items()}
    return Rows(action, (own,), rows.stepped[one], int(departs), extra=extra)


@SLOW
@pytest.mark.parametrize("host_visible", [True, False])
@settings(max_examples=25)
@given(data=st.data())
def test_lanes_are_stored_and_counted_as_if_each_were_alone(host_visible: bool, data: Any) -> None:
    together = replay(LANES, host_visible)
    alone = [replay(1, True) for _ in range(LANES)]
    statistics, each = EpisodeStatistics(LANES), [EpisodeStatistics(1) for _ in range(LANES)]
    normalizers = [RewardNormalizer(NormalizeRewards(), 0.9, lanes, together.ring.device) for lanes in (LANES, 1, 1, 1)]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    begun = [False] * LANES
    ended = [False] * LANES
    for number in range(data.draw(st.integers(1, 30))):
        kinds = []
        for lane in range(LANES):
            kind = data.draw(st.sampled_from(["step", "step", "end", "restart", "absent"]))
            if kind in ("step", "end") and not begun[lane]:
                kind = "restart"
            if ended[lane] and kind == "end":
                kind = "step"  # a reset row
            begun[lane] |= kind == "restart"
            ended[lane] = kind == "end" or (ended[lane] and kind == "absent")
            kinds.append(kind)
        rows = tick(kinds, number, rng)
        together.extend(rows)
        statistics.update(rows)
        normalizers[0].update(rows)
        for lane in range(LANES):
            own = of_lane(rows, lane)
            if own is not None:
                alone[lane].extend(own)
                each[lane].update(own)
                normalizers[1 + lane].update(own)
    assert check_valid(together.ring) == (True, "valid")
    for lane, single in enumerate(alone):
        for name, column in single.ring.columns.items():
            found = together.ring.columns[name]
            count = len(column)
            if name.startswith("obs/"):
                count = single.ring.rows
            assert (
                found[: count * LANES].view(count, LANES, *found.shape[1:])[:, lane].tolist() == column[:count].tolist()
            ), name
        assert statistics.returns[lane] == each[lane].returns[0]
        assert statistics.lengths[lane] == each[lane].lengths[0]
        assert normalizers[0].running[lane] == normalizers[1 + lane].running[0]
    assert statistics.num_episodes == sum(one.num_episodes for one in each)
