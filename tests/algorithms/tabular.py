"""A small Markov decision process with chance in it, as an environment, and what is exactly true of it."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

Array = npt.NDArray[np.float64]
GAMMA = 0.8
STATES, ACTIONS = 8, 2
STARTS = (0, 2, 4, 5)
CELLS = 40
"""Equal parts into which a uniform reward is cut where its distribution is wanted."""


class Arrow(NamedTuple):
    """One thing that may happen: with a chance, to a state (None: the end), for a reward uniform in [low, high]."""

    chance: float
    to: int | None
    low: float
    high: float


ARROWS: dict[tuple[int, int], tuple[Arrow, ...]] = {
    # a deterministic chain: go on for more, or stop for less
    (0, 0): (Arrow(1.0, 1, 0.0, 0.0),),
    (0, 1): (Arrow(1.0, None, 0.5, 0.5),),
    (1, 0): (Arrow(1.0, 2, 0.5, 0.5),),
    (1, 1): (Arrow(1.0, None, 1.0, 1.0),),
    (2, 0): (Arrow(1.0, 3, 0.5, 0.5),),
    (2, 1): (Arrow(1.0, None, 1.0, 1.0),),
    (3, 0): (Arrow(1.0, 4, 0.5, 0.5),),
    (3, 1): (Arrow(1.0, None, 1.0, 1.0),),
    (4, 0): (Arrow(1.0, None, 4.0, 4.0),),
    (4, 1): (Arrow(1.0, None, 2.5, 2.5),),
    # a lottery: a sure ticket, or one of two, and rewards by chance
    (5, 0): (Arrow(1.0, 6, 1.0, 1.0),),
    (5, 1): (Arrow(0.5, 6, 1.0, 1.0), Arrow(0.5, 7, 1.0, 1.0)),
    (6, 0): (Arrow(1.0, None, 0.5, 1.5),),
    (6, 1): (Arrow(1.0, None, 0.0, 1.0),),
    (7, 0): (Arrow(1.0, None, 3.0, 5.0),),
    (7, 1): (Arrow(1.0, None, 2.0, 3.0),),
}
PAIRS = list(ARROWS)
ENDS = {pair: np.cumsum([arrow.chance for arrow in arrows]).tolist() for pair, arrows in ARROWS.items()}
ALL = np.ones((STATES, ACTIONS), bool)
SOME = ALL.copy()
SOME[3, 0] = SOME[7, 0] = SOME[1, 1] = False
"""Legal actions: all, and all but the best of states 3 and 7 and a bad one."""


class Lottery(gymnasium.Env[Any, Any]):
    """The process above. Draws of one kind are evenly spread (golden-ratio steps), so that few of them tell the truth."""

    observation_space = spaces.Discrete(STATES)
    action_space = spaces.Discrete(ACTIONS)

    def __init__(self, legal: npt.NDArray[np.bool_] | None = None) -> None:
        self.drawn: dict[Any, int] = {}
        self.legal = legal

    def info(self) -> dict[str, Any]:
        """Names the legal actions, if they are not to be kept secret."""
        return {} if self.legal is None else {"action_mask": self.legal[self.state]}

    def draw(self, kind: Any) -> float:
        """A number in [0, 1)."""
        if kind not in self.drawn:
            self.drawn[kind] = int(self.np_random.integers(1 << 20))
        self.drawn[kind] += 1
        return self.drawn[kind] * 0.6180339887498949 % 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = STARTS[int(self.np_random.integers(len(STARTS)))]
        return self.state, self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        pair = self.state, int(action)
        assert self.legal is None or self.legal[pair]
        which = bisect_right(ENDS[pair], self.draw(pair))
        arrow = ARROWS[pair][which]
        reward = arrow.low + (arrow.high - arrow.low) * self.draw((pair, which))
        ended = arrow.to is None
        self.state = self.state if arrow.to is None else arrow.to
        return self.state, reward, ended, False, self.info()


# ---- the truth of values


def ahead(value: Array, n_steps: int, legal: npt.NDArray[np.bool_] = ALL) -> Array:
    """`[S, A]` expected n-step return, `value` `[S]` at its end, if actions after the first are uniform."""
    found = np.zeros((STATES, ACTIONS))
    later = value if n_steps == 1 else np.mean(ahead(value, n_steps - 1, legal), axis=1, where=legal)
    for pair, arrows in ARROWS.items():
        for arrow in arrows:
            beyond = 0.0 if arrow.to is None else GAMMA * later[arrow.to]
            found[pair] += arrow.chance * ((arrow.low + arrow.high) / 2 + beyond)
    return found


def greedy_values(n_steps: int = 1, legal: npt.NDArray[np.bool_] = ALL) -> Array:
    """`[S, A]`, what n-step Q-learning converges to."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(200):
        q = ahead(np.where(legal, q, -np.inf).max(1), n_steps, legal)
    return q


def soft_values(
    n_steps: int = 1,
    alpha: float = 0.9,
    tau: float = 0.03,
    clip: float = -1.0,
    legal: npt.NDArray[np.bool_] = ALL,
) -> Array:
    """`[S, A]`, the same of Munchausen Q-learning (Vieillard et al. 2020, equation 1)."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(5000):
        log_policy = (q - np.where(legal, q, -np.inf).max(1, keepdims=True)) / tau
        log_policy = log_policy - np.log(np.exp(log_policy).sum(1, keepdims=True, where=legal))
        value = (np.exp(log_policy) * (q - tau * log_policy)).sum(1, where=legal)
        before, q = q, alpha * np.clip(tau * log_policy, clip, 0.0) + ahead(value, n_steps, legal)
    assert np.abs(q - before).max() < 1e-9
    return q


def lambda_values(lambda_: float, legal: npt.NDArray[np.bool_] = ALL) -> Array:
    """`[S, A]`, the same of Peng's Q(lambda) where actions are uniform."""
    q = np.zeros((STATES, ACTIONS))
    for _ in range(200):
        best, mean = np.where(legal, q, -np.inf).max(1), np.mean(q, axis=1, where=legal)
        q = ahead((1 - lambda_) * best + lambda_ * mean, 1)
    return q


# ---- the truth of distributions


def quantile(state: int, action: int, fraction: Array) -> Array:
    """The quantile function of the return of acting best after the first action."""
    return np.interp(fraction, *_distribution(state, action))


def _distribution(state: int, action: int) -> tuple[Array, Array]:
    """Cumulated chances and returns between which the quantile function is a line."""
    best = greedy_values().argmax(1)
    pieces: list[tuple[float, float, float]] = []  # chance, low, high; they do not overlap
    for arrow in ARROWS[state, action]:
        if arrow.to is None:
            pieces.append((arrow.chance, arrow.low, arrow.high))
            continue
        assert arrow.low == arrow.high  # sums of two chances have no straight pieces
        fractions, returns = _distribution(arrow.to, int(best[arrow.to]))
        pieces += [
            (arrow.chance * (fractions[i + 1] - fractions[i]), *(arrow.low + GAMMA * returns[i : i + 2]))
            for i in range(0, len(fractions), 2)
        ]
    pieces.sort(key=lambda piece: piece[1])
    ends = np.cumsum([0.0, *(piece[0] for piece in pieces)])
    return np.repeat(ends, 2)[1:-1], np.array([end for piece in pieces for end in piece[1:]])


def atoms_ahead(
    atoms: Array, policy: Array, probabilities: Array, n_steps: int
) -> dict[tuple[int, int], tuple[Array, Array]]:
    """Returns and chances of n steps, of which those after the first are uniform.

    Args:
        atoms: `[Z]` returns that are told apart at the end.
        policy: `[S]` actions that are taken there.
        probabilities: `[S, A, Z]` of the atoms.
        n_steps: n.
    """
    later = atoms_ahead(atoms, policy, probabilities, n_steps - 1) if n_steps > 1 else {}
    found = {}
    for pair, arrows in ARROWS.items():
        returns, chances = [], []
        for arrow in arrows:
            cells = 1 if arrow.low == arrow.high else CELLS
            rewards = arrow.low + (arrow.high - arrow.low) * (np.arange(cells) + 0.5) / cells
            if arrow.to is None:
                ends = [(np.zeros(1), np.ones(1))]
            elif n_steps == 1:
                ends = [(atoms, probabilities[arrow.to, policy[arrow.to]])]
            else:
                ends = [later[arrow.to, action] for action in range(ACTIONS)]
            for values, weights in ends:
                returns.append((rewards[:, None] + GAMMA * values).ravel())
                chances.append(np.tile(weights, cells) * arrow.chance / cells / len(ends))
        found[pair] = np.concatenate(returns), np.concatenate(chances)
    return found


def categorical(atoms: Array, n_steps: int = 1) -> Array:
    """`[S, A, Z]` probabilities to which categorical Q-learning converges on evenly spaced `atoms`."""
    found = np.full((STATES, ACTIONS, len(atoms)), 1 / len(atoms))
    for _ in range(12):  # no episode is longer than five steps
        policy = (found @ atoms).argmax(1)
        for pair, (returns, chances) in atoms_ahead(atoms, policy, found.copy(), n_steps).items():
            share = 1 - np.abs(returns.clip(atoms[0], atoms[-1])[:, None] - atoms) / (atoms[1] - atoms[0])
            found[pair] = chances @ share.clip(0.0, 1.0)
    return found
