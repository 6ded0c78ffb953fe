"""Replay as an `Experience`: when updates are due, one state for all, one traced function that stays valid."""

from __future__ import annotations

import re
import warnings
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.replay.experience import ELSEWHERE, Cadence, Replay
from sb_dqn.replay.ring import Ring
from sb_dqn.replay.samplers import UniformSampler
from sb_dqn.replay.views import TransitionView
from sb_dqn.types import Batch, Rows
from tests.replay.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, play


def replay_of(cadence: Cadence, lanes: int = 1, rows: int = 50, n: int = 1, k: int = 1, batch_size: int = 8) -> Replay:
    ring = Ring(rows * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, n_steps=n, frame_stack=k)
    return Replay(ring, UniformSampler(ring, batch_size), TransitionView(ring, n, 0.9), cadence)


def ticks(lanes: int, script: list[str], kind: str = "NEXT_STEP") -> Any:
    return play([Game(lane, script) for lane in range(lanes)], kind, np.random.default_rng(0))


def due(replay: Replay, stream: Any, count: int) -> list[int]:
    found = []
    for rows in islice(stream, count):
        replay.extend(rows)
        found.append(replay.updates_due())
    return found


@pytest.mark.parametrize(
    ("cadence", "lanes", "expected"),
    [
        (Cadence(4), 1, [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]),
        (Cadence(4), 8, [0, 2, 2, 2, 2, 2]),
        (Cadence(3), 8, [0, 2, 3, 3, 2, 3, 3, 2]),  # 8 steps a tick: remainders are kept
        (Cadence(6, gradient_steps=5), 2, [0, 0, 0, 5, 0, 0, 5]),
        (Cadence(4, gradient_steps=-1), 1, [0, 0, 0, 0, 4, 0, 0, 0, 4]),
        # rlpyt's replay ratio of 8: a batch of 32 for every 4 steps, one of 128 for every 16
        (Cadence(32 // 8), 4, [0, 1, 1, 1, 1]),
        (Cadence(128 // 8), 32, [0, 2, 2, 2, 2]),
        (Cadence(32 // 8), 2, [0, 0, 1, 0, 1]),  # decoy: rlpyt rounds up to one a tick, which is a ratio of 16
        (Cadence(3, gradient_steps=-1), 8, [0, 6, 9, 9, 6, 9]),
        (Cadence(1, learning_starts=5), 1, [0, 0, 0, 0, 0, 0, 1, 1]),
        (Cadence(4, learning_starts=5), 1, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),  # at step 8: a multiple is crossed
        (Cadence(3, gradient_steps=2, spread=True), 1, [0, 0, 1, 1, 0, 1, 1, 0, 1, 1]),
        (Cadence(3, gradient_steps=2, spread=True), 4, [0, 2, 3, 3, 2, 3, 3]),  # 2 2/3 a tick
        (Cadence(24, gradient_steps=35, spread=True), 1, [0, 1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1]),  # never 35 at once
        (Cadence(4, spread=True), 3, [0, 0, 1, 1, 1, 0, 1]),
        (Cadence(2, gradient_steps=3, learning_starts=5, spread=True), 1, [0, 0, 0, 0, 0, 0, 2, 1, 2]),
    ],
)
def test_updates_due_in_steps(cadence: Cadence, lanes: int, expected: list[int]) -> None:
    assert due(replay_of(cadence, lanes), ticks(lanes, ["go"]), len(expected)) == expected


def test_a_long_cadence_fires_once_per_its_length() -> None:
    found = due(replay_of(Cadence(256, gradient_steps=128), 1, rows=300), ticks(1, ["go"]), 600)
    assert [(tick, count) for tick, count in enumerate(found) if count] == [(256, 128), (512, 128)]


def test_reset_rows_are_no_env_steps() -> None:
    found = due(replay_of(Cadence(2)), ticks(1, ["go", "terminated"]), 12)  # every third tick is a reset
    assert found == [0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_updates_due_in_episodes(kind: str) -> None:
    script = ["go", "lost life", "truncated"]
    for gradient_steps, per_firing in ((7, 7), (-1, 6)):
        cadence = Cadence(2, "episode", gradient_steps)
        found = [count for count in due(replay_of(cadence), ticks(1, script, kind), 30) if count]
        assert found[:3] == [per_firing] * 3
    together = due(replay_of(Cadence(2, "episode"), 4), ticks(4, script, kind), 8)
    assert [count for count in together if count] == [2, 2]  # four lanes end at once: two pairs of episodes


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_only_lanes_that_ended_count_as_episodes(kind: str) -> None:
    games = [Game(0, ["go", "truncated"]), Game(1, ["go"])]  # slots of ended lanes hold rubbish in lane 1
    stream = play(games, kind, np.random.default_rng(0))
    assert sum(due(replay_of(Cadence(1, "episode"), 2), stream, 20)) == sum(e.steps[-1].last for e in games[0].episodes)


def test_a_stream_begun_anew_ends_no_episode() -> None:
    stream = play([Game(0, ["go"])], "NEXT_STEP", np.random.default_rng(0), restart=5)
    assert sum(due(replay_of(Cadence(1, "episode")), stream, 30)) == 0


def test_nothing_is_due_while_nothing_may_start() -> None:
    replay = replay_of(Cadence(1), n=3)
    assert due(replay, ticks(1, ["go"]), 6) == [0, 0, 0, 1, 1, 1]
    only_ends = replay_of(Cadence(1), rows=3)  # rows in bounds alternate between a reset row and a `last` one
    for rows in islice(ticks(1, ["terminated"]), 30):
        only_ends.extend(rows)
        count = only_ends.updates_due()
        only_ends.refresh()
        lane, row = torch.zeros(60, dtype=torch.int64), torch.arange(60)
        assert (count > 0) == (rows.steps > 0 and bool(only_ends.ring.may_start(lane, row).any()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_freq": 0}, "train_freq=0 is not allowed"),
        ({"unit": "epoch"}, "train_freq unit 'epoch' is not allowed; give 'step' or 'episode'"),
        ({"gradient_steps": 0}, "gradient_steps=0 is not allowed"),
        ({"gradient_steps": -2}, "gradient_steps=-2 is not allowed"),
        ({"learning_starts": -1}, "learning_starts=-1 is not allowed"),
        (
            {"spread": True, "unit": "episode"},
            "spread=True is not allowed with unit='episode' and gradient_steps=1; give",
        ),
        (
            {"spread": True, "gradient_steps": -1},
            "spread=True is not allowed with unit='step' and gradient_steps=-1; give",
        ),
    ],
)
def test_wrong_cadences_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Cadence(**settings)


def test_spread_updates_go_on_after_a_save() -> None:
    """Saved at any tick, or by a cadence that makes its updates at once, which has left them unpaid."""
    cadence = Cadence(7, gradient_steps=3, spread=True)
    whole = due(replay_of(cadence), ticks(1, ["go"]), 40)
    assert sum(whole) == 39 * 3 // 7
    for at in range(1, 16):
        stream, first, second = ticks(1, ["go"]), replay_of(cadence), replay_of(cadence)
        begun = due(first, stream, at)
        second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
        assert begun + due(second, stream, 40 - at) == whole
    stream, first, second = ticks(1, ["go"]), replay_of(Cadence(7, gradient_steps=3)), replay_of(cadence)
    assert sum(due(first, stream, 12)) == 3  # four steps are unpaid
    second.load_state_dict(first.state_dict())
    assert sum(due(second, stream, 28)) == 39 * 3 // 7 - 3


@pytest.mark.parametrize("counts", [[-1, 0, 0], [10**9, 0, 0], [9, 10, 0], [9, 0, 10], [9, -1, 0], [9, 0, -1]])
def test_counts_that_no_replay_has_are_refused(counts: list[int]) -> None:
    replay = replay_of(Cadence(4))
    due(replay, ticks(1, ["go"]), 10)
    state = replay.state_dict()
    assert state["cadence"].tolist() == [9, 1, 1]  # the first row is a reset
    replay_of(Cadence(4)).load_state_dict(state)
    other = replay_of(Cadence(4))
    due(other, ticks(1, ["go"]), 7)
    held = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(CheckpointError, match="the file is damaged"):
        other.load_state_dict({**state, "cadence": torch.tensor(counts)})
    assert all(torch.equal(value, held[name]) for name, value in other.state_dict().items())


def busy(replay: Replay, count: int) -> list[Rows]:
    """Rows with every event; SAME_STEP, so lanes are unequal."""
    names = ["go"] * 3 + list(EVENTS)
    rng = np.random.default_rng(3)
    games = [Game(b, [names[i] for i in rng.integers(0, len(names), 40)]) for b in range(replay.ring.num_lanes)]
    return list(islice(play(games, "SAME_STEP", rng), count))


def assert_same(first: Batch, second: Batch) -> None:
    for key in SPACES:
        assert torch.equal(first.obs[key], second.obs[key])
        assert torch.equal(first.next_obs[key], second.next_obs[key])
    for name in ("action", "return_", "discount", "weight", "place"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name


def flat(batch: Batch) -> tuple[Tensor, ...]:
    assert batch.mask is batch.next_mask is None
    return (*batch.obs.values(), *batch.next_obs.values(), *batch[1:4], batch.weight, batch.place)


@pytest.mark.parametrize(("lanes", "n", "k"), [(1, 1, 1), (1, 3, 4), (3, 1, 4), (3, 3, 1), (3, 3, 4)])
def test_a_traced_sample_stays_valid_while_the_ring_goes_on(lanes: int, n: int, k: int) -> None:
    replay = replay_of(Cadence(1), lanes, rows=20, n=n, k=k)
    rows = busy(replay, 120)
    generator = torch.Generator().manual_seed(0)
    for tick in rows[:12]:
        replay.extend(tick)
    replay.refresh()
    noise = torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator)
    graph = make_fx(lambda u: flat(replay.sample(u)))(noise)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the constants, which are the ring's tensors
        traced = torch.jit.trace(graph, (noise,), check_trace=False)
    recorded = replay.recorded(noise)
    different = 0
    for tick in rows[12:]:
        replay.extend(tick)
        replay.refresh()
        noise = torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator)
        want = flat(replay.sample(noise))
        with torch.no_grad():
            got = traced(noise)
        assert all(torch.equal(x, y) for x, y in zip(want, got, strict=True))
        assert all(torch.equal(x, y) for x, y in zip(want, flat(recorded(noise)), strict=True))
        different += len(torch.unique(want[-1][1]))
    assert different > 200
    twin = replay_of(Cadence(1), lanes, rows=20, n=n, k=k)
    for tick in rows[:40]:
        twin.extend(tick)
    replay.load_state_dict(twin.state_dict())  # loading moves no tensor either
    with torch.no_grad():
        for of_traced in (traced(noise), flat(recorded(noise))):
            assert all(torch.equal(x, y) for x, y in zip(flat(replay.sample(noise)), of_traced, strict=True))


def test_state_round_trip_of_the_whole_replay() -> None:
    first, second = (replay_of(Cadence(5), 3, rows=20, n=3, k=4) for _ in range(2))
    rows = busy(first, 60)
    for tick in rows[:30]:
        first.extend(tick)
        first.updates_due()
    state = first.state_dict()
    assert all(isinstance(value, Tensor) for value in state.values())
    second.load_state_dict({name: value.clone() for name, value in state.items()})
    generator = torch.Generator().manual_seed(0)
    for tick in rows[30:]:
        first.extend(tick)
        second.extend(tick)
        assert first.updates_due() == second.updates_due()
        first.refresh()
        second.refresh()
        noise = torch.rand(first.sampler.noise_shape, dtype=torch.float64, generator=generator)
        assert_same(first.sample(noise), second.sample(noise))


def test_feedback_reaches_the_sampler() -> None:
    heard: list[tuple[Tensor, Tensor]] = []

    class Listening(UniformSampler):
        def feedback(self, index: Tensor, priority: Tensor) -> None:
            heard.append((index, priority))

    replay = replay_of(Cadence(1))
    replay.sampler = Listening(replay.ring, 8)
    due(replay, ticks(1, ["go"]), 10)
    replay.refresh()
    batch = replay.sample(torch.rand(4, 8, dtype=torch.float64))
    replay.feedback(batch, torch.ones(8))
    assert heard[0][0] is batch.place


def test_the_names_of_stable_baselines3_are_there_or_say_what_stands_for_them() -> None:
    replay: Any = replay_of(Cadence(4), lanes=2)
    stream = ticks(2, ["go", "go", "terminated"])
    list(map(replay.extend, islice(stream, 9)))
    assert replay.size() == len(replay.ring) == 18
    for name, hint in ELSEWHERE.items():
        with pytest.raises(AttributeError, match=f"Replay has no attribute '{name}'. {re.escape(hint)}"):
            getattr(replay, name)
        for path in re.findall(r"replay(?:\.[a-z_]+)+", hint):
            eval(path, {"replay": replay})  # what is pointed to is there
    with pytest.raises(AttributeError, match="no attribute 'sampel'. Did you mean 'sample'"):
        _ = replay.sampel


def test_a_batch_is_drawn_as_the_refusal_of_a_number_says() -> None:
    replay: Any = replay_of(Cadence(4), lanes=2)
    list(map(replay.extend, islice(ticks(2, ["go", "go", "terminated"]), 20)))
    with pytest.raises(
        ConfigurationError, match=r"replay.sample\(32\) is not allowed: call replay.refresh\(\), then"
    ) as refusal:
        replay.sample(32)
    replay.refresh()
    drawn = str(refusal.value).partition(", then ")[2].partition(", a batch")[0]
    assert len(eval(drawn, {"replay": replay, "torch": torch}).action) == 8


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(
    "cadence",
    [
        Cadence(1), Cadence(4), Cadence(4, learning_starts=9), Cadence(3, gradient_steps=-1, learning_starts=12),
        Cadence(7, gradient_steps=2, spread=True), Cadence(5, gradient_steps=3, learning_starts=11, spread=True),
        Cadence(24, learning_starts=13, spread=True), Cadence(24, gradient_steps=35, learning_starts=2, spread=True),
        Cadence(1, "episode", learning_starts=8),
    ],
)  # fmt: skip
def test_no_update_comes_sooner_than_it_was_waited_for(cadence: Cadence, lanes: int, kind: str) -> None:
    """Whatever tick one asks at: never fewer steps, and with one lane and steps that pay exactly as many."""
    stream, replay = (
        ticks(lanes, ["go"] * 6 + ["truncated"] + ["go"] * 3 + ["terminated"], kind),
        replay_of(cadence, lanes, rows=100),
    )
    promised: list[tuple[int, int]] = []  # steps so far, and the least that were to come
    steps = 0
    for rows in islice(stream, 60):
        replay.extend(rows)
        steps += rows.steps
        if replay.updates_due():
            for before, least in promised:
                assert steps - before >= least
                if lanes == 1 and cadence.unit == "step" and before:
                    assert steps - before == least
            return
        promised.append((steps, replay.wait().least))
    raise AssertionError("no update was due in 60 ticks")
