"""Heads of stochastic policies: from features to a distribution, and from what it gives to what the environment gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sb_dqn.nn.distributions import Categorical, DiagonalGaussian, masked
from sb_dqn.nn.squashed import SquashedGaussian, to_bounds
from sb_dqn.spaces import ActionShape, BoxActions
from sb_dqn.types import FloatArray


class ActionHead(nn.Module, ABC):
    """Parent of all.

    Args:
        outputs: the last layer.
        width: random numbers that one action takes.
        extras: what a rollout keeps of an action beside its log-probability: name to shape.
    """

    def __init__(self, outputs: nn.Linear, width: int, extras: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.outputs, self.width, self.extras = outputs, width, extras

    @abstractmethod
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        """A distribution for features `[N, H]`."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        """`[rows, width]` random numbers, as `sample` of the distribution takes them."""

    def log_facts(self) -> dict[str, float]:
        """Numbers for a log line."""
        return {}

    @abstractmethod
    def to_action(self, sample: Tensor) -> Tensor:
        """What the environment gets: `[N]` or `[N, D]` int64 from 0, or `[N, *shape]` within the bounds of a Box."""


class CategoricalHead(ActionHead):
    """For Discrete and MultiDiscrete: a softmax for each branch.

    Args:
        in_features: H.
        actions: what there is to choose from.
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
        """Computes unnormalised log-probabilities, `[N, A]` or `[N, D, A]`, of features `[N, H]`."""
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
    r"""For MultiBinary: one output for each bit, :math:`P(1) = \sigma(l)`, as in Stable-Baselines3.

    A softmax over two outputs describes the same probabilities, but both outputs learn: with an optimiser that normalises
    gradients the difference between them moves twice as fast.

    Args: those of `CategoricalHead`.
    """

    def make_outputs(self, in_features: int, actions: ActionShape) -> nn.Linear:
        return nn.Linear(in_features, actions.num_branches)

    def logits(self, x: Tensor) -> Tensor:
        one = self.outputs(x.float())
        return torch.stack([torch.zeros_like(one), one], -1)


class GaussianHead(ActionHead):
    """For a Box: a mean by the observation, a deviation that is learned but the same for all; actions are clipped.

    Args:
        in_features: H.
        actions: numbers within bounds.
        log_std_init: log of the deviation at the start, in the action's own units.
    """

    low: Tensor
    high: Tensor

    def __init__(self, in_features: int, actions: BoxActions, log_std_init: float = 0.0) -> None:
        count = actions.low.size
        super().__init__(nn.Linear(in_features, count), count, {"u": (count,)})
        self.log_std = nn.Parameter(torch.full((count,), log_std_init))
        self.shape = actions.shape
        self.register_buffer("low", torch.as_tensor(actions.low).flatten(), persistent=False)
        self.register_buffer("high", torch.as_tensor(actions.high).flatten(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return DiagonalGaussian(self.outputs(x.float()), self.log_std)

    def draw(self, rng: np.random.Generator, rows: int) -> FloatArray:
        return rng.standard_normal((rows, self.width), dtype=np.float32)

    def log_facts(self) -> dict[str, float]:
        return {"train/std": float(self.log_std.detach().exp().mean())}

    def to_action(self, sample: Tensor) -> Tensor:
        return sample.clamp(self.low, self.high).view(-1, *self.shape)


class SquashedHead(GaussianHead):
    """For a Box: a Gaussian whose samples tanh brings within the bounds.

    Args: those of `GaussianHead`; the deviation is that of what goes into tanh.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        return SquashedGaussian(self.outputs(x.float()), self.log_std)

    def to_action(self, sample: Tensor) -> Tensor:
        return to_bounds(sample, self.low, self.high).view(-1, *self.shape)
