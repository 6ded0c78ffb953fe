"""Both normalisers as one part of a model, each of which may be absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_switch
from sb_dqn.normalize.observations import NormalizeObservations, ObservationNormalizer
from sb_dqn.normalize.rewards import NormalizeRewards, RewardNormalizer
from sb_dqn.types import Batch, Blueprint, Rows


class Normalizer:
    """What brings observations and rewards to one scale; without its parts it changes nothing.

    Statistics are gathered as rows arrive and nowhere else: `predict` and evaluations leave them as they are. Rows are stored
    raw and normalised where they are read, by what is in effect then.

    Args:
        observations: None: as they are.
        rewards: None: as they are.
    """

    def __init__(
        self, observations: ObservationNormalizer | None = None, rewards: RewardNormalizer | None = None
    ) -> None:
        self._observations, self._rewards = observations, rewards
        self.due = False
        """Observations gathered are to take effect before the next action."""

    @property
    def active(self) -> bool:
        """Whether there is anything to gather."""
        return self._observations is not None or self._rewards is not None

    def arrived(self, rows: Rows) -> None:
        """Gathers from one tick: every observation, and the rewards of steps."""
        if self._observations is not None:
            for slot in rows.slots:
                self._observations.arrived(slot)
        if self._rewards is not None:
            self._rewards.arrived(rows)

    def set_lanes(self, num_lanes: int) -> None:
        """The environment has this many lanes from now on."""
        if self._rewards is not None and len(self._rewards.running) != num_lanes:
            self._rewards.set_lanes(num_lanes)

    def settle(self) -> None:
        """All that was gathered takes effect: for what learns from a replay, at every tick."""
        for part in (self._observations, self._rewards):
            if part is not None:
                part.settle()

    def end_rollout(self) -> None:
        """Before the updates: rewards are scaled by all that is known; observations stay as the policy saw them."""
        if self._rewards is not None:
            self._rewards.settle()
        self.due = self._observations is not None

    def begin_rollout(self) -> None:
        """Before each action: after a rollout what was gathered of observations takes effect."""
        if self.due and self._observations is not None:
            self._observations.settle()
        self.due = False

    def observations(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Observations `[N, *shape]` by key, as the nets see them; pure tensor operations."""
        return obs if self._observations is None else self._observations(obs)

    def rewards(self, reward: Tensor) -> Tensor:
        """Rewards of any shape, as they are learned from, before they are summed; pure tensor operations."""
        return reward if self._rewards is None else self._rewards(reward)

    def batch(self, batch: Batch) -> Batch:
        """A batch whose observations are as the nets see them."""
        if self._observations is None:
            return batch
        return batch._replace(obs=self.observations(batch.obs), next_obs=self.observations(batch.next_obs))

    def state_dict(self) -> dict[str, Any]:
        parts = {"observations": self._observations, "rewards": self._rewards}
        return {"due": self.due} | {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave; a part that the state lacks begins anew, one that is absent here is left out."""
        self.due = bool(state["due"])
        for name, part in (("observations", self._observations), ("rewards", self._rewards)):
            if part is not None and name in state:
                part.load_state_dict(state[name])


class NormalizationConfig:
    """What a constructor was told about normalising; checked when made, built when the environment is known.

    Args:
        normalize_observations: False, True, or a dict of `clip`, `epsilon`, `keys`.
        normalize_rewards: False, True, or a dict of `clip`, `epsilon`.
        gamma: discount per env step.

    Raises:
        ConfigurationError: none of these.
    """

    def __init__(self, normalize_observations: Any, normalize_rewards: Any, gamma: float) -> None:
        self.observations = check_switch("normalize_observations", normalize_observations, NormalizeObservations)
        self.rewards = check_switch("normalize_rewards", normalize_rewards, NormalizeRewards)
        self.gamma = gamma

    def build(
        self, blueprint: Blueprint, device: torch.device, buffer_device: torch.device | None = None
    ) -> Normalizer:
        """The normaliser of a model.

        Args:
            blueprint: spaces and lanes.
            device: where the nets are.
            buffer_device: where the rewards are read; None: there too.

        Raises:
            ConfigurationError: no key of the observation can be normalised.
        """
        observations = rewards = None
        if self.observations is not None:
            observations = ObservationNormalizer(
                blueprint.observation_space, self.observations, device, blueprint.frame_stack
            )
        if self.rewards is not None:
            where = device if buffer_device is None else buffer_device
            rewards = RewardNormalizer(self.rewards, self.gamma, blueprint.num_envs, where)
        return Normalizer(observations, rewards)
