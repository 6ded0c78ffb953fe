"""Rollout buffer against the logs of the games: each step is used once per epoch, with the values of the policy that took it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.rollout_buffer import RolloutBuffer, rows_needed
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Batch, Experience, Rows
from tests.buffers.toy_rows import EVENTS, NUM_ACTIONS, SPACES, Episode, Game, naive_stack, play
from tests.marks import ON_DEVICES_IN_FULL, SLOW

pytestmark = [pytest.mark.usefixtures("storage"), ON_DEVICES_IN_FULL]

GAMMA, LAMBDA = 0.9, 0.7
CAMERA = torch.linspace(0.1, 0.9, 6, dtype=torch.float64)


def value(obs: dict[str, Tensor], version: int) -> Tensor:
    """Returns values by a hash instead of a network; each version gives other values for the same observation."""
    stack = obs["camera"].double().flatten(2) @ CAMERA  # [N, K]
    weights = torch.arange(1, stack.shape[1] + 1, dtype=torch.float64)
    return torch.sin(stack @ weights + obs["joints"].double().sum(-1) + obs["mode"].double() + version).float()


def value_function(version: int) -> Callable[..., Any]:
    """Returns `value` as a function of NumPy arrays."""
    return lambda obs, mask=None: value({key: torch.as_tensor(x) for key, x in obs.items()}, version).numpy()


def make(n_steps: int, lanes: int, k: int, epochs: int = 2, batch_size: int = 4, **extras: Any) -> RolloutBuffer:
    ring = Ring(Layout(rows_needed(n_steps, k) * lanes, lanes, SPACES, num_actions=NUM_ACTIONS, frame_stack=k))
    return RolloutBuffer(ring, n_steps, epochs, batch_size, GAMMA, LAMBDA, extras or {"version": ()})


def acted(rollout: RolloutBuffer, ticks: Iterator[Rows], version: int) -> Rows:
    """Acts on the open rows and adds the next tick."""
    outputs: dict[str, Any] = {}
    if rollout.ring.cursor[0] > 0:
        outputs["value"] = value_function(version)(rollout.open_observation())
        outputs["version"] = np.full(rollout.ring.num_lanes, version, np.float32)
    rows = next(ticks)
    rows.extra = outputs
    rollout.extend(rows)
    return rows


def learn(rollout: RolloutBuffer, version: int, generator: torch.Generator) -> Batch | None:
    """Runs all updates of a full rollout, checks how often each sample was drawn, and returns one epoch as one batch."""
    rollout.complete(value_function(version))
    due = rollout.updates_due()
    assert due in (0, rollout.n_epochs * rollout.num_minibatches)
    assert rollout.updates_due() == 0
    places = rollout.n_steps * rollout.ring.num_lanes
    for _ in range(due // rollout.num_minibatches):
        drawn = Counter[int]()
        for _ in range(rollout.num_minibatches):
            piece = rollout.draw(generator)
            assert len(piece) == rollout.batch_size
            batch = rollout.sample_from(piece)
            assert all(bool(x.isfinite().all()) for x in (batch.return_, batch.obs["joints"]))
            assert bool((batch.weight[piece == places] == 0).all())
            drawn.update(piece[piece < places].tolist())
        assert drawn == Counter(range(places))  # each place once an epoch, so each sample too
    return rollout.sample_from(torch.arange(places)) if due else None


def naive_samples(game: Game, made_by: dict[tuple[int, int], int], k: int) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Returns {(episode, t): (version, action, lambda-return, generalized advantage)} by definition, from the log alone;
    advantages are sums of errors, not returns minus values."""
    found = {}
    for number, episode in enumerate(game.episodes):
        t, count = 0, len(episode.steps) - 1
        while t < count:
            end, version = t + 1, made_by[number, t]
            while end < count and made_by[number, end] == version and not episode.steps[end].terminal:
                end += 1
            after = advantage = float("nan")
            for s in range(end - 1, t - 1, -1):
                arrival = episode.steps[s + 1]
                v = float(value(seen(episode, s + 1, k), version)[0])
                ahead = v if s + 1 == end else (1 - LAMBDA) * v + LAMBDA * after
                after = arrival.reward + (0.0 if arrival.terminal else GAMMA * ahead)
                error = arrival.reward + (0.0 if arrival.terminal else GAMMA * v)
                error -= float(value(seen(episode, s, k), version)[0])
                cut = s + 1 == end or arrival.terminal
                advantage = error + (0.0 if cut else GAMMA * LAMBDA * advantage)
                found[number, s] = version, episode.actions[s], after, advantage
            t = end
    return found


def seen(episode: Episode, t: int, k: int) -> dict[str, Tensor]:
    return {key: torch.from_numpy(np.array(naive_stack(episode, t, key, k)))[None] for key in SPACES}


def run(games: list[Game], kind: str, n_steps: int, k: int, ticks: int, restart: int, seed: int) -> Counter[str]:
    """Plays, learns whenever the rollout is full, compares all samples with the logs, and returns counts of events."""
    rollout = make(n_steps, len(games), k)
    stream, generator = play(games, kind, np.random.default_rng(seed), restart), torch.Generator().manual_seed(seed)
    used: list[dict[tuple[int, int], tuple[Any, ...]]] = [{} for _ in games]
    made_by: list[dict[tuple[int, int], int]] = [{} for _ in games]
    version = since = 0
    for _ in range(ticks):
        rows = acted(rollout, stream, version)
        since += rows.action is not None or since > 0  # a restart counts within a rollout only
        for game, made in zip(games, made_by, strict=True):
            for number, episode in enumerate(game.episodes[-2:], max(0, len(game.episodes) - 2)):
                for t in range(len(episode.actions)):
                    made.setdefault((number, t), version)
        assert rollout.is_full == (since == n_steps)
        if not rollout.is_full:
            assert rollout.updates_due() == 0
            continue
        batch = learn(rollout, version, generator)
        if batch is not None:
            record_samples(batch, games, used, k)
            assert kind == "NEXT_STEP" or restart or bool((batch.weight == 1).all())  # every tick a step in every lane
        version, since = version + 1, 0
        assert rows is not None
    count: Counter[str] = Counter(rollouts=version)
    for game, found, made in zip(games, used, made_by, strict=True):
        truth = naive_samples(game, made, k)
        expected = {key: sample for key, sample in truth.items() if sample[0] < version}
        assert found.keys() == expected.keys()
        for key, sample in expected.items():
            np.testing.assert_allclose(found[key], sample, rtol=1e-4, atol=1e-4, err_msg=f"{key}")
        count["steps"] += len(expected)
        count["of truncations"] += sum(
            game.episodes[e].steps[t + 1].last and not game.episodes[e].steps[t + 1].terminal for e, t in expected
        )
        count["of lost lives"] += sum(
            game.episodes[e].steps[t + 1].terminal and not game.episodes[e].steps[t + 1].last for e, t in expected
        )
    return count


def record_samples(batch: Batch, games: list[Game], used: list[dict[tuple[int, int], tuple[Any, ...]]], k: int) -> None:
    """Checks the observation of each sample and records it by episode and step."""
    assert batch.extra is not None
    assert set(batch.weight.tolist()) <= {0.0, 1.0}
    rows = [
        [(number, t) for number, episode in enumerate(game.episodes) for t in range(len(episode.steps))]
        for game in games
    ]
    for i, (lane, row) in enumerate(batch.place.T.tolist()):
        if batch.weight[i] == 0:
            continue
        number, t = rows[lane][row]
        assert (number, t) not in used[lane]
        for key, array in seen(games[lane].episodes[number], t, k).items():
            np.testing.assert_array_equal(batch.obs[key][i], array[0], err_msg=f"{key} of lane {lane} row {row}")
        return_, advantage = float(batch.return_[i]), float(batch.return_[i] - batch.extra["value"][i])
        used[lane][number, t] = float(batch.extra["version"][i]), int(batch.action[i]), return_, advantage


SCRIPT = st.lists(st.sampled_from(["go", "go", *EVENTS]), min_size=1, max_size=12)


@SLOW
@settings(max_examples=25)
@given(
    scripts=st.lists(SCRIPT, min_size=1, max_size=4),
    kind=st.sampled_from(["NEXT_STEP", "SAME_STEP"]),
    n_steps=st.sampled_from([1, 2, 5, 16]),
    k=st.sampled_from([1, 4]),
    restart=st.sampled_from([0, 0, 7, 2]),
    seed=st.integers(0, 1000),
)
@example(scripts=[["truncated"]] * 2, kind="SAME_STEP", n_steps=5, k=4, restart=0, seed=0)  # two rows in every tick
@example(scripts=[["truncated"]], kind="NEXT_STEP", n_steps=1, k=1, restart=0, seed=0)  # a rollout of one reset
@example(scripts=[["terminated"], ["go"]], kind="SAME_STEP", n_steps=2, k=4, restart=2, seed=1)
def test_each_step_is_used_once_by_the_policy_that_took_it(
    scripts: list[list[str]], kind: str, n_steps: int, k: int, restart: int, seed: int
) -> None:
    games = [Game(lane, script) for lane, script in enumerate(scripts)]
    run(games, kind, n_steps, k, ticks=45, restart=restart, seed=seed)


@SLOW
@pytest.mark.parametrize("kind", ["NEXT_STEP", "SAME_STEP"])
def test_the_random_streams_contain_all_events(kind: str) -> None:
    names = ["go"] * 6 + list(EVENTS)
    rng = np.random.default_rng(0)
    games = [Game(b, [names[i] for i in rng.integers(0, len(names), 40)]) for b in range(3)]
    count = run(games, kind, n_steps=5, k=4, ticks=250, restart=0, seed=0)
    assert count["rollouts"] == 49
    assert count["steps"] > 500
    assert min(count["of truncations"], count["of lost lives"]) > 20


def full(n_steps: int = 4, lanes: int = 2, kind: str = "SAME_STEP", **settings: Any) -> RolloutBuffer:
    rollout = make(n_steps, lanes, 1, **settings)
    stream = play([Game(b, ["go"]) for b in range(lanes)], kind, np.random.default_rng(0))
    while not rollout.is_full:
        acted(rollout, stream, 0)
    return rollout


@pytest.mark.parametrize(
    ("n_steps", "lanes", "batch_size", "expected"),
    [
        (32, 4, 32, (4, 32)),  # evenly
        (5, 2, 64, (1, 10)),  # larger than the rollout: all of it
        (5, 20, 64, (2, 50)),  # 50 and 50, not 64 and 36
        (7, 1, 2, (4, 2)),  # the last one is padded
    ],
)
def test_minibatches_are_of_equal_size_as_far_as_possible(
    n_steps: int, lanes: int, batch_size: int, expected: tuple[int, int]
) -> None:
    rollout = make(n_steps, lanes, 1, batch_size=batch_size)
    assert (rollout.num_minibatches, rollout.batch_size) == expected


def test_the_open_row_is_not_used_before_it_departs() -> None:
    rollout = full()
    batch = learn(rollout, 0, torch.Generator().manual_seed(0))
    assert batch is not None
    assert batch.place[1].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rollout.ring.cursor.tolist() == [5, 5]
    assert rollout.start.tolist() == [0, 0]


def test_the_same_seed_draws_the_same_minibatches() -> None:
    first, second = full(epochs=3), full(epochs=3)
    orders = []
    for rollout in (first, second):
        rollout.complete(value_function(0))
        rng = torch.Generator().manual_seed(5)
        orders.append(torch.stack([rollout.draw(rng).clone() for _ in range(rollout.updates_due())]))
    assert torch.equal(*orders)
    epochs = orders[0].view(3, -1)
    assert not torch.equal(epochs[0], epochs[1])  # each epoch in an order of its own


def test_only_values_are_stored_at_the_end_of_an_episode() -> None:
    rollout = make(4, 2, 1, logp=())
    stream = play([Game(0, ["truncated"]), Game(1, ["go"])], "NEXT_STEP", np.random.default_rng(0))
    for _ in range(3):
        rows = next(stream)
        rows.extra = {name: np.array([3.0, 3.0], np.float32) for name in ("value", "logp")}
        rollout.extend(rows)
    # rows of lane 0: a reset, its final row, a reset
    assert rollout.extra["value"][:3, 0].tolist() == [3.0, 3.0, 0.0]
    assert rollout.extra["logp"][:3, 0].tolist() == [3.0, 0.0, 0.0]
    assert rollout.extra["logp"][:3, 1].tolist() == [3.0, 3.0, 0.0]
    assert rollout.departed[:3, 0].tolist() == [True, True, False]


@pytest.mark.parametrize("ticks", [0, 1, 3, 6, 9])
def test_a_rollout_continues_after_loading(ticks: int) -> None:
    def stream() -> Iterator[Rows]:
        return play(
            [Game(b, ["go", "truncated", "lost life"]) for b in range(2)], "NEXT_STEP", np.random.default_rng(3)
        )

    whole, first, second = (make(3, 2, 4) for _ in range(3))
    tape, other = stream(), stream()
    found: list[list[Tensor]] = [[], []]
    for tick in range(20):
        if tick == ticks:
            second.load_state_dict({name: x.clone() for name, x in first.state_dict().items()})
        for i, (rollout, rows) in enumerate(((whole, tape), (first if tick < ticks else second, other))):
            acted(rollout, rows, tick // 3)
            if rollout.is_full:
                batch = learn(rollout, tick // 3, torch.Generator().manual_seed(tick))
                if batch is not None:
                    found[i] += [batch.return_, batch.weight, batch.obs["camera"]]
    assert len(found[0]) >= 9
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_states_of_other_shapes_are_rejected() -> None:
    state = make(3, 2, 1).state_dict()
    with pytest.raises(CheckpointError, match="n_steps of the saved rollout must be 4, got 3"):
        make(4, 2, 1).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"must have shape .*Use the same number of environments"):
        make(3, 1, 1).load_state_dict(state)
    with pytest.raises(CheckpointError, match=r"got one without \['extra/logp'\]"):
        make(3, 2, 1, logp=()).load_state_dict(state)


def test_it_is_an_experience() -> None:
    experience: Experience = make(2, 1, 1)
    assert experience.updates_due() == 0
