"""Reward normalization by the standard deviation of the running discounted return."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor

from sb_dqn.checks import check_float, check_switch, set_fields
from sb_dqn.normalize.moments import Moments, PeakMoments
from sb_dqn.types import BoolArray, Kwargs, Rows, State


@dataclass(frozen=True)
class NormalizeRewards:
    """Settings of reward normalization, clip(r / sqrt(variance + epsilon), -clip, clip); the sign is preserved.

    Args:
        clip: bound of normalized rewards, > 0.
        epsilon: number that is added to the variance, > 0.
        peak: rewards are divided by the largest |return| / peak at least, so that no return so far is above `peak`, > 0. If
            None, they are divided by the standard deviation only.

    Raises:
        ConfigurationError: a value is out of range.
    """

    clip: float = 10.0
    epsilon: float = 1e-8
    peak: float | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            clip=check_float("normalize_rewards['clip']", self.clip, 0.0, above=True),
            epsilon=check_float("normalize_rewards['epsilon']", self.epsilon, 0.0, above=True),
        )
        if self.peak is not None:
            set_fields(self, peak=check_float("normalize_rewards['peak']", self.peak, 0.0, above=True))


def bounded_returns(normalize_rewards: object) -> Kwargs:
    """Returns the argument `normalize_rewards` with a bound on returns, which is 5 as in SimBaV2 (Lee et al. 2025, arXiv
    2502.15280) unless the argument has one.
    """
    settings = check_switch("normalize_rewards", normalize_rewards, NormalizeRewards) or NormalizeRewards()
    return {"peak": 5.0} | {name: value for name, value in asdict(settings).items() if value is not None}


class RewardNormalizer:
    """Running variance of the discounted return R_t = gamma R_{t-1} + r_t, and the scaling of rewards by it.

    Only steps are counted, since a reset row has no reward. R is reset to 0 after a `last` row and where a stream restarts.
    Statistics have no effect until `commit`.

    Args:
        settings: bound and epsilon.
        gamma: discount per env step, [0, 1].
        num_lanes: B, > 0.
        device: device of the rewards to scale.
    """

    def __init__(self, settings: NormalizeRewards, gamma: float, num_lanes: int, device: torch.device) -> None:
        self.settings = settings
        self.gamma = gamma
        self.moments = Moments() if settings.peak is None else PeakMoments()
        self.scale = torch.ones((), device=device)
        self.set_lanes(num_lanes)

    def set_lanes(self, num_lanes: int) -> None:
        """Resets the running returns for `num_lanes` lanes; the statistics are unchanged."""
        self.running = np.zeros(num_lanes)
        self.ended: BoolArray = np.ones(num_lanes, np.bool_)

    def update(self, rows: Rows) -> None:
        """Adds the rewards of a tick."""
        restarted = rows.restarted()
        if restarted is not None:
            self.ended[restarted] = True
        for slot in rows.slots:
            stepped = slot.valid & ~self.ended  # the row after a last row is a reset row
            returns = np.where(stepped, self.gamma * self.running + slot.reward, 0.0)
            self.running = np.where(slot.valid, returns, self.running)  # lanes without a row in this slot are unchanged
            self.moments.update(self.running[stepped])
            self.ended = np.where(slot.valid, slot.last, self.ended)

    def commit(self) -> None:
        """Uses the current statistics from now on."""
        deviation = np.sqrt(float(self.moments.variance) + self.settings.epsilon)
        if self.settings.peak is not None:
            deviation = max(deviation, float(cast(PeakMoments, self.moments).peak) / self.settings.peak)
        self.scale.fill_(1.0 / deviation)

    def __call__(self, reward: Tensor) -> Tensor:
        """Scales rewards of any shape to [-clip, clip]."""
        return (reward * self.scale).clamp(-self.settings.clip, self.settings.clip)

    def state_dict(self) -> State:
        """Returns the current and the committed statistics, and the running return of each lane."""
        return {
            "moments": self.moments.state_dict(),
            "scale": self.scale.clone(),
            "running": torch.from_numpy(self.running.copy()),
            "ended": torch.from_numpy(self.ended.copy()),
        }

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict`; the running returns of a different number of lanes are reset to 0."""
        self.moments.load_state_dict(state["moments"])
        self.scale.copy_(state["scale"])
        self.set_lanes(len(self.running))
        if len(state["running"]) == len(self.running):
            self.running[:] = state["running"].cpu().numpy()
            self.ended[:] = state["ended"].cpu().numpy()
