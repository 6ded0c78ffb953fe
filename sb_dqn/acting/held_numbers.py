"""Random numbers of a policy that several ticks share, for state-dependent exploration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sb_dqn.policies.base import StochasticPolicy
from sb_dqn.types import FloatArray


@dataclass(frozen=True)
class Redraws:
    """Ticks at which new random numbers are drawn.

    Args:
        period: at every tick that is a multiple of this.
        within: and this many ticks after the last of these, again and again; 0: never.
    """

    period: int = 1
    within: int = 0

    def is_due(self, tick: int) -> bool:
        """Returns True if new numbers are drawn at a tick, from 0."""
        since = tick % self.period
        return since % self.within == 0 if self.within else since == 0


class HeldNumbers:
    """The latest random numbers of B lanes, and when the next are due.

    Args:
        policy: draws them.
        num_lanes: B.
        rng: generator.
        redraws: when new ones are drawn.
    """

    def __init__(self, policy: StochasticPolicy, num_lanes: int, rng: np.random.Generator, redraws: Redraws) -> None:
        self.policy = policy
        self.num_lanes = num_lanes
        self.rng = rng
        self.redraws = redraws
        self.tick = 0
        self.drawn: FloatArray | None = None

    def next(self) -> FloatArray:
        """Returns the numbers `[B, W]` of the next tick."""
        if self.drawn is None or self.redraws.is_due(self.tick):
            self.drawn = self.policy.draw(self.rng, self.num_lanes)
        self.tick += 1
        return self.drawn

    def state_dict(self) -> dict[str, Any]:
        return {"tick": self.tick, "drawn": None if self.drawn is None else torch.from_numpy(self.drawn.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tick = state["tick"]
        self.drawn = None if state["drawn"] is None else state["drawn"].numpy().copy()
