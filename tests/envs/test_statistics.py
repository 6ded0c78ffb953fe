"""Episode statistics: hand-computed numbers and the state dict."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.types import Rows, Slot


def tick(score: list[float], last: list[bool], stepped: list[bool], infos: Any = None, begins: bool = False) -> Rows:
    lanes = len(score)
    no, yes = np.zeros(lanes, bool), np.ones(lanes, bool)
    raw = np.array(score, np.float32)
    slot = Slot({}, np.sign(raw), raw, no, np.array(last), yes)
    action = None if begins else np.zeros(lanes, np.int64)
    return Rows(action, (slot,), np.array(stepped), sum(stepped), (lambda: infos) if infos else list)


def test_scores_are_summed_raw_and_reset_rows_are_no_steps() -> None:
    statistics = EpisodeStatistics(2)
    assert math.isnan(statistics.mean_return)
    statistics.update(tick([0, 0], [False, False], [False, False], begins=True))
    statistics.update(tick([5, 1], [False, False], [True, True]))
    found = statistics.update(tick([-2, 1], [True, False], [True, True]))
    assert [(e.return_, e.length, e.lane) for e in found] == [(3.0, 2, 0)]
    assert statistics.finished == found
    assert statistics.update(tick([0, 1], [False, False], [False, True])) == []
    found = statistics.update(tick([7, 1], [True, True], [True, True]))
    assert [(e.return_, e.length, e.lane) for e in found] == [(7.0, 1, 0), (4.0, 4, 1)]
    assert (statistics.num_steps, statistics.num_episodes) == (7, 3)
    assert [info["r"] for info in statistics.ep_info_buffer] == [3.0, 7.0, 4.0]
    assert statistics.mean_return == pytest.approx(14 / 3)
    assert statistics.mean_length == pytest.approx(7 / 3)


def test_a_reset_of_the_stream_drops_open_episodes() -> None:
    statistics = EpisodeStatistics(1)
    statistics.update(tick([9], [False], [True]))
    statistics.update(tick([0], [False], [False], begins=True))
    assert statistics.update(tick([2], [True], [True]))[0][:2] == (2.0, 1)


def test_old_episodes_leave_the_window() -> None:
    statistics = EpisodeStatistics(1, window=2)
    for score in (1, 2, 4):
        statistics.update(tick([score], [True], [True]))
    assert statistics.mean_return == 3.0
    assert statistics.num_episodes == 3


def test_successes_count_only_in_finished_lanes() -> None:
    statistics = EpisodeStatistics(2)
    assert math.isnan(statistics.success_rate)
    calls: list[int] = []

    def infos() -> list[dict[str, Any]]:
        calls.append(1)
        return [{"is_success": True}, {"is_success": False}]

    rows = tick([1, 1], [False, False], [True, True])
    rows.make_infos = infos
    statistics.update(rows)
    assert calls == []  # nothing ended: no dict is built
    rows = tick([1, 1], [True, False], [True, True])
    rows.make_infos = infos
    statistics.update(rows)
    assert list(statistics.ep_success_buffer) == [1.0]
    assert statistics.success_rate == 1.0


def test_state_dict_restores_all_counters() -> None:
    statistics, other = EpisodeStatistics(2), EpisodeStatistics(2)
    statistics.update(tick([1.5, 2], [True, False], [True, True]))
    other.load_state_dict(json.loads(json.dumps(statistics.state_dict())))
    for one in (statistics, other):
        one.update(tick([0, 1], [False, True], [False, True]))
        assert (one.num_steps, one.num_episodes, one.mean_return) == (3, 2, 2.25)
    narrow = EpisodeStatistics(1)
    narrow.load_state_dict(statistics.state_dict())  # other lanes: what was under way is dropped
    assert narrow.lengths.tolist() == [0]
    assert narrow.num_episodes == 2
    with pytest.raises(CheckpointError, match="got none for \\['num_steps'\\]"):
        state = statistics.state_dict()
        del state["num_steps"]
        other.load_state_dict(state)
    with pytest.raises(ConfigurationError, match="window must be an integer >= 1, got 0"):
        EpisodeStatistics(1, window=0)


def test_lengths_count_the_steps_of_this_learner() -> None:
    statistics = EpisodeStatistics(1)
    statistics.update(tick([0], [False], [False], begins=True))
    found = []
    for last, stepped in [(False, True), (True, True), (False, False), (False, True), (True, True)]:
        rows = tick([1], [last], [stepped])
        rows.steps = 1  # two learners, one of which made a step
        found += statistics.update(rows)
    assert [each.length for each in found] == [2, 2]
