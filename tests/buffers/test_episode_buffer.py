"""Episode buffer against the logs of the games: only complete episodes are used, each of their steps once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sb_dqn.buffers import episode_buffer as module
from sb_dqn.buffers.episode_buffer import EpisodeBuffer, EpisodeView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Experience, Rows
from tests.buffers.test_rollout_buffer import GAMMA, LAMBDA, SCRIPT, seen, value, value_function
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Episode, Game, play
from tests.marks import ON_DEVICES_IN_FULL, SLOW

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

Sample = tuple[int, float, float]


@pytest.fixture(autouse=True, scope="module")
def few_rows() -> Any:
    """Makes the buffers start so small that they must grow."""
    before, module.FIRST_ROWS = module.FIRST_ROWS, 8
    yield
    module.FIRST_ROWS = before


def make(lanes: int, k: int, count: int, baseline: Any = None) -> EpisodeBuffer:
    def make_ring(rows: int) -> Ring:
        return Ring(Layout(rows * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, frame_stack=k))

    def make_view(ring: Ring, extras: Any) -> EpisodeView:
        view = EpisodeView(ring, ring.capacity, GAMMA, LAMBDA, extras)
        view.baseline = baseline
        return view

    return EpisodeBuffer(make_ring, count, make_view, {"tick": ()})


def acted(store: EpisodeBuffer, stream: Any, tick: int) -> Rows:
    outputs: dict[str, Any] = {}
    if tick:
        outputs["value"] = value_function(0)(store.open_observation())
        outputs["tick"] = np.full(store.ring.num_lanes, tick, np.float32)
    rows: Rows = next(stream)
    rows.extra = outputs
    store.extend(rows)
    return rows


def ended(rows: Rows, games: list[Game]) -> list[tuple[int, int]]:
    """Returns lane and number of each episode that ended in a tick; with a reset row in it, it is the second newest."""
    final = rows.slots[0]
    back = len(rows.slots)
    return [(lane, len(games[lane].episodes) - back) for lane in np.flatnonzero(final.valid & final.last).tolist()]


def naive(episode: Episode, k: int) -> list[Sample]:
    """Returns (action, lambda-return, value) of each step, by definition."""
    found, after = [], 0.0
    for t in range(len(episode.actions) - 1, -1, -1):
        arrival = episode.steps[t + 1]
        v = float(value(seen(episode, t + 1, k), 0)[0])
        over = t + 1 == len(episode.actions) or arrival.terminal
        ahead = v if over else (1 - LAMBDA) * v + LAMBDA * after
        after = arrival.reward + (0.0 if arrival.terminal else GAMMA * ahead)
        found.append((episode.actions[t], after, float(value(seen(episode, t, k), 0)[0])))
    return found[::-1]


def run(scripts: list[list[str]], kind: str, k: int, count: int, restart: int, ticks: int, seed: int) -> Counter[str]:
    games = [Game(lane, script) for lane, script in enumerate(scripts)]
    store = make(len(games), k, count)
    stream = play(games, kind, np.random.default_rng(seed), restart)
    waiting: list[tuple[int, int]] = []
    total: Counter[str] = Counter()
    for tick in range(ticks):
        waiting += ended(acted(store, stream, tick), games)
        assert store.is_full == (len(waiting) >= count)
        if not store.is_full:
            assert store.updates_due() == 0
            continue
        store.complete(value_function(0))
        assert store.updates_due() == 1
        assert store.updates_due() == 0
        batch = store.sample_from(store.draw(torch.Generator()))
        assert len(batch.weight) >= 64
        assert bin(len(batch.weight)).count("1") == 1
        assert bool(batch.return_.isfinite().all())
        assert batch.extra is not None
        expected = [
            (lane, number, t) for lane, number in waiting for t in range(len(games[lane].episodes[number].actions))
        ]
        assert batch.weight.tolist() == [1.0] * len(expected) + [0.0] * (len(batch.weight) - len(expected))
        truth = {(lane, number): naive(games[lane].episodes[number], k) for lane, number in waiting}
        found = torch.stack([batch.action.float(), batch.return_, batch.extra["value"]], 1)[: len(expected)]
        np.testing.assert_allclose(
            found.numpy(), [truth[lane, number][t] for lane, number, t in expected], rtol=1e-4, atol=1e-4
        )
        for i, (lane, number, t) in enumerate(expected):
            for key, array in seen(games[lane].episodes[number], t, k).items():
                np.testing.assert_array_equal(batch.obs[key][i], array[0])
        total += Counter(updates=1, episodes=len(waiting), steps=len(expected), rows=-total["rows"] + store.ring.rows)
        waiting = []
    return total


@settings(max_examples=25)
@given(
    scripts=st.lists(SCRIPT, min_size=1, max_size=4),
    kind=st.sampled_from(["NEXT_STEP", "SAME_STEP"]),
    k=st.sampled_from([1, 4]),
    count=st.sampled_from([1, 2, 5]),
    restart=st.sampled_from([0, 0, 7, 2]),
    seed=st.integers(0, 1000),
)
@example(scripts=[["truncated"]], kind="SAME_STEP", k=1, count=1, restart=0, seed=0)  # episodes of one step
@example(scripts=[["go"] * 11 + ["truncated"], ["terminated"]], kind="SAME_STEP", k=4, count=5, restart=0, seed=0)
def test_each_step_of_a_complete_episode_is_used_once(
    scripts: list[list[str]], kind: str, k: int, count: int, restart: int, seed: int
) -> None:
    run(scripts, kind, k, count, restart, ticks=40, seed=seed)


@SLOW
@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_the_random_streams_contain_all_events(kind: str) -> None:
    rng = np.random.default_rng(0)
    scripts = [[(["go"] * 6 + list(EVENTS))[i] for i in rng.integers(0, 12, 40)] for _ in range(3)]
    total = run(scripts, kind, k=4, count=6, restart=0, ticks=150, seed=0)
    assert total["updates"] > 10
    assert total["episodes"] > 60
    assert total["rows"] > 8


def test_a_long_episode_makes_the_buffer_grow() -> None:
    total = run([["go"] * 99 + ["terminated"], ["go", "terminated"]], "NEXT_STEP", 1, 50, 0, ticks=170, seed=0)
    assert total["rows"] == 256
    assert total["episodes"] >= 50


def test_an_interrupted_episode_is_dropped() -> None:
    games = [Game(0, ["go"])]
    store = make(1, 1, 1)
    stream = play(games, "NEXT_STEP", np.random.default_rng(0), restart=5)
    for tick in range(30):
        acted(store, stream, tick)
        assert not store.is_full
    assert store.ring.rows == 8  # and needs no rows


@pytest.mark.parametrize("at", [3, 17, 18, 19, 40])
@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_a_buffer_continues_after_loading(kind: str, at: int) -> None:
    script = ["go", "go", "truncated", "lost life", "go", "terminated", "go"]
    games = [Game(lane, script[lane:]) for lane in range(3)]
    stream = play(games, kind, np.random.default_rng(1))
    whole, other = make(3, 4, 4), make(3, 4, 4)
    for tick in range(60):
        if tick == at:
            other = make(3, 4, 4)
            other.load_state_dict({name: x.clone() for name, x in whole.state_dict().items()})
        rows = acted(whole, stream, tick)
        if tick >= at:
            other.extend(rows)
        if whole.is_full:
            for store in (whole, other)[: 1 + (tick >= at)]:
                store.complete(value_function(0))
                store.updates_due()
            if tick >= at:
                mine, theirs = (store.sample_from(store.draw(torch.Generator())) for store in (whole, other))
                there = mine.weight > 0
                assert torch.equal(mine.weight, theirs.weight)
                assert torch.equal(mine.return_[there], theirs.return_[there])
                assert torch.equal(mine.obs["camera"][there], theirs.obs["camera"][there])


def test_a_baseline_replaces_the_value() -> None:
    store = make(2, 1, 3, baseline=lambda return_, step: 100.0 * step + return_.mean())
    stream = play([Game(0, ["go", "terminated"]), Game(1, ["terminated"])], "SAME_STEP", np.random.default_rng(0))
    tick = 0
    while not store.is_full:
        acted(store, stream, tick)
        tick += 1
    store.complete(value_function(0))
    batch = store.sample_from(store.draw(torch.Generator()))
    assert batch.extra is not None
    # lanes end in order: 1, then both; the episode of two steps has steps 0 and 1
    mean = float(batch.return_[:4].mean())
    np.testing.assert_allclose(batch.extra["value"][:4].numpy(), [mean, mean, mean + 100, mean], rtol=1e-5)


def test_states_of_other_buffers_are_rejected() -> None:
    store = make(2, 1, 1)
    experience: Experience = store
    assert experience.updates_due() == 0
    with pytest.raises(CheckpointError, match="must be that of the same algorithm"):
        store.load_state_dict({})
    with pytest.raises(CheckpointError, match="Use the same number of environments"):
        store.load_state_dict(make(3, 1, 1).state_dict())
