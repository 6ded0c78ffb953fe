"""The rollout of a model with the array names of Stable-Baselines3's rollout buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.errors import ConfigurationError
from sb_dqn.sb3.distributions import to_actions

Array = npt.NDArray[Any]


class RolloutArrays:
    """View of a rollout: arrays `[n_steps, n_envs, ...]` to read in `_on_rollout_end`.

    A step in which the environments only begin again, because an earlier `learn` ended within the rollout, leaves zeros at the end.

    Args:
        model: the model of the rollout.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.rollout = model.rollout

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"rollout_buffer has no attribute {name!r}: the training loop fills and reads the rollout. Read its arrays in "
            f"_on_rollout_end, or change the loss as the page 'Adding a variant' shows."
        )

    @property
    def buffer_size(self) -> int:
        """Steps of a rollout in each environment."""
        return int(self.rollout.n_steps)

    @property
    def n_envs(self) -> int:
        return int(self.rollout.ring.num_lanes)

    @property
    def full(self) -> bool:
        """True in `_on_rollout_end`."""
        return bool(self.rollout.is_complete)

    @property
    def pos(self) -> int:
        """Steps that are stored in each environment."""
        return int(self.rollout.ticks)

    def size(self) -> int:
        """Returns the number of stored steps in each environment."""
        return self.pos

    def _shaped(self, values: Tensor) -> Array:
        """Returns values of all places `[n_steps * n_envs, ...]` as an array; zeros where there is no sample."""
        if not self.full:
            raise ConfigurationError(
                f"rollout_buffer must be read when the rollout is full, got {self.pos} of {self.buffer_size} steps. Read it in "
                f"_on_rollout_end of a callback."
            )
        weight = self.rollout.view.weight[:-1].view(-1, *[1] * (values.dim() - 1))
        kept = values.where(weight > 0, torch.zeros_like(values))
        return kept.cpu().numpy().reshape(self.buffer_size, self.n_envs, *values.shape[1:])

    def _cells(self, later: int = 0) -> Tensor:
        view = self.rollout.view
        cells: Tensor = view.ring.cells(view.lane[:-1], view.row[:-1] + later)
        return cells

    @property
    def observations(self) -> Any:
        """Observations, or a dict of them."""
        view = self.rollout.view
        obs, _ = view.observe(view.lane[:-1], view.row[:-1])
        arrays = {key: self._shaped(value) for key, value in obs.items()}
        return arrays["obs"] if set(arrays) == {"obs"} else arrays

    @property
    def actions(self) -> Array:
        """Actions `[n_steps, n_envs, D]`, those of a Gaussian before they were clipped to the bounds of the environment."""
        if "u" in (extra := self.rollout.view.extra):
            drawn = self._shaped(to_actions(self.model.policy.action_head, extra["u"][:-1]))
            return drawn.reshape(self.buffer_size, self.n_envs, -1)
        stored = self._shaped(self.rollout.ring.actions_at(self._cells()))
        actions: Array = stored + self.model.predictor.actions.start
        return actions.reshape(self.buffer_size, self.n_envs, -1)

    @property
    def rewards(self) -> Array:
        return self._shaped(self.rollout.ring.reward.take(self._cells(1)))

    @property
    def episode_starts(self) -> Array:
        """1 where an episode starts."""
        row = self.rollout.view.row[:-1]
        starts = (row == 0) | self.rollout.ring.last.take(self._cells(-1))
        return self._shaped(starts.float())

    @property
    def values(self) -> Array:
        return self._shaped(self.rollout.view.extra["value"][:-1])

    @property
    def log_probs(self) -> Array:
        return self._shaped(self.rollout.view.extra["log_prob"][:-1])

    @property
    def returns(self) -> Array:
        """Lambda-returns, the targets of the values."""
        return self._shaped(self.rollout.view.return_[:-1])

    @property
    def advantages(self) -> Array:
        difference: Array = np.subtract(self.returns, self.values)
        return difference
