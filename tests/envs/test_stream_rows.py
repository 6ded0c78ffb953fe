"""Streams of every kind of env return the same rows for the same games, compared with the games' own logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.spaces import flatten_observation
from tests.marks import a_few
from tests.toys import KINDS, OBSERVATIONS, Row, Tape, ToyGame, is_last, naive_rows, terminal_at, toy_policy, toy_stream

CASES = [(kind, obs) for kind in KINDS for obs in OBSERVATIONS if (kind, obs) != ("sb3", "dict")]
"""Combinations without nested Dicts for Stable-Baselines3, which does not support them."""


def record(kind: str, lanes: int, obs: str, options: StreamOptions, ticks: int = 150, restart: int = 10**9) -> Any:
    games, stream = toy_stream(kind, lanes, seed=7, observation=obs, options=options)
    tape, statistics, infos, episodes = Tape(lanes), EpisodeStatistics(lanes), [], []
    rows = stream.begin()
    for tick in range(ticks):
        tape.write(rows)
        episodes += statistics.update(rows)
        infos.append(rows.make_infos())
        rows = stream.begin() if tick % restart == restart - 1 else stream.step(toy_policy(rows))
    tape.write(rows)
    episodes += statistics.update(rows)
    return games, tape, statistics, infos, episodes


def expect(game: ToyGame, options: StreamOptions) -> list[Row]:
    """Returns the rows of a lane, computed naively from its log."""
    rows = []
    for episode, t in naive_rows(game.log):
        step = episode.steps[t]
        rows.append(
            Row(
                flatten_observation(game.observe(step.frame), ()),
                float(np.sign(step.reward)) if options.clip_reward else step.reward,
                step.reward,
                terminal_at(episode, t, options.terminal_on_life_loss),
                is_last(episode, t),
                episode.actions[t] if t < len(episode.actions) else 0,
            )
        )
    return rows


def assert_same(found: list[Row], wanted: list[Row]) -> None:
    assert len(found) == len(wanted)
    for number, (row, truth) in enumerate(zip(found, wanted, strict=True)):
        assert row.obs.keys() == truth.obs.keys()
        for key in row.obs:
            assert np.array_equal(row.obs[key], truth.obs[key]), (number, key)
        assert (row.reward, row.score, row.terminal, row.last) == (
            truth.reward,
            truth.score,
            truth.terminal,
            truth.last,
        ), number
        assert row.action == (0 if row.last else truth.action), number


@pytest.mark.parametrize("lives", [False, True])
@pytest.mark.parametrize("lanes", a_few([1, 3], 3))
@pytest.mark.parametrize(("kind", "obs"), CASES)
def test_rows_equal_the_log_of_the_games(kind: str, obs: str, lanes: int, lives: bool) -> None:
    options = StreamOptions(terminal_on_life_loss=lives, clip_reward=lives)
    games, tape, _, _, _ = record(kind, lanes, obs, options)
    for game, rows in zip(games, tape.lanes, strict=True):
        assert_same(rows, expect(game, options))
    logs = [(episode, t) for game in games for episode, t in naive_rows(game.log)]
    assert any(episode.steps[t].truncated and not episode.steps[t].terminated for episode, t in logs)
    assert any(t == 1 and is_last(episode, t) for episode, t in logs)
    lost = [terminal_at(episode, t) and not is_last(episode, t) for episode, t in logs]
    assert any(lost)  # a lost life that ends nothing is among the cases


@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_of_the_stream_cuts_the_open_rows(kind: str) -> None:
    options = StreamOptions(terminal_on_life_loss=True)
    games, tape, _, _, _ = record(kind, 3, "vector", options, restart=7)
    assert sum(game.cuts for game in games) > 20
    for game, rows in zip(games, tape.lanes, strict=True):
        assert_same(rows, expect(game, options))


@pytest.mark.parametrize("kind", KINDS)
def test_fire_after_a_lost_life_is_played_and_stored(kind: str) -> None:
    options = StreamOptions(terminal_on_life_loss=True, fire_after_life_loss=True)
    games, tape, _, _, _ = record(kind, 2, "vector", options)
    fired = 0
    for game, rows in zip(games, tape.lanes, strict=True):
        assert_same(rows, expect(game, options))  # the stored actions are those the game received
        for row in rows[:-1]:
            if row.terminal and not row.last:
                assert row.action == 1
                fired += 1
    assert fired > 5


@pytest.mark.parametrize("kind", KINDS)
def test_infos_name_the_end_of_an_episode_and_nothing_else(kind: str) -> None:
    games, _, _, infos, _ = record(kind, 2, "dict" if kind != "sb3" else "flat", StreamOptions())
    for lane, game in enumerate(games):
        ends = [(e, e.steps[-1]) for e in game.log if is_last(e, -1)]
        final_infos = [info[lane] for info in infos if "terminal_observation" in info[lane]]
        assert len(final_infos) in (len(ends), len(ends) - 1)  # the infos of the latest tick were not read
        for info, (_, step) in zip(final_infos, ends, strict=False):
            assert info["TimeLimit.truncated"] is (step.truncated and not step.terminated)
            assert info["lives"] == step.lives
            for key, array in flatten_observation(game.observe(step.frame), ()).items():
                assert np.array_equal(flatten_observation(info["terminal_observation"], ())[key], array)
    assert infos[0] == [{}, {}]


@pytest.mark.parametrize("kind", ["lanes", "next_step"])
def test_a_reset_row_has_an_empty_info_and_is_no_step(kind: str) -> None:
    _, stream = toy_stream(kind, 2, seed=3)
    rows, resets = stream.begin(), 0
    for _ in range(60):
        ended = rows.slots[-1].last.copy()
        rows = stream.step(toy_policy(rows))
        assert rows.stepped.tolist() == (~ended).tolist()
        assert rows.steps == int((~ended).sum())
        for lane in np.flatnonzero(ended):
            assert rows.make_infos()[lane] == {}
            assert rows.slots[-1].reward[lane] == 0
            resets += 1
    assert resets > 5


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_count_whole_games_with_raw_scores(kind: str) -> None:
    games, tape, statistics, _, episodes = record(kind, 3, "vector", StreamOptions(True, True))
    for lane, game in enumerate(games):
        whole = [e for e in game.log if is_last(e, -1)]
        own = [episode for episode in episodes if episode.lane == lane]
        assert [e.length for e in own] == [len(e.actions) for e in whole]
        for episode, truth in zip(own, whole, strict=True):
            assert episode.return_ == pytest.approx(sum(step.reward for step in truth.steps), abs=1e-4)
    assert statistics.num_episodes == len(episodes)
    assert statistics.num_steps == sum(len(episode.actions) for game in games for episode in game.log)
    assert len(tape.lanes) == 3
