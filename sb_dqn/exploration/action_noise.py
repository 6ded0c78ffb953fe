"""Noise that is added to the actions of a Box: independent, or of an Ornstein-Uhlenbeck process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from sb_dqn.checks import check_float, set_fields
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Actions, BoxActions
from sb_dqn.types import ActionArray, FloatArray, Rows, State


@dataclass(frozen=True)
class ActionNoise:
    r"""Settings of the noise, in units in which the bounds of the action space are -1 and 1; noisy actions are clipped to
    these.

    .. math:: x_t = x_{t-1} + \theta (\mu - x_{t-1}) \, dt + \sigma \sqrt{dt} \, N(0, 1)

    from 0 at the start of an episode. The default, theta = dt = 1, is independent noise.

    Args:
        sigma: scale, >= 0, one number or one for each dimension of an action.
        mean: mu, one number or one for each dimension of an action.
        theta: rate at which x returns to the mean, >= 0.
        dt: length of a step, above 0.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    sigma: float | Sequence[float] | FloatArray = 0.1
    mean: float | Sequence[float] | FloatArray = 0.0
    theta: float = 1.0
    dt: float = 1.0

    def __post_init__(self) -> None:
        for name, lowest in (("sigma", 0.0), ("mean", -np.inf)):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                value = value.tolist()
                set_fields(self, **{name: value})
            for each in value if isinstance(value, (list, tuple)) else (value,):
                check_float(f"{name} of ActionNoise", each, lowest)
        check_float("theta of ActionNoise", self.theta, 0.0)
        check_float("dt of ActionNoise", self.dt, 0.0, above=True)

    def check(self, actions: Actions) -> None:
        """Checks that the noise fits an action space.

        Raises:
            ConfigurationError: the actions are discrete, or of another number of dimensions.
        """
        if not isinstance(actions, BoxActions):
            raise ConfigurationError(
                "action_noise must be None for discrete actions, got an ActionNoise. Leave it out."
            )
        size = actions.low.size
        for name in ("sigma", "mean"):
            count = np.size(getattr(self, name))
            if count not in (1, size):
                raise ConfigurationError(
                    f"{name} of action_noise must have {size} numbers, as the actions, got {count}. Give {size}, or one for all."
                )


class NoisyActions:
    """Adds noise to the actions of B lanes, each with a process of its own.

    Args:
        noise: the settings.
        actions: shape and bounds.
        num_lanes: B.
        rng: generator.
    """

    def __init__(self, noise: ActionNoise, actions: BoxActions, num_lanes: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.mean = np.asarray(noise.mean, np.float32)
        self.pull = noise.theta * noise.dt
        self.spread = np.asarray(noise.sigma, np.float32) * np.sqrt(noise.dt)
        self.low, self.high = actions.low, actions.high
        self.x = np.zeros((num_lanes, actions.low.size), np.float32)
        self.last = np.ones(num_lanes, np.bool_)

    def __call__(self, action: ActionArray, rows: Rows) -> ActionArray:
        """Returns noisy actions `[B, *shape]` within the bounds for the open rows."""
        begins, self.last = rows.begins(self.last)
        x = np.where(begins[:, None], np.float32(0.0), self.x)
        drawn = self.rng.standard_normal(x.shape, dtype=np.float32)
        self.x = (x + self.pull * (self.mean - x) + self.spread * drawn).astype(np.float32)
        half = 0.5 * (self.high - self.low)
        moved = action + self.x.reshape(action.shape) * half
        noisy: FloatArray = np.clip(moved, self.low, self.high).astype(action.dtype)
        return noisy

    def state_dict(self) -> State:
        return {"x": torch.from_numpy(self.x.copy()), "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: State) -> None:
        self.x, self.last = state["x"].numpy().copy(), state["last"].numpy().copy()
