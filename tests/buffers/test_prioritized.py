"""Prioritized sampler: settings, weights by hand, feedback, frequencies and traces."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.buffers import Layout, Prioritized, PrioritizedSampler, ReplayBuffer, Ring, TransitionView, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.errors import ConfigurationError
from sb_dqn.schedules import Constant, Linear, Piecewise
from tests.buffers.test_sum_tree import chi_square
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, play
from tests.invariants import check_valid
from tests.marks import SLOW, a_few

pytestmark = pytest.mark.usefixtures("storage")


def replay_of(
    lanes: int = 1, rows: int = 50, batch_size: int = 8, n: int = 1, k: int = 1, **settings: Any
) -> ReplayBuffer:
    ring = Ring(Layout(rows * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, n_steps=n, frame_stack=k))
    sampler = PrioritizedSampler(ring, batch_size, Prioritized(**settings))
    return ReplayBuffer(ring, sampler, TransitionView(ring, Horizon(ring.n_steps, 0.9)), UpdateSchedule())


def filled(count: int, lanes: int = 1, script: tuple[str, ...] = ("go",), **settings: Any) -> ReplayBuffer:
    """Returns a buffer with `count` ticks, the last of them open."""
    replay = replay_of(lanes, **settings)
    for rows in islice(play([Game(b, script) for b in range(lanes)], "NEXT_STEP", np.random.default_rng(0)), count):
        replay.extend(rows)
    replay.refresh()
    return replay


def sampler_of(replay: ReplayBuffer) -> PrioritizedSampler:
    assert isinstance(replay.sampler, PrioritizedSampler)
    return replay.sampler


def set_priorities(replay: ReplayBuffer, rows: list[int], priority: list[float], lane: int = 0) -> None:
    replay.sampler.feedback(torch.tensor([[lane] * len(rows), rows]), torch.tensor(priority))


def leaves(replay: ReplayBuffer) -> list[float]:
    return sampler_of(replay).tree.leaves[: replay.ring.capacity].tolist()


# shares .05, .3, .6, .95 lie in rows 0 .. 3; number i of the noise places the draw within the i-th quarter
NOISE = torch.tensor([0.2, 0.2, 0.4, 0.8], dtype=torch.float64)
BY_HAND = [
    (0.4, [1.0, 0.8467453124, 0.7682293564, 0.7169776240]),
    (1.0, [1.0, 0.6597539554, 0.5172818580, 0.4352752816]),
    (0.0, [1.0, 1.0, 1.0, 1.0]),
]


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize(("beta", "expected"), BY_HAND)
def test_weights_by_hand(beta: float, expected: list[float], lanes: int) -> None:
    replay = filled(5, lanes, batch_size=4, beta=beta, eps=1e-15)  # rows 0 .. 3 of a lane may start
    for lane in range(lanes):
        set_priorities(replay, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0], lane)
    noise = NOISE if lanes == 1 else torch.tensor([0.1, 0.1, 0.3, 0.85], dtype=torch.float64)
    where, row, weight = replay.sampler.locate(noise)
    assert row.tolist() == [0, 1, 2, 3]
    assert bool((where < lanes).all())
    np.testing.assert_allclose(weight, expected, rtol=1e-6)  # independent of N, which cancels out


def test_weights_are_divided_by_the_largest_of_the_batch() -> None:
    replay = filled(5, batch_size=2, beta=0.4, eps=1e-15)
    set_priorities(replay, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    _, row, weight = replay.sampler.locate(torch.tensor([0.6, 0.9], dtype=torch.float64))
    assert row.tolist() == [1, 3]
    np.testing.assert_allclose(weight, [1.0, 0.8467453124], rtol=1e-6)  # 0.88371 / 1.04365
    # decoy: with row 0, which has the largest weight of all, they would be 0.84675 and 0.71698


def test_weights_of_a_mix() -> None:
    replay = filled(5, batch_size=4, beta=0.5, eps=1e-15, uniform_mix=0.2, alpha=1.0)
    set_priorities(replay, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    # the first fifth is uniform: share .05 is a quarter of it, row 1; .4 and .8 are a quarter and three of the rest
    _, row, weight = replay.sampler.locate(torch.tensor([0.2, 0.6, 0.0, 0.2], dtype=torch.float64))
    chance = np.array([0.21, 0.21, 0.29, 0.37])  # 0.8 p / 10 + 0.2 / 4
    assert row.tolist() == [1, 1, 2, 3]
    np.testing.assert_allclose(weight, (chance / chance.min()) ** -0.5, rtol=1e-6)
    both = torch.linspace(0, 1, 5, dtype=torch.float64)[:-1]
    everywhere = filled(5, batch_size=4, uniform_mix=1.0)
    set_priorities(everywhere, [0, 1, 2, 3], [1.0, 2.0, 3.0, 4.0])
    _, row, weight = everywhere.sampler.locate(both)
    assert row.tolist() == [0, 1, 2, 3]
    assert weight.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("beta", "steps"),
    [
        (Prioritized().beta, {0: 0.4, 500: 0.7, 1000: 1.0, 2000: 1.0}),
        (Linear(0.4, 1.0, steps=100_000), {0: 0.4, 50_000: 0.7, 10**6: 1.0}),
        (Piecewise(((1562, 0.4), (1_562_500, 1.0))), {0: 0.4, 782_031: 0.7, 1_562_500: 1.0}),
        (0.5, {0: 0.5, 10**9: 0.5}),
        (lambda remaining: 1.0 - 0.5 * remaining, {0: 0.5, 1000: 1.0}),
    ],
)
def test_beta_follows_its_schedule(beta: Any, steps: dict[int, float]) -> None:
    replay = replay_of(beta=beta)
    for step, value in steps.items():
        replay.sampler.advance(step, 1000)
        replay.refresh()
        assert float(sampler_of(replay).beta) == pytest.approx(value, abs=1e-9)


def test_new_rows_get_the_largest_priority_so_far() -> None:
    replay = replay_of(alpha=0.5, eps=1e-15)
    stream = play([Game(0, ("go",))], "NEXT_STEP", np.random.default_rng(0))
    for rows in islice(stream, 3):
        replay.extend(rows)
    replay.refresh()
    assert leaves(replay)[:3] == [1.0, 1.0, 0.0]  # the open row may not start
    set_priorities(replay, [0, 1], [0.25, 0.04])
    assert leaves(replay)[:3] == pytest.approx([0.5, 0.2, 0.0])
    for expected, error in ((0.5, 0.01), (0.5, 9.0), (3.0, 1.0), (3.0, 1.0)):  # below 1 too, and it never falls
        replay.extend(next(stream))
        replay.refresh()
        newest = int(replay.ring.cursor[0]) - 2
        assert leaves(replay)[newest] == pytest.approx(expected)
        set_priorities(replay, [newest], [error])
    constant = filled(4, alpha=0.5, initial=16.0)
    assert leaves(constant)[:4] == [4.0, 4.0, 4.0, 0.0]
    set_priorities(constant, [0], [100.0])
    assert float(sampler_of(constant).largest) == pytest.approx(10.0)


def test_feedback() -> None:
    replay = filled(60, alpha=1.0, eps=0.5, script=("go", "go", "truncated"))  # rows 10 .. 58 are in bounds
    ends = torch.nonzero(replay.ring.last)[:, 0] + 50
    end = int(ends[ends < 59][-1])
    before = leaves(replay)
    set_priorities(replay, [9, 59, end, 10**6, -1], [7.0] * 5)  # overwritten, open, `last`, not arrived, negative
    assert leaves(replay) == before
    assert float(sampler_of(replay).largest) == 0.0  # ignored feedback does not count as the largest either
    rows = [r for r in range(20, 40) if before[r]][:4]
    set_priorities(
        replay,
        [rows[0], rows[1], rows[0], rows[0], rows[2], rows[3]],
        [0.1, float("nan"), 0.3, 0.2, -3.0, float("inf")],
    )
    found = [leaves(replay)[row] for row in rows]
    assert found[:3] == pytest.approx(
        [0.8, 0.5, 0.5]
    )  # the largest of duplicates; NaN and negative numbers are taken as 0
    assert 1e30 < found[3] < float("inf")
    assert check_valid(sampler_of(replay)) == (True, "valid")
    set_priorities(replay, [rows[3]], [1.0])
    replay.sampler.feedback(torch.tensor([[0], [rows[0]]]), torch.ones(1, requires_grad=True) * 2)
    assert leaves(replay)[rows[0]] == 2.5
    assert not sampler_of(replay).tree.leaves.requires_grad


@SLOW
@pytest.mark.parametrize("mix", [0.0, 0.3])
def test_rows_are_drawn_in_proportion(mix: float) -> None:
    replay = filled(2**9 + 1, 2, ("go",) * 5 + ("lost life", "truncated"), rows=600, batch_size=1, uniform_mix=mix)
    sampler, rng = sampler_of(replay), torch.Generator().manual_seed(1)
    lane, row = torch.arange(2).repeat_interleave(2**9), torch.arange(2**9).repeat(2)
    sampler.feedback(torch.stack([lane, row]), torch.rand(2**10, generator=rng) * 2)
    p = sampler.tree.leaves[: replay.ring.capacity]
    share = (1 - mix) * p / p.sum() + mix * (p > 0) / (p > 0).sum()
    noise = torch.rand(200_000, dtype=torch.float64, generator=rng)
    found, _ = sampler._select(noise)  # independent samples, not stratified ones
    assert abs(chi_square(found, share)) < 4.0
    assert chi_square(found, p.sqrt()) > 8.0
    stratified = PrioritizedSampler(replay.ring, 4000, Prioritized(uniform_mix=mix))
    stratified.refresh()
    stratified.tree.leaves.copy_(sampler.tree.leaves)
    stratified.tree.rebuild()
    lane, row, _ = stratified.locate(noise[:4000])
    hits = torch.bincount(row % replay.ring.rows * 2 + lane, minlength=replay.ring.capacity)
    assert float((hits - share * 4000).abs().max()) < (2.0 if mix == 0.0 else 4.0)  # one part is one draw


@pytest.mark.parametrize("mix", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("lanes", [1, 3])
def test_weights_are_zero_while_no_row_may_start(lanes: int, mix: float) -> None:
    for ticks in (0, 2, 3):
        replay = filled(ticks, lanes, n=3, uniform_mix=mix)
        batch = replay.sample_from(torch.rand(8, dtype=torch.float64))
        assert batch.weight.tolist() == [0.0] * 8
        assert bool((batch.place[0] < lanes).all())
        assert not replay.ring.can_start()
    assert bool(
        (filled(4, lanes, n=3, uniform_mix=mix).sample_from(torch.rand(8, dtype=torch.float64)).weight == 1).all()
    )


@SLOW
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, about itself
@pytest.mark.parametrize(
    ("mode", "lanes", "mix"),
    a_few([
        ("traced", 1, 0.0),
        ("traced", 3, 0.25),
        pytest.param(
            "compiled", 1, 0.0,
            marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
        ),
    ], ("traced", 3, 0.25)),
)  # fmt: skip
def test_a_trace_does_the_same(mode: Mode, lanes: int, mix: float, capsys: pytest.CaptureFixture[str]) -> None:
    rows = 40 if mode == "traced" else 2**20  # traced: the ring wraps; compiled: see below
    replays = [replay_of(lanes, rows, n=3, k=4, uniform_mix=mix) for _ in range(2)]
    names = ("go", *EVENTS)
    rng, draws = np.random.default_rng(0), torch.Generator().manual_seed(0)

    def step(replay: ReplayBuffer, noise: Tensor) -> tuple[Tensor, ...]:
        lane, row, weight = replay.sampler.locate(noise)
        before = sampler_of(replay).tree.leaves.take(replay.ring.cells(lane, row))  # a read that must not be reordered
        replay.sampler.feedback(torch.stack([lane, row]), (row % 5 + lane).double())
        return lane, row, weight, before.sqrt()

    traced: Any = None
    ticks = islice(play([Game(b, names) for b in range(lanes)], "SAME_STEP", rng, restart=31), 150)
    for number, tick in enumerate(ticks):
        for replay in replays:
            replay.extend(tick)
            replay.refresh()
        if traced is None and replays[0].ring.can_start():
            before = sampler_of(replays[1]).tree.leaves.clone()
            with replays[1].sampler.preserve_state():
                example = torch.zeros(8, dtype=torch.float64)
                traced = accelerate(lambda noise: step(replays[1], noise), (example,), mode)
            assert torch.equal(before, sampler_of(replays[1]).tree.leaves)
        if traced is not None:
            noise = torch.rand(8, dtype=torch.float64, generator=draws)
            found, expected = traced(noise), step(replays[0], noise)
            assert torch.equal(found[0], expected[0])
            assert torch.equal(found[1], expected[1])
            torch.testing.assert_close(found[2:], expected[2:], rtol=1e-6, atol=0)
            if rows == 40 or number % 25 == 24:  # a large tree takes far longer to compare than to write
                mine, other = sampler_of(replays[0]), sampler_of(replays[1])
                torch.testing.assert_close(mine.tree.leaves, other.tree.leaves, rtol=1e-6, atol=0)
                assert check_valid(other) == (True, "valid")
    assert capsys.readouterr().err == ""
    assert int(replays[0].ring.cursor.min()) > 100
    if mode == "compiled":  # it writes in place; compiled code that copies the tree would take longer than one copy
        tree = sampler_of(replays[1]).tree.leaves
        assert seconds(lambda: traced(noise)) < seconds(lambda: tree.clone())


def seconds(function: Callable[[], Any]) -> float:
    """Returns the median time of a call."""
    times = []
    for _ in range(15):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": -0.1}, r"prioritized_replay\['alpha'\].*-0.1"),
        ({"beta": 1.5}, "beta.*1.5"),
        ({"beta": Linear(0.4, 1.1)}, "beta"),
        ({"beta": lambda remaining: 2.0 - remaining}, "the value of .*, got 2.0"),
        ({"eps": 0.0}, "eps.* > 0"),
        ({"initial": "mean"}, "initial.* must be 'max', 'td_error' or a number above 0, got 'mean'"),
        ({"initial": 0.0}, "initial"),
        ({"uniform_mix": 1.1}, "uniform_mix"),
    ],
)
def test_wrong_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Prioritized(**settings)


def test_a_beta_that_leaves_its_range_during_training_is_rejected() -> None:
    replay = replay_of(beta=lambda remaining: 4 * remaining * (1 - remaining) * 1.2)
    replay.sampler.advance(500, 1000)
    with pytest.raises(ConfigurationError, match="beta.*1.2"):
        replay.refresh()
    assert Prioritized(beta=1).beta == Constant(1.0)
