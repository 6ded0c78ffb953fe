"""Settings of what on-policy methods collect before their updates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch

from sb_dqn.buffers import Ring
from sb_dqn.buffers.on_policy_buffer import OnPolicyBuffer
from sb_dqn.buffers.rollout_buffer import RolloutBuffer, SequenceRolloutBuffer, rows_needed
from sb_dqn.checks import check_float, check_int
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.normalize import Normalizer
from sb_dqn.spaces import flatten_space


class CollectionConfig(Protocol):
    """What is collected before the updates."""

    @property
    def gamma(self) -> float: ...

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> OnPolicyBuffer: ...

    def in_sequences(self, length: int | None) -> CollectionConfig: ...


def make_ring(stream: Stream, device: torch.device, rows: int) -> Ring:
    """A ring of `rows` rows a lane for the lanes and spaces of `stream`.

    Raises:
        MemoryBudgetError: it does not fit.
    """
    return Ring(
        rows * stream.num_envs,
        stream.num_envs,
        flatten_space(stream.observation_space),
        frame_stack=stream.blueprint.frame_stack,
        device=device,
        num_actions=stream.action_shape.num_actions,
        action_axes=stream.action_shape.shape,
        masks=stream.has_masks,
    )


@dataclass(frozen=True)
class RolloutConfig:
    """How much is collected before the updates, and how often it is used; checked when made.

    Args:
        n_steps: ticks of every lane.
        n_epochs: passes over the rollout.
        batch_size: most samples per update; None: the whole rollout at once.
        gamma: discount per env step, [0, 1].
        lambda_: of the lambda-returns, [0, 1].
        lambda_name: what the constructor calls it.
        extras: shapes of what is declared beside the value.
    """

    n_steps: int
    n_epochs: int
    batch_size: int | None
    gamma: float
    lambda_: float
    lambda_name: str = "gae_lambda"
    extras: Mapping[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        for name in ("n_steps", "n_epochs"):
            check_int(name, getattr(self, name), 1)
        if self.batch_size is not None:
            check_int("batch_size", self.batch_size, 1)
        check_float("gamma", self.gamma, 0.0, 1.0)
        check_float(self.lambda_name, self.lambda_, 0.0, 1.0)

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> RolloutBuffer:
        """A rollout for the lanes and spaces of `stream`.

        Raises:
            MemoryBudgetError: it does not fit.
        """
        return RolloutBuffer(**self._parts(stream, device, normalizer))

    def _parts(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> dict[str, Any]:
        """Ring and numbers of a rollout, by name."""
        try:
            ring = make_ring(stream, device, rows_needed(self.n_steps, stream.blueprint.frame_stack))
        except MemoryBudgetError as error:
            raise MemoryBudgetError(
                f"a rollout of n_steps={self.n_steps} in {stream.num_envs} lanes does not fit into the memory of {device}; "
                f"give fewer steps, or fewer lanes"
            ) from error
        batch_size = self.batch_size or self.n_steps * stream.num_envs
        return {
            "ring": ring, "n_steps": self.n_steps, "n_epochs": self.n_epochs, "batch_size": batch_size,
            "gamma": self.gamma, "lambda_": self.lambda_, "extras": self.extras, "scale": normalizer.rewards,
        }  # fmt: skip

    def in_sequences(self, length: int | None) -> SequenceRolloutConfig:
        """The same for a policy that remembers.

        Args:
            length: of a sequence; None: the longest that divides n_steps and fits into batch_size.

        Raises:
            ConfigurationError: it does neither.
        """
        most = min(self.n_steps, self.batch_size or self.n_steps)
        fitting = [steps for steps in range(1, most + 1) if self.n_steps % steps == 0]
        chosen = fitting[-1] if length is None else check_int("sequence_length", length, 1)
        if chosen not in fitting:
            beside = "" if self.batch_size is None else f" and be at most batch_size={self.batch_size}"
            raise ConfigurationError(
                f"sequence_length={chosen} must divide n_steps={self.n_steps}{beside}; give "
                f"{fitting[-1]}, another divisor, or None"
            )
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return SequenceRolloutConfig(**own, sequence_length=chosen)


@dataclass(frozen=True)
class SequenceRolloutConfig(RolloutConfig):
    """What is collected for a policy that remembers.

    Args:
        sequence_length: steps of one lane that are learned from together.
    """

    sequence_length: int = 1

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> RolloutBuffer:
        return SequenceRolloutBuffer(**self._parts(stream, device, normalizer), length=self.sequence_length)
