"""Rewards at one scale: divided by the deviation of the running discounted return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.checks import check_float
from sb_dqn.normalize.moments import Moments
from sb_dqn.types import BoolArray, Rows


@dataclass(frozen=True)
class NormalizeRewards:
    """How rewards are normalised: clip(r / sqrt(variance + epsilon), -clip, clip); never shifted, so signs stay.

    Args:
        clip: bound on what is learned from, above 0.
        epsilon: above 0.

    Raises:
        ConfigurationError: out of range.
    """

    clip: float = 10.0
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        check_float("normalize_rewards['clip']", self.clip, 0.0, above=True)
        check_float("normalize_rewards['epsilon']", self.epsilon, 0.0, above=True)


class RewardNormalizer:
    """Statistics of the running return R_t = gamma R_{t-1} + r_t, and the function that scales rewards by them.

    Steps alone count: a reset row brings no reward. R goes to 0 after a `last` row and where a stream begins anew. What was
    gathered takes effect at `settle`.

    Args:
        settings: clip, epsilon.
        gamma: discount per env step, [0, 1].
        num_lanes: B.
        device: where the rewards lie that are to be scaled.
    """

    def __init__(self, settings: NormalizeRewards, gamma: float, num_lanes: int, device: torch.device) -> None:
        self.settings, self.gamma = settings, gamma
        self.moments = Moments()
        self.scale = torch.ones((), device=device)
        self.set_lanes(num_lanes)

    def set_lanes(self, num_lanes: int) -> None:
        """Begins with as many lanes: their running returns are 0, the statistics stay."""
        self.running = np.zeros(num_lanes)
        self.ended: BoolArray = np.ones(num_lanes, np.bool_)

    def arrived(self, rows: Rows) -> None:
        """Takes in the rewards of a tick."""
        if rows.action is None:
            self.ended[:] = True
        for slot in rows.slots:
            stepped = slot.valid & ~self.ended  # the row after a last one is a reset row
            # a lane that is not valid has no row here: it stays as it is
            self.running = np.where(
                slot.valid, np.where(stepped, self.gamma * self.running + slot.reward, 0.0), self.running
            )
            self.moments.update(self.running[stepped])
            self.ended = np.where(slot.valid, slot.last, self.ended)

    def settle(self) -> None:
        """What was gathered takes effect."""
        self.scale.fill_(1.0 / np.sqrt(float(self.moments.variance) + self.settings.epsilon))

    def __call__(self, reward: Tensor) -> Tensor:
        """Rewards of any shape, as they are learned from, in [-clip, clip]."""
        return (reward * self.scale).clamp(-self.settings.clip, self.settings.clip)

    def state_dict(self) -> dict[str, Any]:
        """What was gathered, what is in effect, and where each lane is."""
        return {
            "moments": self.moments.state_dict(),
            "scale": self.scale.clone(),
            "running": torch.from_numpy(self.running.copy()),
            "ended": torch.from_numpy(self.ended.copy()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave; with another number of lanes all of them begin anew."""
        self.moments.load_state_dict(state["moments"])
        self.scale.copy_(state["scale"])
        self.set_lanes(len(self.running))
        if len(state["running"]) == len(self.running):
            self.running[:] = state["running"].cpu().numpy()
            self.ended[:] = state["ended"].cpu().numpy()
