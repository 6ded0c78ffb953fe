"""Ring, sampler and n-step transitions against a naive reading of the episodes, over all events of a stream."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.buffers.n_step_transitions import Horizon, TransitionView
from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.uniform_sampler import UniformSampler
from sb_dqn.schedules import Annealed
from sb_dqn.types import Batch
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, naive_starts, naive_transition, play
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL, a_few

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

GAMMA = 0.9
scripts = st.lists(st.lists(st.sampled_from(["go", "go", *EVENTS]), min_size=1, max_size=12), min_size=5, max_size=5)


def assert_equal_to_naive(batch: Batch, games: list[Game], n: int, k: int, gamma: float = GAMMA) -> None:
    rows = [game.rows() for game in games]
    for i, (lane, row) in enumerate(batch.place.T.tolist()):
        episode, t = rows[lane][row]
        want = naive_transition(episode, t, n, k, gamma)
        assert int(batch.action[i]) == want["action"]
        np.testing.assert_allclose(batch.return_[i], want["return_"], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(batch.discount[i], want["discount"], rtol=1e-6)
        for key in SPACES:
            np.testing.assert_array_equal(batch.obs[key][i], want["obs"][key], err_msg=f"obs {key} of {lane, row}")
            np.testing.assert_array_equal(
                batch.next_obs[key][i], want["next_obs"][key], err_msg=f"next {key} {lane, row}"
            )


def check_everything(ring: Ring, view: TransitionView, games: list[Game], noise: torch.Tensor) -> int:
    """Checks the start rows, all of their transitions, and a sampled batch; returns the number of transitions compared."""
    n, k = ring.n_steps, ring.frame_stack
    ring.refresh_bounds()
    assert check_valid(ring) == (True, "valid")
    every = [(b, r) for b, game in enumerate(games) for r in range(-2, len(game.rows()) + 2)]
    lane, row = torch.tensor(every).T
    may = ring.may_start(lane, row)
    want = {(b, r) for b, game in enumerate(games) for r in naive_starts(game.rows(), ring.rows, n, k)}
    assert {pair for pair, yes in zip(every, may.tolist(), strict=True) if yes} == want
    assert ring.can_start() == bool(want)
    if not want:
        return 0
    assert_equal_to_naive(view.gather(lane[may], row[may], torch.ones(int(may.sum()))), games, n, k)
    annealed = TransitionView(ring, Horizon(Annealed(ring.n_steps, 1, 1), GAMMA))
    for shorter in range(n, 0, -1):  # the same view, while n and gamma change
        annealed.horizon.set(shorter, 0.5 + 0.1 * shorter)
        batch = annealed.gather(lane[may], row[may], torch.ones(int(may.sum())))
        assert_equal_to_naive(batch, games, shorter, k, 0.5 + 0.1 * shorter)
    lane, row, weight = UniformSampler(ring, noise.shape[1]).locate(noise)
    drawn = weight > 0
    assert all(((b, r) in want) == bool(w) for b, r, w in zip(lane.tolist(), row.tolist(), drawn.tolist(), strict=True))
    batch = view.gather(lane, row, weight)
    assert batch.return_.isfinite().all()
    assert batch.discount.isfinite().all()
    return len(want)


@pytest.mark.parametrize(  # each pair of n, k and lanes
    ("n", "k", "lanes"),
    a_few(
        [(1, 1, 1), (1, 4, 3), (1, 1, 5), (3, 4, 1), (3, 1, 3), (3, 4, 5), (5, 1, 1), (5, 4, 3), (5, 1, 5), (1, 4, 1)],
        (1, 4, 3),
        (3, 1, 3),
        (3, 4, 5),
        (5, 4, 3),
    ),
)
@settings(max_examples=3, derandomize=True, database=None)
@given(
    scripts=scripts,
    kind=st.sampled_from(["NEXT_STEP", "SAME_STEP"]),
    spare=st.integers(0, 12),
    ticks=st.integers(20, 60),
    restart=st.sampled_from([0, 0, 7]),
)
def test_equal_to_the_naive_reading(
    n: int, k: int, lanes: int, scripts: list[list[str]], kind: str, spare: int, ticks: int, restart: int
) -> None:
    games = [Game(lane, scripts[lane]) for lane in range(lanes)]
    ring = Ring(Layout((n + k + spare) * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, frame_stack=k, n_steps=n))
    view = TransitionView(ring, Horizon(ring.n_steps, GAMMA))
    noise = torch.rand(4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(ticks))
    for tick, rows in enumerate(islice(play(games, kind, np.random.default_rng(ticks), restart), ticks)):
        ring.cut() if rows.action is None else ring.depart(rows.action)
        for slot in rows.slots:
            ring.arrive(slot)
        if tick % 6 == 0 or tick == ticks - 1:
            check_everything(ring, view, games, noise)
    assert ring.cursor.tolist() == [len(game.rows()) for game in games]


def worked_ring(n: int, ending: str) -> tuple[Ring, Game]:
    """Returns a ring with rewards 1 .. 8, whose third step is `ending`; the game continues after a reset."""
    game = Game(0, ["go", "go", ending, "go", "go"])
    ring = Ring(Layout(20, 1, SPACES, num_actions=NUM_ACTIONS, n_steps=n))
    rewards = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    for rows in islice(play([game], "NEXT_STEP", np.random.default_rng(0)), 9):
        ring.cut() if rows.action is None else ring.depart(rows.action)
        for slot in rows.slots:
            if rows.steps:
                slot.reward[:] = next(rewards)
            ring.arrive(slot)
    ring.refresh_bounds()
    return ring, game


def gathered(ring: Ring, rows: list[int], gamma: float = GAMMA) -> Batch:
    view = TransitionView(ring, Horizon(ring.n_steps, gamma))
    return view.gather(torch.zeros(len(rows), dtype=torch.int64), torch.tensor(rows), torch.ones(len(rows)))


@pytest.mark.parametrize(
    ("ending", "returns", "discounts", "targets"),
    [
        ("go", [5.23, 7.94, 10.65], [0.729, 0.729, 0.729], [12.52, 15.23, 17.94]),
        ("terminated", [5.23, 4.7, 3.0], [0.0, 0.0, 0.0], [5.23, 4.7, 3.0]),
        ("truncated", [5.23, 4.7, 3.0], [0.729, 0.81, 0.9], [12.52, 12.8, 12.0]),
        ("lost life", [5.23, 4.7, 3.0], [0.0, 0.0, 0.0], [5.23, 4.7, 3.0]),
    ],
)
def test_n_step_returns_by_hand(
    ending: str, returns: list[float], discounts: list[float], targets: list[float]
) -> None:
    ring, game = worked_ring(3, ending)
    batch = gathered(ring, [0, 1, 2])
    np.testing.assert_allclose(batch.return_, returns, rtol=1e-6)
    np.testing.assert_allclose(batch.discount, discounts, rtol=1e-6)
    np.testing.assert_allclose(batch.return_ + batch.discount * 10, targets, rtol=1e-6)
    if ending == "truncated":  # bootstraps from the final observation, not from the reset
        final, reset = game.episodes[0].steps[3].obs["joints"], game.episodes[1].steps[0].obs["joints"]
        np.testing.assert_array_equal(batch.next_obs["joints"], np.stack([final] * 3))
        assert not np.array_equal(final, reset)


def test_common_mistakes_give_other_numbers() -> None:
    truncated = gathered(worked_ring(3, "truncated")[0], [0, 1, 2])
    targets = truncated.return_ + truncated.discount * 10
    assert not np.isclose(targets[1], 4.7)  # time limit treated as termination
    assert not np.isclose(targets[1], 4.7 + 0.729 * 10)  # gamma^n, although only two rewards were summed
    assert not np.isclose(truncated.return_[2], 3 + 0.9 * 0 + 0.81 * 4)  # summed into the next episode


def test_rows_near_the_cursor_wait_until_their_window_is_complete() -> None:
    ring, _ = worked_ring(3, "go")
    rows = torch.arange(12)
    allowed = ring.may_start(torch.zeros_like(rows), rows)
    assert allowed.nonzero()[:, 0].tolist() == [0, 1, 2, 3, 4, 5]  # nine rows have arrived, row 8 is open


def test_one_step_and_gamma_zero() -> None:
    batch = gathered(worked_ring(1, "terminated")[0], [0, 1, 2])
    np.testing.assert_allclose(batch.return_, [1, 2, 3])
    np.testing.assert_allclose(batch.discount, [0.9, 0.9, 0.0], rtol=1e-6)
    assert gathered(worked_ring(3, "go")[0], [0], gamma=0.0).return_.tolist() == [1.0]


def test_batch_has_the_dtypes_that_a_loss_expects() -> None:
    batch = gathered(worked_ring(3, "go")[0], [0, 1])
    assert batch.action.dtype == batch.place.dtype == torch.int64
    assert batch.return_.dtype == batch.discount.dtype == batch.weight.dtype == torch.float32
    assert batch.obs["camera"].dtype == torch.uint8
    assert batch.place.tolist() == [[0, 0], [0, 1]]
