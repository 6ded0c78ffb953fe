"""Configuration of what an on-policy algorithm collects before an update: a rollout, or whole episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from sb_dqn.buffers import Layout, Ring
from sb_dqn.buffers.episode_buffer import Baseline, EpisodeBuffer, EpisodeView
from sb_dqn.buffers.rollout_buffer import RolloutBuffer, SequenceRolloutBuffer, rows_needed
from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.normalize import Normalizer

ExtraShapes = Mapping[str, tuple[int, ...]] | None
"""Shapes by name of what a policy stores with its actions besides the value."""


def make_ring(stream: Stream, device: torch.device, rows: int, what: str, fix: str) -> Ring:
    """Returns a ring with `rows` rows per lane for the lanes and spaces of `stream`.

    Raises:
        MemoryBudgetError: it does not fit into memory; the message has `what` it holds, and the `fix`.
    """
    try:
        return Ring(Layout.for_stream(stream, rows * stream.num_envs, device))
    except MemoryBudgetError as error:
        raise MemoryBudgetError(
            f"{what} in {stream.num_envs} lanes must fit into the memory of {device}, got too little of it. {fix}."
        ) from error


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
        sequence_length: steps of a training sequence of a recurrent policy; None: single samples.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    n_steps: int
    n_epochs: int
    batch_size: int | None
    gamma: float
    lambda_: float
    lambda_name: str = "gae_lambda"
    sequence_length: int | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            n_steps=check_int("n_steps", self.n_steps, 1),
            n_epochs=check_int("n_epochs", self.n_epochs, 1),
            gamma=check_float("gamma", self.gamma, 0.0, 1.0),
            lambda_=check_float(self.lambda_name, self.lambda_, 0.0, 1.0),
        )

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer, extras: ExtraShapes) -> RolloutBuffer:
        """Returns a rollout buffer for the lanes and spaces of `stream`.

        Raises:
            MemoryBudgetError: it does not fit into memory.
        """
        rows, what = rows_needed(self.n_steps, stream.blueprint.frame_stack), f"a rollout of n_steps={self.n_steps}"
        kind = RolloutBuffer if self.sequence_length is None else SequenceRolloutBuffer
        return kind(
            make_ring(stream, device, rows, what, "Lower n_steps or the number of lanes"),
            self.n_steps,
            self.n_epochs,
            self.batch_size or self.n_steps * stream.num_envs,
            self.gamma,
            self.lambda_,
            extras,
            scale=normalizer.rewards,
            length=self.sequence_length or 1,
        )

    def in_sequences(self, length: int | None) -> RolloutConfig:
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
        return replace(self, sequence_length=chosen)


@dataclass(frozen=True)
class EpisodeConfig:
    """Number of episodes per update, and their returns, for REINFORCE and VPG.

    Args:
        episodes_per_update: complete episodes over all lanes.
        gamma: discount per env step, [0, 1].
        lambda_: lambda of the returns, [0, 1].
        baseline: replaces the value where none is learned; None: the value stored with the action.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    episodes_per_update: int
    gamma: float
    lambda_: float = 1.0
    baseline: Baseline | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            episodes_per_update=check_int("episodes_per_update", self.episodes_per_update, 1),
            gamma=check_float("gamma", self.gamma, 0.0, 1.0),
            lambda_=check_float("gae_lambda", self.lambda_, 0.0, 1.0),
        )

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer, extras: ExtraShapes) -> EpisodeBuffer:
        """Returns an episode buffer for the lanes and spaces of `stream`.

        Raises:
            MemoryBudgetError: it does not fit into memory.
        """

        def ring_of(rows: int) -> Ring:
            fix = "Use fewer lanes, fewer episodes_per_update, or an env with a time limit"
            return make_ring(stream, device, rows, f"episodes of {rows} rows", fix)

        def view_of(ring: Ring, shapes: Mapping[str, tuple[int, ...]]) -> EpisodeView:
            view = EpisodeView(ring, ring.capacity, self.gamma, self.lambda_, shapes, normalizer.rewards)
            view.baseline = self.baseline
            return view

        return EpisodeBuffer(ring_of, self.episodes_per_update, view_of, extras)


CollectionConfig = RolloutConfig | EpisodeConfig
