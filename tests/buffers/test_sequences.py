"""Sequence replay against a naive reading of each lane, over all events of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.buffers import Layout, Prioritized, PrioritizedSampler, ReplayBuffer, Ring, UpdateSchedule
from sb_dqn.buffers.n_step_transitions import Horizon
from sb_dqn.buffers.sequences import Sequences, SequenceView
from sb_dqn.errors import CheckpointError, ConfigurationError, MemoryBudgetError
from sb_dqn.losses.transforms import IDENTITY, rescale, rescaling
from sb_dqn.schedules import Annealed
from sb_dqn.types import Batch, Rows
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Game, naive_stack, naive_starts, naive_transition, play
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL, SLOW, a_few

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

GAMMA = 0.9
scripts = st.lists(
    st.lists(st.sampled_from(["go"] * 6 + list(EVENTS)), min_size=1, max_size=14), min_size=3, max_size=3
)
shapes = st.sampled_from(
    [(1, 0, 0), (4, 0, 0), (3, 2, 0), (1, 1, 1), (4, 3, 1), (4, 2, 2), (6, 0, 3), (3, 6, 3), (8, 4, 4)]
)


def q_taken(lane: int, row: int) -> float:
    return float(np.float32(np.sin(3 * lane + row)))


def q_best(lane: int, row: int) -> float:
    return float(np.float32(2 + np.cos(lane + 2 * row)))


def state_of(lane: int, row: int) -> list[float]:
    return [lane + 0.5, float(row)]


def replay_of(sequences: Sequences, lanes: int, rows: int, n: int, k: int, eps: float | None = None) -> ReplayBuffer:
    ring = Ring(
        Layout(
            rows * lanes,
            lanes,
            SPACES,
            num_actions=NUM_ACTIONS,
            frame_stack=k,
            n_steps=n,
            start_rule=sequences.start_rule(n, k, 2),
        )
    )
    transform = IDENTITY if eps is None else rescaling(eps)
    view = SequenceView(ring, sequences, Horizon(ring.n_steps, GAMMA), transform=transform)
    priorities = view.input_priorities if sequences.has_input_priorities else None
    sampler = PrioritizedSampler(ring, 4, Prioritized(alpha=0.7, eps=1e-3), priorities)
    return ReplayBuffer(ring, sampler, view, UpdateSchedule(1))


def fed(
    replay: ReplayBuffer, games: list[Game], ticks: Iterator[Rows], with_values: set[tuple[int, int]] | None = None
) -> Iterator[int]:
    """Feeds the ticks one by one, with extra outputs for each departing row; adds lane and row of these to `with_values`."""
    for tick, rows in enumerate(ticks):
        if rows.action is not None:
            open_rows = replay.ring.cursor - 1
            if with_values is not None:
                with_values |= set(enumerate(open_rows.tolist()))
            outputs: dict[str, Any] = {"state": state_of, "q_taken": q_taken, "q_best": q_best}
            rows.extra = {
                name: np.array([f(lane, int(row)) for lane, row in enumerate(open_rows)], np.float32)
                for name, f in outputs.items()
            }
        replay.extend(rows)
        yield tick


def check_batch(
    batch: Batch, replay: ReplayBuffer, games: list[Game], used: int | None = None, gamma: float = GAMMA
) -> None:
    view, k = replay.view, replay.ring.frame_stack
    assert isinstance(view, SequenceView)
    warmup, length, n = view.warmup, view.length, view.n_steps
    used = used or n
    extra = batch.extra
    assert extra is not None
    whole = warmup + length + n
    at = {name: column.view(whole, -1).tolist() for name, column in extra.items() if name not in ("state", "end")}
    trained = {
        name: column.view(length, -1).tolist()
        for name, column in (("action", batch.action), ("return_", batch.return_), ("discount", batch.discount),
                             ("weight", batch.weight), ("end", extra["end"]))
    }  # fmt: skip
    for i, (lane, start) in enumerate(batch.place.T.tolist()):
        rows = games[lane].rows()
        begun = False
        for j in range(whole):
            row = start - warmup + j
            if row < 0:
                continue
            episode, t = rows[row]
            first = t == 0
            begun |= first and j <= warmup
            assert at["begins"][j][i] == first
            assert at["previous_action"][j][i] == (-1 if first else episode.actions[t - 1])
            assert at["previous_reward"][j][i] == pytest.approx(episode.steps[t].reward)
            for key in SPACES:
                seen = batch.obs[key].unflatten(0, (whole, -1))[j, i]
                np.testing.assert_array_equal(seen, naive_stack(episode, t, key, k), err_msg=f"{key} of {lane, row}")
        if not begun and "state" in extra:
            assert extra["state"][i].tolist() == state_of(lane, start - warmup)
        counts = True
        for j in range(length):
            episode, t = rows[start + j]
            counts &= not episode.steps[t].last
            assert (trained["weight"][j][i] > 0) == counts
            if counts:
                want = naive_transition(episode, t, used, k, gamma)
                assert trained["action"][j][i] == want["action"]
                assert trained["return_"][j][i] == pytest.approx(want["return_"], rel=1e-5, abs=1e-5)
                assert trained["discount"][j][i] == pytest.approx(want["discount"], rel=1e-6)
                assert trained["end"][j][i] == j + steps_of(episode, t, used)


def steps_of(episode: Any, t: int, n: int) -> int:
    for m in range(1, n):
        if episode.steps[t + m].terminal or episode.steps[t + m].last:
            return m
    return n


def naive_priority(
    game: Game,
    lane: int,
    start: int,
    view: SequenceView,
    eps: float | None,
    with_values: set[tuple[int, int]] | None = None,
) -> float | None:
    rows, errors = game.rows(), []
    for row in range(start + view.sequences.priority_offset, start + view.sequences.priority_offset + view.length):
        episode, t = rows[row]
        if episode.steps[t].last:
            break
        step = naive_transition(episode, t, view.n_steps, 1, GAMMA)
        end = row + steps_of(episode, t, view.n_steps)
        if step["discount"] and with_values is not None and (lane, end) not in with_values:
            continue
        value = q_best(lane, end)
        if eps is None:
            y = step["return_"] + step["discount"] * value
        else:
            h_inverse = ((np.sqrt(1 + 4 * eps * (abs(value) + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1
            y = float(rescale(torch.tensor(step["return_"] + step["discount"] * h_inverse, dtype=torch.float64), eps))
        errors.append(abs(q_taken(lane, row) - y))
    eta = view.sequences.eta
    return eta * max(errors) + (1 - eta) * float(np.mean(errors)) if errors else None


@SLOW
@settings(max_examples=12, derandomize=True, database=None)
@given(
    lanes=st.sampled_from([1, 3]),
    k=st.sampled_from([1, 3]),
    scripts=scripts,
    shape=shapes,
    n=st.integers(1, 3),
    kind=st.sampled_from(["NEXT_STEP", "SAME_STEP"]),
    spare=st.integers(0, 25),
    ticks=st.integers(20, 70),
    restart=st.sampled_from([0, 0, 0, 11]),
    eps=st.sampled_from([None, 1e-3]),
)
def test_equal_to_the_naive_reading(
    lanes: int, k: int, scripts: list[list[str]], shape: tuple[int, int, int], n: int, kind: str, spare: int,
    ticks: int, restart: int, eps: float | None,
) -> None:  # fmt: skip
    games = [Game(lane, scripts[lane]) for lane in range(lanes)]
    sequences = Sequences(*shape)
    rule = sequences.start_rule(n, k, 2)
    replay = replay_of(sequences, lanes, rule.behind + rule.ahead + 1 + spare, n, k, eps)
    ring, sampler = replay.ring, replay.sampler
    assert isinstance(sampler, PrioritizedSampler)
    seen: set[tuple[int, int]] = set()
    with_values: set[tuple[int, int]] = set()
    for tick in fed(
        replay, games, islice(play(games, kind, np.random.default_rng(ticks), restart), ticks), with_values
    ):
        replay.refresh()
        assert check_valid(ring) == check_valid(sampler) == (True, "valid")
        want = {
            (lane, r)
            for lane, game in enumerate(games)
            for r in naive_starts(game.rows(), ring.rows, rule.ahead, rule.behind + 1, rule.every)
        }
        every = [(lane, r) for lane, game in enumerate(games) for r in range(len(game.rows()))]
        lane, row = torch.tensor(every).T
        may = ring.may_start(lane, row)
        assert {pair for pair, yes in zip(every, may.tolist(), strict=True) if yes} == want
        assert ring.can_start() == bool(want)
        check_input_priorities(replay, games, want - seen, eps, with_values)
        seen |= want
        if want and tick % 5 == 0:
            check_batch(replay.view.gather(lane[may], row[may], torch.ones(int(may.sum()))), replay, games)
            annealed = SequenceView(ring, sequences, Horizon(Annealed(ring.n_steps, 1, 1), GAMMA))
            annealed.horizon.set(1, 0.6)
            check_batch(annealed.gather(lane[may], row[may], torch.ones(int(may.sum()))), replay, games, 1, 0.6)
            noise = torch.rand(4, dtype=torch.float64, generator=torch.Generator().manual_seed(tick))
            drawn = replay.sample_from(noise)
            assert {(b, r) for b, r in drawn.place.T.tolist()} <= want
            check_batch(drawn, replay, games)


def check_input_priorities(
    replay: ReplayBuffer,
    games: list[Game],
    fresh: set[tuple[int, int]],
    eps: float | None,
    with_values: set[tuple[int, int]],
) -> None:
    """Checks the priorities of new sequences; there is no value for a last row that was cut."""
    ring, sampler, view = replay.ring, replay.sampler, replay.view
    assert isinstance(sampler, PrioritizedSampler)
    assert isinstance(view, SequenceView)
    for lane, row in fresh:
        error = naive_priority(games[lane], lane, row, view, eps, with_values)
        leaf = float(sampler.tree.leaves[row % ring.rows * ring.num_lanes + lane])
        assert leaf == pytest.approx(1.0 if error is None else (error + 1e-3) ** 0.7, rel=1e-4)


def test_input_priority_by_hand() -> None:
    """Rewards 1, 0, 2, 0, 1; largest values 1 .. 5; values taken 0.5; n = 2, gamma 0.9: only where both are known."""
    sequences = Sequences(3, 0, 0)
    replay = replay_of(sequences, 1, 12, 2, 1, 1e-3)
    rewards = iter([1.0, 0.0, 2.0, 0.0, 1.0, 0.0, 0.0])
    for tick, rows in enumerate(islice(play([Game(0, ["go"])], "NEXT_STEP", np.random.default_rng(0)), 6)):
        if tick:
            rows.extra = {"q_taken": np.array([0.5], np.float32), "q_best": np.array([tick], np.float32)}
            rows.slots[0].reward[:] = next(rewards)
        replay.extend(rows)
    replay.refresh()
    assert isinstance(replay.sampler, PrioritizedSampler)
    assert isinstance(replay.view, SequenceView)
    zero = torch.zeros(1, dtype=torch.int64)
    assert float(replay.view.input_priorities(zero, zero)) == pytest.approx(4.0084488916, rel=1e-6)
    assert float(replay.view.input_priorities(zero, zero)) != pytest.approx(4.4347820343, rel=1e-2)  # rlpyt's
    assert replay.ring.startable() == 1
    assert float(replay.sampler.tree.leaves[0]) == pytest.approx((4.0084488916 + 1e-3) ** 0.7, rel=1e-6)


def test_input_priority_of_branches_by_hand() -> None:
    """Reward 1, gamma 0.9, values taken (3, -1), largest (1, 1): errors of 1.1 and -2.9, whose mean would be -0.9."""
    sequences = Sequences(1, 0, 0)
    rule = sequences.start_rule(1, 1, 2, (2,))
    assert {name: column.shape for name, column in rule.extras.items()} == {"q_taken": (2,), "q_best": (2,)}
    ring = Ring(Layout(12, 1, SPACES, num_actions=NUM_ACTIONS, action_axes=(2,), start_rule=rule))
    for tick, rows in enumerate(islice(play([Game(0, ["go"])], "NEXT_STEP", np.random.default_rng(0)), 4)):
        rows.slots[0].reward[:] = 1.0
        if tick:
            rows.action = np.zeros((1, 2), np.int64)
            rows.extra = {"q_taken": np.array([[3.0, -1.0]], np.float32), "q_best": np.ones((1, 2), np.float32)}
            ring.depart(rows.action, rows.extra)
        ring.arrive(rows.slots[0])
    zero = torch.zeros(1, dtype=torch.int64)
    assert float(
        SequenceView(ring, sequences, Horizon(ring.n_steps, GAMMA)).input_priorities(zero, zero)
    ) == pytest.approx(2.0)
    one = Ring(
        Layout(12, 1, SPACES, num_actions=NUM_ACTIONS, action_axes=(2,), start_rule=sequences.start_rule(1, 1, 2))
    )
    with pytest.raises(
        CheckpointError, match="Older versions stored one value for all branches: set input_priorities=False"
    ):
        ring.load_state_dict(one.state_dict())


def test_numpys_false_turns_input_priorities_off() -> None:
    values: list[Any] = [None, True, np.True_, False, np.False_]
    assert [Sequences(input_priorities=value).has_input_priorities for value in values] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_a_shift_uses_earlier_steps() -> None:
    shifted = Sequences(4, 4, 2, input_priority_shift=1)
    assert (Sequences(4, 4, 2).priority_offset, shifted.priority_offset) == (0, -2)
    game = Game(0, ["go"])
    replay = replay_of(shifted, 1, 40, 1, 1)
    for _ in fed(replay, [game], islice(play([game], "NEXT_STEP", np.random.default_rng(0)), 30)):
        pass
    replay.refresh()
    assert isinstance(replay.view, SequenceView)
    where = torch.tensor([10])
    found = float(replay.view.input_priorities(torch.zeros_like(where), where))
    assert found == pytest.approx(naive_priority(game, 0, 10, replay.view, None), rel=1e-5)


@SLOW
@pytest.mark.parametrize(
    ("shape", "rows"),
    a_few(
        [((4, 4, 2), 14), ((4, 4, 2), 23), ((4, 4, 2), 60), ((3, 2, 0), 14), ((3, 2, 0), 60), ((3, 2, 1), 23)],
        ((4, 4, 2), 23),
        ((3, 2, 1), 23),
    ),
)
def test_sampling_continues_after_loading(shape: tuple[int, int, int], rows: int) -> None:
    """Loads into a ring of the same size, a smaller and a larger one."""
    sequences, names = Sequences(*shape), ["go"] * 5 + list(EVENTS)
    games = [Game(lane, names[lane:] + names) for lane in range(2)]
    replay, ticks = replay_of(sequences, 2, 23, 1, 1), play(games, "NEXT_STEP", np.random.default_rng(0))
    for _ in fed(replay, games, islice(ticks, 50)):
        pass
    twin = replay_of(sequences, 2, rows, 1, 1)
    twin.load_state_dict({name: tensor.clone() for name, tensor in replay.state_dict().items()})
    for tick in fed(twin, games, islice(ticks, 40)):
        lane, row = (torch.from_numpy(part) for part in twin.ring.rows_between(*twin.ring.intervals()))
        twin.refresh()
        may = twin.ring.may_start(lane, row)
        assert isinstance(twin.sampler, PrioritizedSampler)
        assert check_valid(twin.sampler) == (True, "valid")
        if bool(may.any()) and tick % 3 == 0:
            check_batch(twin.view.gather(lane[may], row[may], torch.ones(int(may.sum()))), twin, games)


@SLOW
@pytest.mark.parametrize(("kept", "older"), a_few([((4, 4, 2), True), ((4, 8, 2), False)], (4, 4, 2)))
def test_a_longer_burn_in_never_reads_overwritten_rows(kept: tuple[int, int, int], older: bool) -> None:
    """Loads from ring to ring, each with more rows than the previous one: cells before the first loaded row are zeros."""
    names = ["go"] * 5 + list(EVENTS)
    games = [Game(lane, names[lane:] + names) for lane in range(2)]
    replay, ticks = replay_of(Sequences(*kept), 2, 23, 1, 1), play(games, "NEXT_STEP", np.random.default_rng(0))
    for _ in fed(replay, games, islice(ticks, 70)):
        pass
    overwritten = replay.ring.cursor - 23
    for warmup, rows in ((8, 60), (12, 80))[
        : 1 if older else 2
    ]:  # one ring for a file that does not contain its start rule
        twin = replay_of(Sequences(4, warmup, 2), 2, rows, 1, 1)
        state = {name: tensor.clone() for name, tensor in replay.state_dict().items()}
        twin.load_state_dict({name: state[name] for name in state if not (older and name == "ring/span")})
        low, _ = twin.ring.intervals()
        assert (low == overwritten + twin.ring.start_rule.behind).all()
        replay = twin
    for tick in fed(replay, games, islice(ticks, 40)):
        lane, row = (torch.from_numpy(part) for part in replay.ring.rows_between(*replay.ring.intervals()))
        replay.refresh()
        may = replay.ring.may_start(lane, row)
        if bool(may.any()) and tick % 3 == 0:
            check_batch(replay.view.gather(lane[may], row[may], torch.ones(int(may.sum()))), replay, games)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    ("stored", "wanted", "rows", "message"),
    [
        (4, 2, 40, r"store_rnn_state_interval of the saved rows must be 2, got (4|another):"),
        (2, 4, 40, r"store_rnn_state_interval of the saved rows must be 4, got (2|another):"),
        (2, 4, 80, r"store_rnn_state_interval of the saved rows must be 4, got (2|another):"),
        (1, 2, 40, r"difference in \['blocked'\]. Use the same store_rnn_state_interval"),
        (2, 0, 40, r"difference in \['blocked', 'state'\]. Use the same store_rnn_state_interval"),
    ],
)
def test_states_stored_at_other_intervals_are_rejected(
    stored: int, wanted: int, rows: int, message: str, older: bool
) -> None:
    """Rejected before any row changes: sequences would start in the state of another row."""
    game = Game(0, ["go"] * 5 + list(EVENTS))
    replay, ticks = replay_of(Sequences(4, 4, stored), 1, 40, 1, 1), play([game], "NEXT_STEP", np.random.default_rng(0))
    for _ in fed(replay, [game], islice(ticks, 50)):
        pass
    twin = replay_of(Sequences(4, 4, wanted), 1, rows, 1, 1)
    before = {name: tensor.clone() for name, tensor in twin.state_dict().items()}
    state = replay.state_dict()
    with pytest.raises(CheckpointError, match=message):
        twin.load_state_dict({name: state[name] for name in state if not (older and name == "ring/span")})
    assert all(torch.equal(before[name], tensor) for name, tensor in twin.state_dict().items())


def test_states_are_stored_at_every_kth_row_only() -> None:
    """A state of 1,024 numbers at every 40th row: of a million 102 MB instead of 4.1 GB; the frames are stored once."""
    image = {"obs": spaces.Box(0, 255, (1, 84, 84), np.uint8)}
    kwargs: dict[str, Any] = {"num_actions": 6, "frame_stack": 1, "n_steps": 5}
    plain = Ring(Layout(8_000, 8, image, **kwargs))
    sparse = Ring(Layout(8_000, 8, image, **kwargs, start_rule=Sequences(80, 40, 40).start_rule(5, 1, 1024)))
    dense = Ring(Layout(8_000, 8, image, **kwargs, start_rule=Sequences(80, 40, 1).start_rule(5, 1, 1024)))
    per_row = sparse.layout.bytes_per_row - plain.layout.bytes_per_row
    assert per_row == 4 * 1024 // 40 + 1 + 8 + 1  # rounded up; two values and a flag
    assert dense.layout.bytes_per_row - plain.layout.bytes_per_row == 4 * 1024 + 8
    assert sparse.layout.nbytes < 1.02 * plain.layout.nbytes
    assert f"{sparse.layout.bytes_per_row:,} bytes a row" in sparse.layout.describe()


def test_state_columns_count_before_allocation() -> None:
    image = {"obs": spaces.Box(0, 255, (1, 8, 8), np.uint8)}
    with pytest.raises(MemoryBudgetError, match="rows of 41,0.. bytes needs"):
        Ring(
            Layout(10**9, 1, image, num_actions=2, n_steps=5, start_rule=Sequences(80, 40, 1).start_rule(5, 1, 10_240))
        )


def test_a_ring_that_cannot_hold_a_sequence_is_rejected() -> None:
    rule = Sequences(80, 40, 40).start_rule(5, 1, 4)
    assert (rule.behind, rule.ahead) == (41, 85)
    kwargs: dict[str, Any] = {"num_actions": 2, "n_steps": 5, "start_rule": rule}
    Ring(Layout(127 * 3, 3, SPACES, **kwargs))
    with pytest.raises(
        ConfigurationError,
        match="buffer_size must be at least 381, got 380: .*one sequence with its burn-in and bootstrap rows = 127",
    ):
        Ring(Layout(127 * 3 - 1, 3, SPACES, **kwargs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_T": 0}, "batch_T"),
        ({"warmup_T": -1}, "warmup_T"),
        ({"store_rnn_state_interval": 2.5}, "store_rnn_state_interval.*2.5"),
        (
            {"store_rnn_state_interval": 7},
            "batch_T must be a multiple of store_rnn_state_interval=7, got 32: .* Set batch_T=28",
        ),
        ({"warmup_T": 8}, "warmup_T must be a multiple of store_rnn_state_interval=16, got 8"),
        ({"eta": 1.5}, "eta"),
        ({"input_priorities": 1}, "input_priorities"),
        ({"input_priority_shift": 2}, "input_priority_shift.*from 0 to 1"),
    ],
)
def test_wrong_settings_are_rejected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Sequences(**arguments)
