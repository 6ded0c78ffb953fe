"""Exploration: lanes explore independently, only legal actions are sampled, and the rate never increases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest

from sb_dqn.exploration import ApexLadder, Boltzmann, EpsilonGreedy, Exploration
from sb_dqn.schedules import Constant, Linear, Piecewise, Schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import BoolArray, IntArray
from tests.marks import SLOW

LANES, ACTIONS = 3, 4
PLAIN = ActionShape((ACTIONS,), (0,))
UNEVEN = ActionShape((3, 2, 4), (0, 0, 0), branched=True)
FALLING = Linear(1.0, 0.1, steps=100)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def explorer(epsilon: float | Schedule, lanes: int = LANES, seed: int = 0, **kwargs: Any) -> EpsilonGreedy:
    schedule = Constant(epsilon) if isinstance(epsilon, float) else epsilon
    return EpsilonGreedy(schedule, PLAIN, lanes, generator(seed), **kwargs)


def greedy() -> IntArray:
    return np.array([0, 1, 2])


def must_not_run() -> NoReturn:
    raise AssertionError("the network ran although no lane acts greedily")


def fits(counts: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    """Applies Pearson's chi-square test to counts, summed over independent rows, at 4.5 sigma of its normal limit."""
    cells = expected > 0
    assert (counts[~cells] == 0).all()
    statistic = float((np.square(counts - expected)[cells] / expected[cells]).sum())
    freedom = int((cells.sum(-1) - 1).sum())
    return bool(statistic < freedom + 4.5 * np.sqrt(2 * freedom) + 10)


def counts_of(draw: Callable[[], IntArray], draws: int, actions: int = ACTIONS) -> npt.NDArray[Any]:
    """Counts how often each action is sampled, `[B, A]` (`[B, D, A]`)."""
    chosen = np.array([draw() for _ in range(draws)])
    return np.stack([(chosen == action).sum(0) for action in range(actions)], -1)


# -- epsilon-greedy


def test_shares_per_lane() -> None:
    exploration, epsilon, draws = explorer(0.4), 0.4, 20_000
    expected = np.full((LANES, ACTIONS), epsilon / ACTIONS)
    expected[range(LANES), greedy()] += 1 - epsilon  # P(greedy) = 1 - e + e / |A| = 0.7; decoys: 0.6, 0.4
    assert expected[0].tolist() == pytest.approx([0.7, 0.1, 0.1, 0.1])
    counts = counts_of(lambda: exploration.select(greedy), draws)
    assert fits(counts, draws * expected)
    assert not fits(counts, draws * np.roll(expected, 1, -1))


def test_lanes_explore_independently() -> None:
    exploration, draws = explorer(0.5), 20_000
    not_greedy = np.array([exploration.select(greedy) != greedy() for _ in range(draws)])
    p = 0.5 * 0.75
    both = (not_greedy[:, 0] & not_greedy[:, 1]).mean()
    # independent: 0.1406; decoy: one draw for all lanes, as in Stable-Baselines3: 0.5 * 0.75**2 = 0.281
    assert abs(both - p * p) < 4.5 * np.sqrt(p * p * (1 - p * p) / draws)


def test_epsilon_0_is_greedy_and_1_does_not_run_the_net() -> None:
    assert explorer(0.0).select(greedy).tolist() == [0, 1, 2]
    assert explorer(1.0).select(must_not_run).shape == (LANES,)


def test_the_same_generator_gives_the_same_actions() -> None:
    first, second, other = explorer(0.5), explorer(0.5), explorer(0.5, seed=1)
    actions = [[e.select(greedy).tolist() for _ in range(20)] for e in (first, second, other)]
    assert actions[0] == actions[1] != actions[2]


@SLOW
def test_branches_explore_together() -> None:
    exploration = EpsilonGreedy(Constant(0.5), UNEVEN, 2, generator())
    best = np.array([[2, 1, 3], [0, 0, 0]])
    chosen = np.array([exploration.select(lambda: best) for _ in range(20_000)])
    assert chosen.shape == (20_000, 2, 3)
    share = (chosen == best).all(-1).mean(0)
    # decoy: independent branches, (1 - e + e/3)(1 - e + e/2)(1 - e + e/4) = 0.31
    assert np.abs(share - (0.5 + 0.5 / 24)).max() < 4.5 * np.sqrt(0.25 / 20_000)


# -- uniform draws and masks

MASK = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]], bool)


def test_uniform_actions() -> None:
    counts = counts_of(explorer(0.1).uniform, 4000)
    assert fits(counts, np.full((LANES, ACTIONS), 1000.0))


def test_uniform_over_legal_actions() -> None:
    exploration = explorer(0.1)
    counts = counts_of(lambda: exploration.uniform(MASK), 4000)
    assert fits(counts, 4000 * MASK / MASK.sum(-1, keepdims=True))


@pytest.mark.parametrize("masked", [False, True])
def test_uniform_over_uneven_branches(masked: bool) -> None:
    legal = np.broadcast_to(UNEVEN.legal, (2, 3, 4)).copy()
    mask = None
    if masked:
        mask = np.ones((2, 3, 4), bool)  # a mask may be True in the padding
        mask[0, 0, 1] = legal[0, 0, 1] = False
        mask[1, 2, :3] = legal[1, 2, :3] = False
    rng = generator()
    counts = counts_of(lambda: UNEVEN.uniform(2, rng, mask), 4000)
    assert fits(counts, 4000 * legal / legal.sum(-1, keepdims=True))


def test_a_mask_without_legal_actions_allows_all() -> None:
    mask = np.array([[0, 0, 0, 0], [0, 1, 0, 0]], bool)
    rng = generator()
    counts = counts_of(lambda: PLAIN.uniform(2, rng, mask), 4000)
    assert fits(counts, np.array([[1000.0] * 4, [0, 4000, 0, 0]]))


@pytest.mark.parametrize("kind", ["epsilon", "boltzmann", "ladder"])
def test_every_kind_samples_legal_actions_only(kind: str) -> None:
    q = np.where(MASK, 0.0, -1e9).astype(np.float32)  # the output of a masked head
    exploration: Exploration = explorer(0.9, ladder=ApexLadder() if kind == "ladder" else None)
    output: npt.NDArray[Any] = q.argmax(-1)
    if kind == "boltzmann":
        exploration, output = Boltzmann(Constant(1e12), PLAIN, LANES, generator()), q  # flattens a gap of 1e9
    for draw in (lambda: exploration.select(lambda: output, MASK), lambda: exploration.uniform(MASK)):
        chosen = np.array([draw() for _ in range(500)])
        assert MASK[np.arange(LANES), chosen].all()
        assert set(chosen[:, 1].tolist()) == {1, 3}


# -- Boltzmann


def softmax(q: npt.NDArray[Any], temperature: float) -> npt.NDArray[Any]:
    e = np.exp((q - q.max(-1, keepdims=True)) / temperature)
    shares: npt.NDArray[Any] = e / e.sum(-1, keepdims=True)
    return shares


@SLOW
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_shares_of_boltzmann(temperature: float) -> None:
    q = np.array([[1.0, 2.0, 0.0, 1.5], [0, 0, 0, 0], [-300, -301, -302, -303]], np.float32)
    exploration, draws = Boltzmann(Constant(temperature), PLAIN, LANES, generator()), 20_000
    counts = counts_of(lambda: exploration.select(lambda: q), draws)
    assert fits(counts, draws * softmax(q.astype(float), temperature))
    assert not fits(counts, draws * softmax(q.astype(float), 1.0))  # decoy: temperature ignored
    masked = counts_of(lambda: exploration.select(lambda: q, MASK), draws)
    assert fits(masked, draws * softmax(np.where(MASK, q.astype(float), -np.inf), temperature))


def test_a_worked_boltzmann_share() -> None:
    # softmax([1, 0] / 0.5) = e^2 / (e^2 + 1) = 0.8808; decoy temperature 1: 0.7311
    exploration = Boltzmann(Constant(0.5), ActionShape((2,), (0,)), 1, generator())
    first = np.mean([exploration.select(lambda: np.array([[1.0, 0.0]]))[0] == 0 for _ in range(20_000)])
    assert abs(first - 0.8808) < 4.5 * np.sqrt(0.105 / 20_000)


@SLOW
def test_branches_of_boltzmann_are_sampled_independently() -> None:
    q = np.array([[[0.0, 1.0, 2.0, 9.0], [1.0, 0.0, 9.0, 9.0], [0.0, 0.0, 1.0, 1.0]]])  # 9 is padding
    exploration, draws = Boltzmann(Constant(1.0), UNEVEN, 1, generator()), 20_000
    counts = counts_of(lambda: exploration.select(lambda: q), draws)
    assert fits(counts, draws * softmax(np.where(UNEVEN.legal, q, -np.inf), 1.0))


@pytest.mark.parametrize("temperature", [0.0, 1e-300, 1e-9])
def test_boltzmann_at_low_temperature_is_greedy(temperature: float) -> None:
    exploration = Boltzmann(Constant(temperature), PLAIN, LANES, generator())
    q = np.array([[1.0, 2.0, 0.0, 1.5], [3.0, 0, 0, 0], [-1e9, -1e9, -1e9, -5]], np.float32)
    assert exploration.select(lambda: q).tolist() == [1, 0, 3]


# -- schedules


def test_epsilon_follows_its_schedule() -> None:
    exploration = explorer(Linear(1.0, 0.1, fraction=0.5))
    assert exploration.epsilon == 1.0
    epsilons = []
    for step in (0, 25, 50, 100):
        exploration.advance(step, 100)
        epsilons.append(exploration.epsilon)
    assert epsilons == pytest.approx([1.0, 0.55, 0.1, 0.1])


def test_epsilon_follows_a_piecewise_schedule() -> None:
    exploration, epsilons = explorer(Piecewise(((100, 1.0), (200, 0.1), (400, 0.01)))), []
    for step in (0, 100, 150, 200, 300, 400, 9999):
        exploration.advance(step, 1)
        epsilons.append(exploration.epsilon)
    assert epsilons == pytest.approx([1.0, 1.0, 0.55, 0.1, 0.055, 0.01, 0.01])


KINDS = (EpsilonGreedy, Boltzmann)


@pytest.mark.parametrize("kind", KINDS)
def test_exploration_never_increases(kind: type[EpsilonGreedy] | type[Boltzmann]) -> None:
    exploration = kind(FALLING, PLAIN, LANES, generator())
    exploration.advance(50, 1)
    exploration.advance(0, 1)  # a second learn counts from 0
    assert exploration.rate == pytest.approx(0.55)
    exploration.advance(60, 1)
    assert exploration.rate == pytest.approx(0.46)


@pytest.mark.parametrize("kind", KINDS)
def test_exploration_is_switched_off(kind: type[EpsilonGreedy] | type[Boltzmann]) -> None:
    exploration = kind(FALLING, PLAIN, LANES, generator(), off_after=80)
    rates = []
    for step in (0, 79, 80, 5_000, 10):  # the last one: a second learn, which counts from 0
        exploration.advance(step, 1)
        rates.append(exploration.rate)
    assert rates == pytest.approx([1.0, 1 - 0.9 * 0.79, 0.0, 0.0, 0.0])
    assert kind(FALLING, PLAIN, LANES, generator(), off_after=0).rate == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_exploration_continues_after_a_load(kind: type[EpsilonGreedy] | type[Boltzmann]) -> None:
    first, second = (kind(FALLING, PLAIN, LANES, generator()) for _ in range(2))
    first.advance(70, 1)
    second.load_state_dict(first.state_dict())
    second.advance(0, 1)
    assert second.rate == first.rate == pytest.approx(0.37)


@pytest.mark.parametrize("kind", KINDS)
def test_a_load_never_exceeds_the_schedule(kind: type[EpsilonGreedy] | type[Boltzmann]) -> None:
    """Checks a model loaded with exploration off, or with a lower schedule: `predict` uses the lower rate at once."""
    off, less = kind(FALLING, PLAIN, LANES, generator(), off_after=0), kind(Constant(0.3), PLAIN, LANES, generator())
    for exploration in (off, less):
        exploration.load_state_dict(dict.fromkeys(exploration.state_dict(), 0.5))
    assert (off.rate, less.rate) == (0.0, 0.3)
    off.warn_if_ineffective()  # no warning: exploration off has an effect


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_without_effect_after_a_load_warns(kind: type[EpsilonGreedy] | type[Boltzmann]) -> None:
    constant, decreasing = kind(Constant(0.3), PLAIN, LANES, generator()), kind(FALLING, PLAIN, LANES, generator())
    for exploration in (constant, decreasing):
        exploration.load_state_dict(dict.fromkeys(exploration.state_dict(), 0.2))
    with pytest.warns(UserWarning, match=r"no effect: it ends at 0.3, but .* has reached 0.2 .* To explore again"):
        constant.warn_if_ineffective()
    decreasing.warn_if_ineffective()  # no warning: it ends at 0.1


def test_the_state_of_another_kind_is_ignored() -> None:
    epsilon, boltzmann = explorer(0.3), Boltzmann(Constant(2.0), PLAIN, LANES, generator())
    boltzmann.load_state_dict(epsilon.state_dict())
    epsilon.load_state_dict(Boltzmann(Constant(2.0), PLAIN, LANES, generator()).state_dict())
    assert (epsilon.rate, boltzmann.rate) == (0.3, 2.0)


# -- predict


def test_predict_explores_at_the_current_rate_with_its_own_generator() -> None:
    exploration, draws = explorer(0.4), 20_000
    before = exploration.rng.bit_generator.state
    chosen = exploration.evaluation.explore(lambda: np.full(draws, 2), draws, generator(5))
    assert exploration.rng.bit_generator.state == before
    counts = np.bincount(chosen, minlength=ACTIONS)
    assert fits(counts[None], draws * np.array([[0.1, 0.1, 0.7, 0.1]]))


def test_predict_uses_the_evaluation_exploration() -> None:
    exploration = explorer(1.0, evaluation=explorer(0.0))
    assert exploration.evaluation.explore(lambda: np.full(50, 2), 50, generator()).tolist() == [2] * 50
    assert len(set(exploration.explore(must_not_run, 50, generator()).tolist())) == ACTIONS


def masked_rows() -> BoolArray:
    return np.broadcast_to(MASK[1], (500, ACTIONS))


@pytest.mark.parametrize("temperature", [None, 0.3])
def test_predict_samples_legal_actions_only(temperature: float | None) -> None:
    q = np.where(masked_rows(), [0, 0, 0, 0.3], -1e9).astype(np.float32)
    exploration: Exploration = explorer(0.7)
    output: npt.NDArray[Any] = q.argmax(-1)
    if temperature is not None:
        exploration, output = Boltzmann(Constant(temperature), PLAIN, LANES, generator()), q
    chosen = exploration.explore(lambda: output, 500, generator(), masked_rows())
    assert set(chosen.tolist()) == {1, 3}
