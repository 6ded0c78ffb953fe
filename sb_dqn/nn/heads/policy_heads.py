"""Heads of stochastic policies: from features to a distribution, and from samples to actions."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.distributions import (
    ActionDistribution,
    Categorical,
    DiagonalGaussian,
    SquashedGaussian,
    masked,
    to_bounds,
)
from sb_dqn.spaces import ActionShape, BoxActions
from sb_dqn.types import FloatArray

LOG_STD = (-20.0, 2.0)
"""Bounds of the log standard deviation of soft actor-critic, as in Haarnoja's code."""


class ActionHead(nn.Module, ABC):
    """Base class of policy heads.

    Args:
        outputs: output layer.
        width: number of random numbers per action.
        extras: shapes, by name, of what a rollout stores with an action besides its log-probability.
    """

    def __init__(self, outputs: nn.Linear, width: int, extras: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.outputs = outputs
        self.width = width
        self.extras = extras

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        """Returns the distribution for features `[N, H]`."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        """Returns `[rows, width]` random numbers for the distribution's `sample`."""

    def log_facts(self) -> dict[str, float]:
        """Returns values to log, by name."""
        return {}

    @abstractmethod
    def to_action(self, sample: Tensor) -> Tensor:
        """Returns actions: `[N]` or `[N, D]` int64, 0-based, or `[N, *shape]` within the bounds of a Box."""


class CategoricalHead(ActionHead):
    """Head for Discrete, MultiDiscrete and MultiBinary.

    Args:
        in_features: number of features H.
        actions: shape of the action space.
    """

    padding: Tensor | None

    def __init__(self, in_features: int, actions: ActionShape) -> None:
        count = max(actions.num_branches, 1) * actions.num_actions
        super().__init__(self.make_outputs(in_features, actions), count, {})
        self.branched, self.shape = actions.branched, actions.legal.shape
        padding = None if bool(actions.legal.all()) else torch.as_tensor(actions.legal)
        self.register_buffer("padding", padding, persistent=False)

    def make_outputs(self, in_features: int, actions: ActionShape) -> nn.Linear:
        """Returns the last layer: one output for each action of each branch."""
        return nn.Linear(in_features, max(actions.num_branches, 1) * actions.num_actions)

    def logits(self, x: Tensor) -> Tensor:
        """Computes unnormalized log-probabilities, `[N, A]` or `[N, D, A]`, of features `[N, H]`."""
        return self.outputs(x.float()).unflatten(-1, self.shape)  # type: ignore[no-any-return]  # nn.Module

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Categorical:
        return Categorical(masked(self.logits(x), mask, self.padding), self.branched)

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        exponential = rng.standard_exponential((rows, self.width), dtype=np.float32)
        gumbel: FloatArray = -np.log(np.maximum(exponential, np.float32(1e-30)))
        return gumbel

    def to_action(self, sample: Tensor) -> Tensor:
        return sample


class BernoulliHead(CategoricalHead):
    r"""Head for MultiBinary actions with one output per bit, :math:`P(1) = \sigma(l)`, as in Stable-Baselines3.

    A softmax over two outputs describes the same probabilities, but both outputs learn: with an optimizer that normalizes
    gradients the difference between them moves twice as fast.

    Args: those of `CategoricalHead`.
    """

    def make_outputs(self, in_features: int, actions: ActionShape) -> nn.Linear:
        return nn.Linear(in_features, actions.num_branches)

    def logits(self, x: Tensor) -> Tensor:
        one = self.outputs(x.float())
        return torch.stack([torch.zeros_like(one), one], -1)


class BoxHead(ActionHead):
    """Base class of the heads for a Box: bounds and normal random numbers.

    Args:
        in_features: number of features H.
        actions: shape and bounds of the action space.
        parameters: number of outputs for each number of an action.
    """

    low: Tensor
    high: Tensor

    def __init__(self, in_features: int, actions: BoxActions, parameters: int) -> None:
        count = actions.low.size
        super().__init__(nn.Linear(in_features, parameters * count), count, {"u": (count,)})
        self.shape = actions.shape
        self.register_buffer("low", torch.as_tensor(actions.low).flatten(), persistent=False)
        self.register_buffer("high", torch.as_tensor(actions.high).flatten(), persistent=False)

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        return rng.standard_normal((rows, self.width), dtype=np.float32)


class GaussianHead(BoxHead):
    """Head for a Box: the mean depends on the observation, the learned standard deviation does not; actions are clipped.

    Args:
        in_features: number of features H.
        actions: shape and bounds of the action space.
        log_std_init: initial log standard deviation, in the units of the action.
    """

    def __init__(self, in_features: int, actions: BoxActions, log_std_init: float = 0.0) -> None:
        super().__init__(in_features, actions, 1)
        self.log_std = nn.Parameter(torch.full((self.width,), log_std_init))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        return DiagonalGaussian(self.outputs(x.float()), self.log_std)

    def log_facts(self) -> dict[str, float]:
        return {"train/std": float(self.log_std.detach().exp().mean())}

    def to_action(self, sample: Tensor) -> Tensor:
        return sample.clamp(self.low, self.high).view(-1, *self.shape)


class SquashedHead(GaussianHead):
    """Head for a Box: a Gaussian squashed by tanh into the bounds.

    Args: those of `GaussianHead`; the standard deviation is that before tanh.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> ActionDistribution:
        return SquashedGaussian(self.outputs(x.float()), self.log_std)

    def to_action(self, sample: Tensor) -> Tensor:
        return to_bounds(sample, self.low, self.high).view(-1, *self.shape)


class SoftHead(BoxHead):
    """Head of soft actor-critic for a Box: mean and log standard deviation of u depend on the observation; actions are tanh(u)
    scaled to the bounds.

    Args:
        in_features: number of features H.
        actions: shape and bounds of the action space.
    """

    def __init__(self, in_features: int, actions: BoxActions) -> None:
        super().__init__(in_features, actions, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> SquashedGaussian:
        mean, log_std = self.outputs(x.float()).chunk(2, -1)
        return SquashedGaussian(mean, log_std.clamp(*LOG_STD))

    def to_action(self, sample: Tensor) -> Tensor:
        return to_bounds(sample, self.low, self.high).view(-1, *self.shape)

    def to_unit(self, action: Tensor) -> Tensor:
        """Returns actions `[N, *shape]` of the environment scaled to bounds of -1 and 1, `[N, D]`: the critics' input."""
        return 2.0 * (action.reshape(-1, self.low.numel()) - self.low) / (self.high - self.low) - 1.0
