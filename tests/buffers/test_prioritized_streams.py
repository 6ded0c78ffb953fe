"""Prioritized sampler against a dict of priorities: each kind of stream, feedback at any time, saving and loading."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.accelerate import Mode
from sb_dqn.algorithms.dqn import DQN
from sb_dqn.buffers import Prioritized, PrioritizedSampler, ReplayBuffer, Ring, UniformSampler
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Rows
from tests.buffers.test_prioritized import filled, replay_of, sampler_of
from tests.buffers.toy_rows import EVENTS, Game, naive_starts, play
from tests.invariants import check_valid
from tests.marks import ON_DEVICES_IN_FULL, SLOW, a_few

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

ALPHA, EPS = 0.7, 1e-3


class Naive:
    """Naive rule: after each slot, new start rows get the largest priority so far, and other rows have none."""

    def __init__(self, replay: ReplayBuffer, games: list[Game]) -> None:
        self.ring, self.games, self.first = replay.ring, games, [0] * len(games)
        self.priority: dict[tuple[int, int], float] = {}
        self.largest: float | None = None

    def starts(self) -> set[tuple[int, int]]:
        ring = self.ring
        return {
            (b, r)
            for b, game in enumerate(self.games)
            for r in naive_starts(game.rows(), ring.rows, ring.n_steps, ring.frame_stack)
            if r >= self.first[b]
        }

    def moved(self, ring: Ring) -> None:
        """Drops rows that do not fit into the old ring or the new one."""
        for rows in (self.ring.rows, ring.rows):
            for b, game in enumerate(self.games):
                if len(game.rows()) > rows:
                    self.first[b] = max(self.first[b], len(game.rows()) - rows + ring.frame_stack - 1)
        self.ring = ring
        self.arrived()

    def arrived(self) -> None:
        fresh = 1.0 if self.largest is None else self.largest
        self.priority = {place: self.priority.get(place, fresh) for place in self.starts()}

    def feedback(self, places: list[tuple[int, int]], errors: list[float]) -> None:
        values: dict[tuple[int, int], float] = {}
        for place, error in zip(places, errors, strict=True):
            if place in self.priority:
                values[place] = max((error + EPS) ** ALPHA, values.get(place, 0.0))
        self.priority |= values
        if values:
            self.largest = max(*values.values(), self.largest or 0.0)

    def weights(self, places: list[tuple[int, int]], beta: float, mix: float) -> list[float]:
        total, count = sum(self.priority.values()), len(self.priority)
        chance = [(1 - mix) * self.priority[place] / total + mix / count for place in places]
        weights = [(count * p) ** -beta for p in chance]
        return [weight / max(weights) for weight in weights]


def held(replay: ReplayBuffer) -> dict[tuple[int, int], float]:
    """Returns all leaves above 0, by lane and absolute row."""
    ring = replay.ring
    cells = torch.nonzero(sampler_of(replay).tree.leaves)[:, 0].numpy()
    lane, place = cells % ring.num_lanes, cells // ring.num_lanes
    newest = ring.cursor[lane] - 1
    rows = newest - (newest - place) % ring.rows
    values = sampler_of(replay).tree.leaves[cells].tolist()
    return dict(zip(zip(lane.tolist(), rows.tolist(), strict=True), values, strict=True))


def compare(replay: ReplayBuffer, naive: Naive) -> None:
    replay.refresh()
    assert check_valid(sampler_of(replay)) == (True, "valid")
    assert held(replay) == pytest.approx(naive.priority, rel=1e-12)


def games_of(lanes: int) -> list[Game]:
    rng, names = np.random.default_rng(lanes), ["go"] * 4 + list(EVENTS)
    return [Game(b, [names[i] for i in rng.integers(0, len(names), 50)]) for b in range(lanes)]


@SLOW
@pytest.mark.parametrize(("kind", "restart"), [("NEXT_STEP", 9), ("SAME_STEP", 0)])
@pytest.mark.parametrize(
    ("lanes", "n", "k", "mix"),
    a_few([(1, 1, 1, 0.0), (1, 3, 4, 0.3), (3, 1, 4, 0.2), (4, 5, 1, 0.0)], (1, 3, 4, 0.3), (4, 5, 1, 0.0)),
)
def test_equal_to_a_naive_sampler(kind: str, lanes: int, n: int, k: int, mix: float, restart: int) -> None:
    replay = replay_of(lanes, 17, batch_size=16, n=n, k=k, alpha=ALPHA, eps=EPS, beta=0.5, uniform_mix=mix)
    games, rng = games_of(lanes), np.random.default_rng(7)
    naive, draws = Naive(replay, games), torch.Generator().manual_seed(0)
    late: list[tuple[int, Tensor]] = []
    dropped = drawn = 0
    for tick, rows in enumerate(play(games, kind, np.random.default_rng(1), restart)):
        replay.extend(rows)
        naive.arrived()  # once per tick: after two slots the start rows are the same as one by one
        if tick % 3 == 0:
            compare(replay, naive)
        if naive.priority and tick % 2:
            replay.refresh()
            batch = replay.sample_from(torch.rand(16, dtype=torch.float64, generator=draws))
            places = [(b, r) for b, r in batch.place.T.tolist()]
            np.testing.assert_allclose(batch.weight, naive.weights(places, 0.5, mix), rtol=1e-6)
            late.append((tick + int(rng.integers(0, 25)), torch.cat([batch.place, batch.place[:, :5]], dim=1)))
            drawn += len(places)
        for _, place in [one for one in late if one[0] == tick]:
            errors = rng.exponential(size=place.shape[1])
            places = [(b, r) for b, r in place.T.tolist()]
            dropped += sum(one not in naive.priority for one in places)
            replay.refresh()
            replay.sampler.feedback(place, torch.from_numpy(errors))
            naive.feedback(places, errors.tolist())
        if tick == 130:
            break
    assert dropped > 50
    assert drawn > 500
    assert int(replay.ring.cursor.min()) > 100


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(1, 25)),
        st.tuples(st.just("feedback"), st.integers(0, 2**31)),
        st.tuples(st.just("load"), st.sampled_from([9, 17, 40])),
    ),
    max_size=25,
)


@SLOW
@settings(max_examples=25)
@given(lanes=st.sampled_from([1, 3]), n=st.integers(1, 4), k=st.integers(1, 3), operations=OPERATIONS)
def test_any_sequence_of_events(lanes: int, n: int, k: int, operations: list[tuple[str, int]]) -> None:
    options: dict[str, Any] = {"n": n, "k": k, "alpha": ALPHA, "eps": EPS, "uniform_mix": 0.1}
    replay, games = replay_of(lanes, 17, **options), games_of(lanes)
    naive, stream = Naive(replay, games), play(games, "SAME_STEP", np.random.default_rng(1), 13)
    for name, number in operations:
        if name == "rows":
            for _ in range(number):
                replay.extend(next(stream))
                naive.arrived()
        elif name == "feedback":
            rng = np.random.default_rng(number)
            newest = int(replay.ring.cursor.max())
            places = np.stack([rng.integers(0, lanes, 30), rng.integers(max(0, newest - 20), newest + 3, 30)])
            errors = rng.exponential(size=30)
            replay.refresh()
            replay.sampler.feedback(torch.from_numpy(places), torch.from_numpy(errors))
            naive.feedback([(b, r) for b, r in places.T.tolist()], errors.tolist())
        else:
            loaded = replay_of(lanes, number, **options)
            loaded.load_state_dict({key: value.clone() for key, value in replay.state_dict().items()})
            replay = loaded
            naive.moved(loaded.ring)
        compare(replay, naive)


def ticks(count: int, lanes: int = 3) -> Iterator[Rows]:
    stream = play(games_of(lanes), "SAME_STEP", np.random.default_rng(2), restart=23)
    return (next(stream) for _ in range(count))


def update(replay: ReplayBuffer, draws: torch.Generator) -> tuple[Tensor, Tensor]:
    replay.sampler.advance(int(replay.ring.cursor[0]), 200)
    replay.refresh()
    batch = replay.sample_from(torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=draws))
    replay.feedback(batch, batch.return_.abs())
    return batch.place, batch.weight


@SLOW
@pytest.mark.parametrize("mix", [0.0, 0.2])
def test_sampling_continues_bit_for_bit_after_loading(mix: float) -> None:
    replay, other = (replay_of(3, 900, 16, n=3, k=4, uniform_mix=mix) for _ in range(2))
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    for tick, rows in enumerate(ticks(240)):
        replay.extend(rows)
        if tick == 120:  # rows have arrived since the last update, and sums may be rounded as a compiler does it
            for sums in sampler_of(replay).tree.sums:
                sums.copy_(sums.nextafter(sums + 1))
            other.load_state_dict({name: value.clone() for name, value in replay.state_dict().items()})
            draws[1].set_state(draws[0].get_state())
        elif tick > 120:
            other.extend(rows)
        if tick % 3 == 2:
            place, weight = update(replay, draws[0])
            if tick > 120:
                same = update(other, draws[1])
                assert torch.equal(place, same[0])
                assert torch.equal(weight, same[1])
                mine, yours = sampler_of(replay), sampler_of(other)
                assert torch.equal(mine.tree.leaves, yours.tree.leaves)
                assert all(torch.equal(a, b) for a, b in zip(mine.tree.sums, yours.tree.sums, strict=True))
                assert torch.equal(mine.largest, yours.largest)


def test_saving_changes_nothing() -> None:
    replays = [replay_of(3, 40, 16, n=3) for _ in range(2)]
    draws = [torch.Generator().manual_seed(0) for _ in range(2)]
    for tick, rows in enumerate(ticks(150)):
        for replay in replays:
            replay.extend(rows)
        replays[0].state_dict()
        if tick % 5 == 4:
            places = [update(replay, draw)[0] for replay, draw in zip(replays, draws, strict=True)]
            assert torch.equal(*places)


@pytest.mark.parametrize(
    ("updated", "since"), [(1_000, 20), (1_000, 1_000), (0, 100), (0, 1_100)], ids=["few", "a ring", "first", "wrapped"]
)
def test_rows_that_came_and_went_between_the_last_update_and_saving_change_nothing(updated: int, since: int) -> None:
    """The ring has room for 300 ticks; no update is made in the first 100."""
    replay, generator, stream = replay_of(3, 900, n=3), torch.Generator().manual_seed(0), ticks(2_200)
    for tick, rows in enumerate(itertools.islice(stream, 100 + updated)):
        replay.extend(rows)
        if tick > 100:
            update(replay, generator)
    for rows in itertools.islice(stream, since):
        replay.extend(rows)
    before = sampler_of(replay)._high.copy()
    other = replay_of(3, 900, n=3)
    other.load_state_dict({name: value.clone() for name, value in replay.state_dict().items()})
    np.testing.assert_array_equal(sampler_of(replay)._high, before, "saving is no refresh")
    for name, value in replay.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
    for one in (replay, other):
        one.refresh()
        assert check_valid(sampler_of(one)) == (True, "valid")
    assert held(other) == held(replay)
    for mine, theirs in zip(sampler_of(replay).tree.sums, sampler_of(other).tree.sums, strict=True):
        assert torch.equal(mine, theirs)


def test_a_state_of_another_sampler_or_horizon() -> None:
    replay, generator = replay_of(3, 40, n=3), torch.Generator().manual_seed(0)
    uniform = ReplayBuffer(replay.ring, UniformSampler(replay.ring, 8), replay.view, replay.schedule)
    for rows in ticks(60):
        replay.extend(rows)
    for _ in range(5):
        update(replay, generator)
    fresh = replay_of(3, 40, n=3)
    fresh.load_state_dict({name: value.clone() for name, value in uniform.state_dict().items()})
    assert set(held(fresh).values()) == {1.0}  # rows without a priority get the initial one
    assert held(fresh).keys() == held(replay).keys()
    uniform.load_state_dict(replay.state_dict())
    nearer = replay_of(3, 40, n=1)
    nearer.load_state_dict({name: value.clone() for name, value in replay.state_dict().items()})
    sampler_of(nearer).refresh()  # more rows may start, which are new
    assert check_valid(sampler_of(nearer)) == (True, "valid")
    largest = float(sampler_of(replay).largest)
    assert held(nearer) == {place: held(replay).get(place, largest) for place in held(nearer)}
    assert len(held(nearer)) > len(held(replay))
    late = PrioritizedSampler(replay.ring, 8, Prioritized())  # a sampler for a ring that has rows already
    late.refresh()
    assert check_valid(late) == (True, "valid")
    state = {name: value.clone() for name, value in replay.state_dict().items()}
    for damage in (float("nan"), -1.0, float("inf")):
        with pytest.raises(CheckpointError, match="priorities of the replay state must be finite and >= 0"):
            fresh.load_state_dict(state | {"sampler/priority": torch.full_like(state["sampler/priority"], damage)})
        with pytest.raises(CheckpointError, match="priorities of the replay state must be finite and >= 0"):
            fresh.load_state_dict(state | {"sampler/largest": torch.full_like(state["sampler/largest"], damage)})
        same = replay_of(3, 40, n=3)
        with pytest.raises(CheckpointError, match="sums of the replay state must be those of its priorities"):
            same.load_state_dict(state | {"sampler/sums": torch.full_like(state["sampler/sums"], damage)})


def learned(mode: Mode, **arguments: Any) -> DQN:
    model = DQN(
        "MlpPolicy", "CartPole-v1", seed=3, learning_starts=20, buffer_size=150, batch_size=8, n_steps=3,
        prioritized_replay=True, policy_kwargs={"net_arch": [8]}, **arguments,
    )  # fmt: skip
    model.mode = mode
    return model.learn(400)


@SLOW
def test_learning_is_the_same_eager_and_traced() -> None:
    eager, traced = (learned(mode) for mode in ("eager", "traced"))
    for model in (eager, traced):
        assert check_valid(sampler_of(model.replay)) == (True, "valid")
        assert float(sampler_of(model.replay).beta) == pytest.approx(1.0, abs=0.01)
        assert len(torch.unique(sampler_of(model.replay).tree.leaves)) > 20
    torch.testing.assert_close(
        eager.get_parameters()["policy"], traced.get_parameters()["policy"], rtol=1e-4, atol=1e-5
    )


@SLOW
def test_priorities_are_saved_and_survive_a_new_env_and_a_second_learn(tmp_path: Any) -> None:
    model = learned("traced")
    before = sampler_of(model.replay).tree.leaves.clone()
    model.save_replay_buffer(tmp_path / "replay.zip")
    fresh = DQN("MlpPolicy", "CartPole-v1", buffer_size=150, batch_size=8, n_steps=3, prioritized_replay=True)
    fresh.load_replay_buffer(tmp_path / "replay.zip")
    assert torch.equal(sampler_of(fresh.replay).tree.leaves, before)
    assert float(sampler_of(fresh.replay).largest) == float(sampler_of(model.replay).largest)
    plain = DQN("MlpPolicy", "CartPole-v1", buffer_size=150, batch_size=8, n_steps=3)
    plain.load_replay_buffer(tmp_path / "replay.zip")
    assert isinstance(plain.replay.sampler, UniformSampler)
    model.set_env("CartPole-v1")
    for reset in (True, False):
        model.learn(120, reset_num_timesteps=reset)
        model.replay.refresh()
        assert check_valid(sampler_of(model.replay)) == (True, "valid")


@pytest.mark.parametrize(
    ("saved", "loaded", "expected", "largest"),
    [(0.5, 1.0, [4.0, 9.0, 16.0], 16.0), (1.0, 0.5, [2.0, 3.0, 4.0], 4.0), (1.0, 0.0, [1.0, 1.0, 1.0], 1.0)],
)
def test_loaded_priorities_are_converted_to_the_alpha_of_the_sampler(
    saved: float, loaded: float, expected: list[float], largest: float
) -> None:
    replay, fresh = (filled(4, alpha=alpha, eps=1e-12) for alpha in (saved, loaded))
    sampler_of(replay).feedback(torch.tensor([[0, 0, 0], [0, 1, 2]]), torch.tensor([4.0, 9.0, 16.0]))
    fresh.load_state_dict(replay.state_dict())
    assert sampler_of(fresh).tree.leaves[:3].tolist() == pytest.approx(expected)
    assert float(sampler_of(fresh).largest) == pytest.approx(largest)
    assert check_valid(sampler_of(fresh)) == (True, "valid")


def test_priorities_saved_with_alpha_0_load_as_1() -> None:
    replay, fresh = filled(4, alpha=0.0), filled(4, alpha=1.0)
    sampler_of(replay).feedback(torch.tensor([[0, 0, 0], [0, 1, 2]]), torch.tensor([4.0, 9.0, 16.0]))
    fresh.load_state_dict(replay.state_dict())
    assert sampler_of(fresh).tree.leaves[:3].tolist() == [1.0, 1.0, 1.0]


def test_priorities_of_files_without_alpha_are_not_converted() -> None:
    replay, fresh = filled(4, alpha=0.5), filled(4, alpha=1.0)
    sampler_of(replay).feedback(torch.tensor([[0, 0, 0], [0, 1, 2]]), torch.tensor([4.0, 9.0, 16.0]))
    state = {key: value for key, value in replay.state_dict().items() if key != "sampler/alpha"}
    fresh.load_state_dict(state)
    assert torch.equal(sampler_of(fresh).tree.leaves, sampler_of(replay).tree.leaves)
