"""Epsilon ladders: a final epsilon per lane, as in Ape-X and rlpyt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sb_dqn.types import Array


@dataclass(frozen=True)
class ApexLadder:
    """Ladder epsilon_i = base^(1 + alpha i / (B - 1)), decreasing over lanes (Horgan et al. 2018, arXiv 1803.00933).

    A single lane has `base`.
    """

    alpha: float = 7.0

    def finals(self, base: float, num_lanes: int) -> Array:
        """Returns the final epsilons `[B]`."""
        return np.power(base, 1.0 + self.alpha * np.arange(num_lanes) / max(num_lanes - 1, 1))


@dataclass(frozen=True)
class LogLadder:
    """Ladder evenly spaced in log epsilon, from `minimum` in the first lane to `base` in the last, as in rlpyt.

    A single lane has `base`.
    """

    minimum: float

    def finals(self, base: float, num_lanes: int) -> Array:
        """Returns the final epsilons `[B]`."""
        return np.geomspace(base, self.minimum, num_lanes)[::-1]


@dataclass(frozen=True)
class LadderPart:
    """Part of a ladder over all lanes of a model, for actors in other processes that have some of its lanes.

    Args:
        ladder: ladder over all lanes.
        first_lane: first of the lanes.
        total_lanes: number of all lanes.
        share: see `EpsilonGreedy`.
    """

    ladder: ApexLadder | LogLadder
    first_lane: int
    total_lanes: int
    share: tuple[int, int] = (0, 1)

    def finals(self, base: float, num_lanes: int) -> Array:
        """Returns the final epsilons `[B]` of the lanes of this part."""
        rank, learners = self.share
        finals: Array = self.ladder.finals(base, self.total_lanes * learners)[rank::learners]
        return finals[self.first_lane : self.first_lane + num_lanes]


Ladder = ApexLadder | LogLadder | LadderPart
