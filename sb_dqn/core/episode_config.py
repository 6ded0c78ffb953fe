"""Configuration of updates from whole episodes, for REINFORCE and VPG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch

from sb_dqn.buffers import Ring
from sb_dqn.buffers.episode_buffer import Baseline, EpisodeBuffer, EpisodeView
from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.core.rollout_config import make_ring
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.normalize import Normalizer


@dataclass(frozen=True)
class EpisodeConfig:
    """Number of episodes per update, and their returns.

    Args:
        episodes_per_update: complete episodes over all lanes.
        gamma: discount per env step, [0, 1].
        lambda_: lambda of the returns, [0, 1].
        baseline: replaces the value where none is learned; None: the value stored with the action.
        extras: shapes by name of what is stored with the actions besides the value.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    episodes_per_update: int
    gamma: float
    lambda_: float = 1.0
    baseline: Baseline | None = None
    extras: Mapping[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        set_fields(
            self,
            episodes_per_update=check_int("episodes_per_update", self.episodes_per_update, 1),
            gamma=check_float("gamma", self.gamma, 0.0, 1.0),
            lambda_=check_float("gae_lambda", self.lambda_, 0.0, 1.0),
        )

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> EpisodeBuffer:
        """Returns an episode buffer for the lanes and spaces of `stream`.

        Raises:
            MemoryBudgetError: it does not fit into memory.
        """

        def ring_of(rows: int) -> Ring:
            try:
                return make_ring(stream, device, rows)
            except MemoryBudgetError as error:
                raise MemoryBudgetError(
                    f"episodes of {rows} rows in {stream.num_envs} lanes do not fit into the memory of {device}. Use fewer "
                    f"lanes, fewer episodes_per_update, or an env with a time limit."
                ) from error

        def view_of(ring: Ring, extras: Mapping[str, tuple[int, ...]]) -> EpisodeView:
            return EpisodeView(ring, self.gamma, self.lambda_, extras, self.baseline, normalizer.rewards)

        return EpisodeBuffer(ring_of, self.episodes_per_update, view_of, self.extras)

    def in_sequences(self, length: int | None) -> NoReturn:
        """Raises an error, since samples of episodes are shuffled.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            "policy must be feed-forward for REINFORCE and VPG, which shuffle the samples of episodes, got a recurrent one. Use "
            "A2C or PPO."
        )
