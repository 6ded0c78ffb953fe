"""Normalizer of a model: optional observation and reward normalization."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.checks import check_switch
from sb_dqn.normalize.moments import Moments
from sb_dqn.normalize.observations import NormalizeObservations, ObservationNormalizer
from sb_dqn.normalize.rewards import NormalizeRewards, RewardNormalizer
from sb_dqn.types import Batch, Blueprint, Rows, State


class Normalizer:
    """Normalizes observations and rewards by running statistics; a part that is None changes nothing.

    Statistics are updated during training only, not by `predict` or evaluations. Rows are stored unnormalized and are
    normalized when read. Updated statistics have no effect until they are committed.

    Args:
        observations: normalizer of observations. If None, observations are unchanged.
        rewards: normalizer of rewards. If None, rewards are unchanged.
    """

    def __init__(
        self, observations: ObservationNormalizer | None = None, rewards: RewardNormalizer | None = None
    ) -> None:
        self._observations = observations
        self._rewards = rewards
        self.due = False
        """True if the observation statistics must be committed before the next action."""
        self.exchange: Callable[[npt.NDArray[np.float64]], list[npt.NDArray[np.float64]]] | None = None
        """Function from the array of one learner to those of all, in the same order for each. If None, there is one
        learner."""

    @property
    def active(self) -> bool:
        """True if observations or rewards are normalized."""
        return self._observations is not None or self._rewards is not None

    def update(self, rows: Rows) -> None:
        """Updates the statistics with one tick of all learners: every observation, and the reward of every step."""
        if self.exchange is None or not self.active:
            self._add(rows)
            return
        all_moments = self._moments()
        before = [moments.pack() for moments in all_moments]
        for moments in all_moments:
            moments.clear()
        self._add(rows)
        ticks = self.exchange(np.concatenate([moments.pack() for moments in all_moments]))
        for moments in all_moments:
            moments.clear()
        ends = np.cumsum([packed.size for packed in before])[:-1]
        for tick in (
            np.concatenate(before),
            *ticks,
        ):  # in the same order for each learner, so that rounding is the same
            for moments, packed in zip(all_moments, np.split(tick, ends), strict=True):
                moments.merge_packed(packed)

    def _moments(self) -> list[Moments]:
        observations = [] if self._observations is None else list(self._observations.moments.values())
        return observations if self._rewards is None else [*observations, self._rewards.moments]

    def _add(self, rows: Rows) -> None:
        if self._observations is not None:
            for slot in rows.slots:
                self._observations.update(slot)
        if self._rewards is not None:
            self._rewards.update(rows)

    def set_lanes(self, num_lanes: int) -> None:
        """Sets the number of lanes of the environment, > 0."""
        if self._rewards is not None and len(self._rewards.running) != num_lanes:
            self._rewards.set_lanes(num_lanes)

    def set_gamma(self, gamma: float) -> None:
        """Sets the discount of the returns whose variance scales rewards."""
        if self._rewards is not None:
            self._rewards.gamma = gamma

    def commit(self) -> None:
        """Uses the current statistics from now on; off-policy algorithms call it at every tick."""
        for part in (self._observations, self._rewards):
            if part is not None:
                part.commit()

    def end_rollout(self) -> None:
        """Commits the reward statistics before the updates; observations stay normalized as during the rollout."""
        if self._rewards is not None:
            self._rewards.commit()
        self.due = self._observations is not None

    def begin_rollout(self) -> None:
        """Commits the observation statistics before the first action after a rollout; called before every action."""
        if self.due and self._observations is not None:
            self._observations.commit()
        self.due = False

    def observations(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Normalizes observations `[N, *shape]` by key, with tensor operations only."""
        return obs if self._observations is None else self._observations(obs)

    def frozen(self) -> Normalizer:
        """Returns the normalization of observations with a copy of the committed statistics, on the CPU."""
        return Normalizer(None if self._observations is None else self._observations.frozen())

    def acting_tensors(self) -> list[Tensor]:
        """Returns the committed statistics that `observations` depends on."""
        return [] if self._observations is None else self._observations.acting_tensors()

    def rewards(self, reward: Tensor) -> Tensor:
        """Normalizes single-step rewards of any shape, with tensor operations only."""
        return reward if self._rewards is None else self._rewards(reward)

    def batch(self, batch: Batch) -> Batch:
        """Returns a batch with normalized observations."""
        if self._observations is None:
            return batch
        future = None if batch.future is None else self.observations(batch.future)
        return batch._replace(
            obs=self.observations(batch.obs), next_obs=self.observations(batch.next_obs), future=future
        )

    def state_dict(self) -> State:
        parts = {"observations": self._observations, "rewards": self._rewards}
        return {"due": self.due} | {name: part.state_dict() for name, part in parts.items() if part is not None}

    def load_state_dict(self, state: State) -> None:
        """Restores a `state_dict`; a part missing in the state is not changed, a part missing here is ignored."""
        self.due = bool(state["due"])
        for name, part in (("observations", self._observations), ("rewards", self._rewards)):
            if part is not None and name in state:
                part.load_state_dict(state[name])


class NormalizationConfig:
    """Normalization arguments of a constructor, validated at once and built when the environment is known.

    Args:
        normalize_observations: False, True, or a dict of `clip`, `epsilon`, `keys`.
        normalize_rewards: False, True, or a dict of `clip`, `epsilon`.
        gamma: discount per env step, [0, 1].

    Raises:
        ConfigurationError: an argument has another type, an unknown key or a value out of range.
    """

    def __init__(self, normalize_observations: object, normalize_rewards: object, gamma: float) -> None:
        self.observations = check_switch("normalize_observations", normalize_observations, NormalizeObservations)
        self.rewards = check_switch("normalize_rewards", normalize_rewards, NormalizeRewards)
        self.gamma = gamma

    def build(
        self, blueprint: Blueprint, device: torch.device, buffer_device: torch.device | None = None
    ) -> Normalizer:
        """Creates the normalizer of a model.

        Args:
            blueprint: spaces and number of lanes.
            device: device of the networks.
            buffer_device: device of the rewards in the buffer. If None, it is `device`.

        Raises:
            ConfigurationError: no key of the observation can be normalized.
        """
        observations = rewards = None
        if self.observations is not None:
            observations = ObservationNormalizer(
                blueprint.observation_space, self.observations, device, blueprint.frame_stack
            )
        if self.rewards is not None:
            reward_device = device if buffer_device is None else buffer_device
            rewards = RewardNormalizer(self.rewards, self.gamma, blueprint.num_envs, reward_device)
        return Normalizer(observations, rewards)
