"""Replay buffer: update schedule, state, tracing of `sample_from`, and `sample`."""

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

from sb_dqn.accelerate.fx_backend import fx_function
from sb_dqn.buffers.n_step_transitions import Horizon, TransitionView
from sb_dqn.buffers.prioritized_sampler import Prioritized, PrioritizedSampler
from sb_dqn.buffers.replay_buffer import ReplayBuffer, UpdateSchedule
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.uniform_sampler import UniformSampler
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.sb3_names import REPLAY_ATTRIBUTES
from sb_dqn.types import Batch, Rows
from tests.buffers.test_sum_tree import chi_square
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, play
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL, SLOW, a_few

pytestmark = pytest.mark.usefixtures("storage")


def replay_of(
    schedule: UpdateSchedule, lanes: int = 1, rows: int = 50, n: int = 1, k: int = 1, batch_size: int = 8
) -> ReplayBuffer:
    ring = Ring(Layout(rows * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, n_steps=n, frame_stack=k))
    return ReplayBuffer(
        ring, UniformSampler(ring, batch_size), TransitionView(ring, Horizon(ring.n_steps, 0.9)), schedule
    )


def ticks(lanes: int, script: list[str], kind: str = "NEXT_STEP") -> Any:
    return play([Game(lane, script) for lane in range(lanes)], kind, np.random.default_rng(0))


def due(replay: ReplayBuffer, stream: Any, count: int) -> list[int]:
    found = []
    for rows in islice(stream, count):
        replay.extend(rows)
        found.append(replay.updates_due())
    return found


@pytest.mark.parametrize(
    ("schedule", "lanes", "expected"),
    [
        (UpdateSchedule(4), 1, [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]),
        (UpdateSchedule(4), 8, [0, 2, 2, 2, 2, 2]),
        (UpdateSchedule(3), 8, [0, 2, 3, 3, 2, 3, 3, 2]),  # 8 steps a tick: remainders are kept
        (UpdateSchedule(6, gradient_steps=5), 2, [0, 0, 0, 5, 0, 0, 5]),
        (UpdateSchedule(4, gradient_steps=-1), 1, [0, 0, 0, 0, 4, 0, 0, 0, 4]),
        # rlpyt's replay ratio of 8: a batch of 32 for every 4 steps, one of 128 for every 16
        (UpdateSchedule(32 // 8), 4, [0, 1, 1, 1, 1]),
        (UpdateSchedule(128 // 8), 32, [0, 2, 2, 2, 2]),
        (UpdateSchedule(32 // 8), 2, [0, 0, 1, 0, 1]),  # decoy: rlpyt rounds up to one a tick, which is a ratio of 16
        (UpdateSchedule(3, gradient_steps=-1), 8, [0, 6, 9, 9, 6, 9]),
        (UpdateSchedule(1, learning_starts=5), 1, [0, 0, 0, 0, 0, 0, 1, 1]),
        (UpdateSchedule(4, learning_starts=5), 1, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),  # at step 8: a multiple is crossed
        (UpdateSchedule(3, gradient_steps=2, spread=True), 1, [0, 0, 1, 1, 0, 1, 1, 0, 1, 1]),
        (UpdateSchedule(3, gradient_steps=2, spread=True), 4, [0, 2, 3, 3, 2, 3, 3]),  # 2 2/3 a tick
        (
            UpdateSchedule(24, gradient_steps=35, spread=True),
            1,
            [0, 1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1],
        ),  # never 35 at once
        (UpdateSchedule(4, spread=True), 3, [0, 0, 1, 1, 1, 0, 1]),
        (UpdateSchedule(2, gradient_steps=3, learning_starts=5, spread=True), 1, [0, 0, 0, 0, 0, 0, 2, 1, 2]),
    ],
)
def test_updates_due_in_steps(schedule: UpdateSchedule, lanes: int, expected: list[int]) -> None:
    assert due(replay_of(schedule, lanes), ticks(lanes, ["go"]), len(expected)) == expected


def test_a_long_schedule_updates_once_per_train_freq() -> None:
    found = due(replay_of(UpdateSchedule(256, gradient_steps=128), 1, rows=300), ticks(1, ["go"]), 600)
    assert [(tick, count) for tick, count in enumerate(found) if count] == [(256, 128), (512, 128)]


def test_reset_rows_are_not_env_steps() -> None:
    found = due(replay_of(UpdateSchedule(2)), ticks(1, ["go", "terminated"]), 12)  # every third tick is a reset
    assert found == [0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_updates_due_in_episodes(kind: str) -> None:
    script = ["go", "lost life", "truncated"]
    for gradient_steps, per_update in ((7, 7), (-1, 6)):
        schedule = UpdateSchedule(2, "episode", gradient_steps)
        found = [count for count in due(replay_of(schedule), ticks(1, script, kind), 30) if count]
        assert found[:3] == [per_update] * 3
    together = due(replay_of(UpdateSchedule(2, "episode"), 4), ticks(4, script, kind), 8)
    assert [count for count in together if count] == [2, 2]  # four lanes end at once: two pairs of episodes


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_only_lanes_that_ended_count_as_episodes(kind: str) -> None:
    games = [Game(0, ["go", "truncated"]), Game(1, ["go"])]  # slots of ended lanes contain garbage in lane 1
    stream = play(games, kind, np.random.default_rng(0))
    assert sum(due(replay_of(UpdateSchedule(1, "episode"), 2), stream, 20)) == sum(
        e.steps[-1].last for e in games[0].episodes
    )


def test_a_restarted_stream_ends_no_episode() -> None:
    stream = play([Game(0, ["go"])], "NEXT_STEP", np.random.default_rng(0), restart=5)
    assert sum(due(replay_of(UpdateSchedule(1, "episode")), stream, 30)) == 0


def test_no_updates_are_due_while_no_row_may_start() -> None:
    replay = replay_of(UpdateSchedule(1), n=3)
    assert due(replay, ticks(1, ["go"]), 6) == [0, 0, 0, 1, 1, 1]
    only_ends = replay_of(UpdateSchedule(1), rows=3)  # rows in bounds alternate between a reset row and a `last` one
    for rows in islice(ticks(1, ["terminated"]), 30):
        only_ends.extend(rows)
        count = only_ends.updates_due()
        only_ends.refresh()
        lane, row = torch.zeros(60, dtype=torch.int64), torch.arange(60)
        assert (count > 0) == (rows.steps > 0 and bool(only_ends.ring.may_start(lane, row).any()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"spread": True, "unit": "episode"},
            "spread must be False with unit='episode' and gradient_steps=1, got True",
        ),
        (
            {"spread": True, "gradient_steps": -1},
            "spread must be False with unit='step' and gradient_steps=-1, got True",
        ),
    ],
)
def test_wrong_schedules_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        UpdateSchedule(**settings)


@SLOW
def test_spread_updates_continue_after_loading() -> None:
    """Saves at any tick, or with a schedule that runs its updates at once and has some pending."""
    schedule = UpdateSchedule(7, gradient_steps=3, spread=True)
    whole = due(replay_of(schedule), ticks(1, ["go"]), 40)
    assert sum(whole) == 39 * 3 // 7
    for at in range(1, 16):
        stream, first, second = ticks(1, ["go"]), replay_of(schedule), replay_of(schedule)
        begun = due(first, stream, at)
        second.load_state_dict({name: value.clone() for name, value in first.state_dict().items()})
        assert begun + due(second, stream, 40 - at) == whole
    stream, first, second = ticks(1, ["go"]), replay_of(UpdateSchedule(7, gradient_steps=3)), replay_of(schedule)
    assert sum(due(first, stream, 12)) == 3  # four steps are pending
    second.load_state_dict(first.state_dict())
    assert sum(due(second, stream, 28)) == 39 * 3 // 7 - 3


@pytest.mark.parametrize("counts", [[-1, 0, 0], [9, 10, 0], [9, 0, 10], [9, -1, 0], [9, 0, -1]])
def test_impossible_counts_are_rejected(counts: list[int]) -> None:
    replay = replay_of(UpdateSchedule(4))
    due(replay, ticks(1, ["go"]), 10)
    state = replay.state_dict()
    assert state["cadence"].tolist() == [9, 1, 1]  # the first row is a reset
    replay_of(UpdateSchedule(4)).load_state_dict(state)
    other = replay_of(UpdateSchedule(4))
    due(other, ticks(1, ["go"]), 7)
    held = {name: value.clone() for name, value in other.state_dict().items()}
    with pytest.raises(CheckpointError, match="The file is damaged"):
        other.load_state_dict({**state, "cadence": torch.tensor(counts)})
    assert all(torch.equal(value, held[name]) for name, value in other.state_dict().items())


def test_counts_of_several_learners_load_in_one_process() -> None:
    """The env steps of a file are those of all learners, its rows those of one."""
    saved, other = replay_of(UpdateSchedule(4)), replay_of(UpdateSchedule(4))
    saved.synchronize(lambda number: number)
    for rows in islice(ticks(1, ["go"]), 10):
        rows.steps *= 3
        saved.extend(rows)
    assert saved.state_dict()["cadence"].tolist() == [27, 27, 27]
    other.load_state_dict(saved.state_dict())
    assert other.state_dict()["cadence"].tolist() == [10, 10, 10]  # as many as there are rows
    assert other.size() == 10
    several = replay_of(UpdateSchedule(4))
    several.synchronize(lambda number: number)
    several.load_state_dict(saved.state_dict())
    assert several.state_dict()["cadence"].tolist() == [27, 27, 27]


def busy(replay: ReplayBuffer, count: int) -> list[Rows]:
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


@SLOW
@pytest.mark.parametrize(
    ("lanes", "n", "k"), a_few([(1, 1, 1), (1, 3, 4), (3, 1, 4), (3, 3, 1), (3, 3, 4)], (1, 1, 1), (3, 3, 4))
)
def test_a_traced_sample_stays_valid_as_rows_arrive(lanes: int, n: int, k: int) -> None:
    replay = replay_of(UpdateSchedule(1), lanes, rows=20, n=n, k=k)
    rows = busy(replay, 120)
    generator = torch.Generator().manual_seed(0)
    for tick in rows[:12]:
        replay.extend(tick)
    replay.refresh()
    noise = torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator)
    graph = make_fx(lambda u: flat(replay.sample_from(u)))(noise)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the constants, which are the ring's tensors
        traced = fx_function(graph, (noise,))
    sample = replay.traced_sampling(noise)
    different = 0
    for tick in rows[12:]:
        replay.extend(tick)
        replay.refresh()
        noise = torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator)
        want = flat(replay.sample_from(noise))
        with torch.no_grad():
            got = traced(noise)
        assert all(torch.equal(x, y) for x, y in zip(want, got, strict=True))
        assert all(torch.equal(x, y) for x, y in zip(want, flat(sample(noise)), strict=True))
        different += len(torch.unique(want[-1][1]))
    assert different > 200
    twin = replay_of(UpdateSchedule(1), lanes, rows=20, n=n, k=k)
    for tick in rows[:40]:
        twin.extend(tick)
    replay.load_state_dict(twin.state_dict())  # loading moves no tensor either
    with torch.no_grad():
        for of_traced in (traced(noise), flat(sample(noise))):
            assert all(torch.equal(x, y) for x, y in zip(flat(replay.sample_from(noise)), of_traced, strict=True))


def test_state_round_trip_of_the_whole_replay() -> None:
    first, second = (replay_of(UpdateSchedule(5), 3, rows=20, n=3, k=4) for _ in range(2))
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
        assert_same(first.sample_from(noise), second.sample_from(noise))


def test_feedback_reaches_the_sampler() -> None:
    received: list[tuple[Tensor, Tensor]] = []

    class Recording(UniformSampler):
        def feedback(self, index: Tensor, priority: Tensor) -> None:
            received.append((index, priority))

    replay = replay_of(UpdateSchedule(1))
    replay.sampler = Recording(replay.ring, 8)
    due(replay, ticks(1, ["go"]), 10)
    replay.refresh()
    batch = replay.sample_from(torch.rand(4, 8, dtype=torch.float64))
    replay.feedback(batch, torch.ones(8))
    assert received[0][0] is batch.place


def test_missing_attributes_of_stable_baselines3_name_their_equivalent() -> None:
    replay: Any = replay_of(UpdateSchedule(4), lanes=2)
    stream = ticks(2, ["go", "go", "terminated"])
    list(map(replay.extend, islice(stream, 9)))
    assert replay.size() == len(replay.ring) == 18
    for name, hint in REPLAY_ATTRIBUTES.items():
        with pytest.raises(AttributeError, match=f"ReplayBuffer has no attribute '{name}'. {re.escape(hint)}"):
            getattr(replay, name)
        for path in re.findall(r"replay(?:\.[a-z_]+)+", hint):
            eval(path, {"replay": replay})  # the named attribute exists
    with pytest.raises(AttributeError, match="no attribute 'sampel'. Did you mean 'sample'"):
        _ = replay.sampel


def filled(lanes: int = 2, prioritized: bool = False, count: int = 60) -> ReplayBuffer:
    replay = replay_of(UpdateSchedule(4), lanes)
    if prioritized:
        replay.sampler = PrioritizedSampler(replay.ring, 8, Prioritized(alpha=1.0, eps=1e-9, uniform_mix=0.1))
    for rows in islice(ticks(lanes, ["go", "truncated", "lost life"]), count):
        replay.extend(rows)
    return replay


def start_rows(replay: ReplayBuffer) -> list[tuple[int, int]]:
    replay.ring.refresh_bounds()
    lane, row = (torch.from_numpy(part) for part in replay.ring.rows_between(*replay.ring.intervals()))
    may = replay.ring.may_start(lane, row)
    return list(zip(lane[may].tolist(), row[may].tolist(), strict=True))


@pytest.mark.parametrize("prioritized", [False, True])
def test_sample_returns_as_many_valid_transitions_as_wanted(prioritized: bool) -> None:
    """Of the rows in bounds a quarter are `last`: four candidates would give padding for one sample in 256."""
    replay = filled(prioritized=prioritized)
    allowed = set(start_rows(replay))
    for size in (1, 7, 8, 3000, np.int64(5)):
        batch = replay.sample(size)
        assert len(batch.weight) == size
        assert bool((batch.weight > 0).all())
        assert batch.place.shape == (2, size)
        assert set(zip(*batch.place.tolist(), strict=True)) <= allowed
        lane, row = batch.place
        assert_same(batch, replay.view.gather(lane, row, batch.weight))
    assert len(replay.sample().weight) == 8


def test_sample_draws_start_rows_uniformly() -> None:
    replay = filled()
    allowed = start_rows(replay)
    batch = replay.sample(50_000)
    drawn = torch.tensor([allowed.index(place) for place in zip(*batch.place.tolist(), strict=True)])
    assert abs(chi_square(drawn, torch.ones(len(allowed)))) < 4.0


@ON_DEVICES_IN_FULL
def test_sample_draws_by_priority_with_importance_weights() -> None:
    replay = filled(prioritized=True)
    allowed = start_rows(replay)
    replay.refresh()
    priority = torch.rand(len(allowed), generator=torch.Generator().manual_seed(2)) + 0.1
    replay.sampler.feedback(torch.tensor(allowed).T, priority)
    share = 0.9 * priority / priority.sum() + 0.1 / len(allowed)
    generator = torch.Generator().manual_seed(3)
    batches = [replay.sample(1, generator) for _ in range(3000)]  # larger batches are stratified
    drawn = torch.tensor([allowed.index((int(batch.place[0]), int(batch.place[1]))) for batch in batches])
    assert abs(chi_square(drawn, share)) < 4.0
    batch = replay.sample(64)
    chance = torch.stack([share[allowed.index(place)] for place in zip(*batch.place.tolist(), strict=True)])
    expected = (chance.min() / chance) ** 0.4  # beta at the start
    torch.testing.assert_close(batch.weight, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("prioritized", [False, True])
def test_sample_is_determined_by_the_generator(prioritized: bool) -> None:
    one, other = filled(prioritized=prioritized), filled(prioritized=prioritized)
    other.sample(9)
    first, second = (replay.sample(20, torch.Generator().manual_seed(7)) for replay in (one, other))
    assert_same(first, second)
    different = one.sample(20, torch.Generator().manual_seed(8))
    assert not torch.equal(first.place, different.place)
    own = [filled(prioritized=prioritized) for _ in range(2)]
    assert_same(own[0].sample(20), own[1].sample(20))
    assert not torch.equal(own[0].sample(20).place, own[0].sample(20).place)


def test_sample_uses_no_global_generator() -> None:
    before = torch.get_rng_state()
    filled().sample(20)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("early", [False, True])
def test_sample_leaves_a_prioritized_sampler_unchanged(early: bool) -> None:
    """Priorities, sums and beta, also where rows have arrived since the last update."""
    replay = filled(prioritized=True)
    if early:
        replay.refresh()
        replay.sampler.advance(500, 1000)
    sampler = replay.sampler
    assert isinstance(sampler, PrioritizedSampler)
    before = [tensor.clone() for tensor in sampler.mutable_tensors()]
    replay.sample(50)
    assert all(torch.equal(old, new) for old, new in zip(before, sampler.mutable_tensors(), strict=True))
    replay.refresh()
    assert check_valid(sampler) == (True, "valid")
    assert float(sampler.beta) == pytest.approx(0.7 if early else 0.4)


@pytest.mark.parametrize("wrong", [0, -3, 2.5, "8", True])
def test_wrong_sizes_are_rejected(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="batch_size"):
        filled().sample(wrong)


def test_wrong_generators_and_empty_buffers_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"generator must be a torch.Generator or None, got 0. Use"):
        filled().sample(8, 0)  # type: ignore[arg-type]  # on purpose
    for count in (0, 1):
        with pytest.raises(ConfigurationError, match=rf"must hold a complete .*, got {2 * count} rows. Call learn"):
            filled(count=count).sample(8)


@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize(
    "cadence",
    [
        UpdateSchedule(1),
        UpdateSchedule(4),
        UpdateSchedule(4, learning_starts=9),
        UpdateSchedule(3, gradient_steps=-1, learning_starts=12),
        UpdateSchedule(7, gradient_steps=2, spread=True), UpdateSchedule(5, gradient_steps=3, learning_starts=11, spread=True),
        UpdateSchedule(24, learning_starts=13, spread=True), UpdateSchedule(24, gradient_steps=35, learning_starts=2, spread=True),
        UpdateSchedule(1, "episode", learning_starts=8),
    ],
)  # fmt: skip
def test_no_update_comes_sooner_than_it_was_waited_for(cadence: UpdateSchedule, lanes: int, kind: str) -> None:
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
