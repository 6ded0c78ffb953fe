"""Action values and distributions of the return, for users: NumPy in, NumPy out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sb_dqn.errors import MissingPart
from sb_dqn.nn.heads.categorical import Categorical, CategoricalValue
from sb_dqn.nn.heads.fraction import FractionProposal
from sb_dqn.nn.heads.quantile import ImplicitQuantile, Quantile, QuantileValue
from sb_dqn.policies.q_policy import QPolicy
from sb_dqn.types import FloatArray, ModelLike

DISTRIBUTIONS = (Categorical, Quantile, ImplicitQuantile, FractionProposal)


class ReturnDistribution(NamedTuple):
    """Discrete distribution of the return, for each action."""

    atoms: FloatArray
    """`[..., A, Z]`: the returns; of a quantile function, its points in the order of their fractions."""
    probabilities: FloatArray
    """`[..., A, Z]`, sums over Z are 1."""

    @property
    def mean(self) -> FloatArray:
        """`[..., A]`."""
        mean: FloatArray = (self.atoms * self.probabilities).sum(-1)
        return mean


def q_values(model: ModelLike, *call: object) -> FloatArray:
    """Returns the action values of `BaseAlgorithm.q_values`, whose arguments `call` are.

    Raises:
        MissingPart: the policy has none.
    """
    if not isinstance(model.policy, QPolicy):
        raise MissingPart(
            f"q_values requires an algorithm that learns action values, got {type(model).__name__}. Use DQN or one of its family."
        )
    found: FloatArray = model.predictor.evaluate(model.policy.values_step, *call)[0]
    return found


def uncertainty(model: ModelLike, *call: object) -> FloatArray:
    """Returns the disagreement of `BaseAlgorithm.uncertainty`, whose arguments `call` are.

    Raises:
        MissingPart: the model has no ensemble.
    """
    policy = model.policy
    if not isinstance(policy, QPolicy) or policy.config.ensemble is None:
        raise MissingPart(
            f"uncertainty requires an ensemble, got {type(model).__name__} without one. Use DQN or one of its family with "
            f"ensemble=True."
        )

    def spread(obs: dict[str, Tensor], mask: Tensor | None) -> tuple[Tensor]:
        return (policy.values_of_members(obs, mask)[0].std(1, correction=0),)

    found: FloatArray = model.predictor.evaluate(spread, *call)[0]
    return found


def distribution(model: ModelLike, *call: object) -> ReturnDistribution:
    """Returns the distribution of `BaseAlgorithm.distribution`, whose arguments `call` are.

    Raises:
        MissingPart: the policy has none.
    """
    policy = model.policy
    if not isinstance(policy, QPolicy) or not isinstance(policy.config.distribution, DISTRIBUTIONS):
        raise MissingPart(
            f"distribution requires an algorithm that learns the distribution of the return, got {type(model).__name__}. Use "
            f"C51, QRDQN, IQN, FQF, Rainbow, DataEfficientRainbow or BTR."
        )

    net: Any = policy.acting_network

    def step(obs: dict[str, Tensor], mask: Tensor | None, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        value = net.step(obs, mask, *inputs)[0] if inputs else net(obs, mask)
        atoms, probabilities = atoms_and_probabilities(value)
        if policy.config.ensemble is None:
            return atoms, probabilities
        members = policy.config.ensemble.members  # a mixture, with the atoms of all of them
        atoms, probabilities = (
            x.view(members, -1, *x.shape[1:]).movedim(0, -2).flatten(-2) for x in (atoms, probabilities / members)
        )
        return atoms, probabilities

    arrays: tuple[npt.NDArray[np.float32], ...] = model.predictor.evaluate(step, *call)
    return ReturnDistribution(*arrays)


def atoms_and_probabilities(value: CategoricalValue | QuantileValue) -> tuple[Tensor, Tensor]:
    """Returns atoms and their probabilities, both `[..., A, Z]`."""
    if isinstance(value, CategoricalValue):
        return value.support.expand_as(value.logits), value.logits.softmax(-1)
    quantiles = value.quantiles
    if value.weights is None:
        return quantiles, quantiles.new_full(quantiles.shape, 1.0 / quantiles.shape[-1])
    return quantiles, value.weights.unsqueeze(-2).expand_as(quantiles)
