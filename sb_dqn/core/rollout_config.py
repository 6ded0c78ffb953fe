"""Configuration of rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch

from sb_dqn.buffers import Layout, Ring
from sb_dqn.buffers.on_policy_buffer import OnPolicyBuffer
from sb_dqn.buffers.rollout_buffer import RolloutBuffer, SequenceRolloutBuffer, rows_needed
from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.normalize import Normalizer


class CollectionConfig(Protocol):
    """Configuration of what is collected before an update: a rollout or whole episodes."""

    @property
    def gamma(self) -> float: ...

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> OnPolicyBuffer: ...

    def in_sequences(self, length: int | None) -> CollectionConfig: ...


def make_ring(stream: Stream, device: torch.device, rows: int) -> Ring:
    """Returns a ring with `rows` rows per lane for the lanes and spaces of `stream`.

    Raises:
        MemoryBudgetError: it does not fit into memory.
    """
    return Ring(Layout.of(stream, rows * stream.num_envs, device))


@dataclass(frozen=True)
class RolloutConfig:
    """Length of a rollout and the number of passes over it.

    Args:
        n_steps: ticks.
        n_epochs: passes over the rollout.
        batch_size: maximum number of samples per update, checked by its caller; None: the whole rollout.
        gamma: discount per env step, [0, 1].
        lambda_: lambda of the returns, [0, 1].
        lambda_name: name of the constructor argument for `lambda_`.
        extras: shapes by name of what is stored with the actions besides the value.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    n_steps: int
    n_epochs: int
    batch_size: int | None
    gamma: float
    lambda_: float
    lambda_name: str = "gae_lambda"
    extras: Mapping[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            n_steps=check_int("n_steps", self.n_steps, 1),
            n_epochs=check_int("n_epochs", self.n_epochs, 1),
            gamma=check_float("gamma", self.gamma, 0.0, 1.0),
            lambda_=check_float(self.lambda_name, self.lambda_, 0.0, 1.0),
        )

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> RolloutBuffer:
        """Returns a rollout buffer for the lanes and spaces of `stream`.

        Raises:
            MemoryBudgetError: it does not fit into memory.
        """
        return RolloutBuffer(**self._parts(stream, device, normalizer))

    def _parts(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> dict[str, Any]:
        """Returns the arguments of the buffer."""
        try:
            ring = make_ring(stream, device, rows_needed(self.n_steps, stream.blueprint.frame_stack))
        except MemoryBudgetError as error:
            raise MemoryBudgetError(
                f"a rollout of n_steps={self.n_steps} in {stream.num_envs} lanes does not fit into the memory of {device}. "
                f"Lower n_steps or the number of lanes."
            ) from error
        batch_size = self.batch_size or self.n_steps * stream.num_envs
        return {
            "ring": ring,
            "n_steps": self.n_steps,
            "n_epochs": self.n_epochs,
            "batch_size": batch_size,
            "gamma": self.gamma,
            "lambda_": self.lambda_,
            "extras": self.extras,
            "scale": normalizer.rewards,
        }

    def in_sequences(self, length: int | None) -> SequenceRolloutConfig:
        """Returns the configuration for a recurrent policy.

        Args:
            length: length of a sequence; None: the longest that divides n_steps and fits into batch_size.

        Raises:
            ConfigurationError: the length does not divide n_steps, or is longer than batch_size.
        """
        most = min(self.n_steps, self.batch_size or self.n_steps)
        fitting = [steps for steps in range(1, most + 1) if self.n_steps % steps == 0]
        chosen = fitting[-1] if length is None else check_int("sequence_length", length, 1)
        if chosen not in fitting:
            bound = "" if self.batch_size is None else f", at most batch_size={self.batch_size}"
            raise ConfigurationError(
                f"sequence_length must be a divisor of n_steps={self.n_steps}{bound}, got {chosen}. Give {fitting[-1]}, another "
                f"divisor, or None."
            )
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return SequenceRolloutConfig(**own, sequence_length=chosen)


@dataclass(frozen=True)
class SequenceRolloutConfig(RolloutConfig):
    """Configuration of a rollout for a recurrent policy.

    Args:
        sequence_length: length of a training sequence.
    """

    sequence_length: int = 1

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> RolloutBuffer:
        return SequenceRolloutBuffer(**self._parts(stream, device, normalizer), length=self.sequence_length)
