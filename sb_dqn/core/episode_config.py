"""Settings of what REINFORCE and its kin wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch

from sb_dqn.buffers import Ring
from sb_dqn.buffers.episode_buffer import Baseline, EpisodeBuffer, EpisodeView
from sb_dqn.checks import check_float, check_int
from sb_dqn.core.rollout_config import make_ring
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.normalize import Normalizer


@dataclass(frozen=True)
class EpisodeConfig:
    """How many episodes make an update, and what their returns are; checked when made.

    Args:
        episodes_per_update: complete episodes over all lanes.
        gamma: discount per env step, [0, 1].
        lambda_: of the lambda-returns, [0, 1].
        baseline: what stands for the value where none is learned; None: the value that was declared.
        extras: shapes of what is declared beside the value.
    """

    episodes_per_update: int
    gamma: float
    lambda_: float = 1.0
    baseline: Baseline | None = None
    extras: Mapping[str, tuple[int, ...]] | None = None

    def __post_init__(self) -> None:
        check_int("episodes_per_update", self.episodes_per_update, 1)
        check_float("gamma", self.gamma, 0.0, 1.0)
        check_float("gae_lambda", self.lambda_, 0.0, 1.0)

    def build(self, stream: Stream, device: torch.device, normalizer: Normalizer) -> EpisodeBuffer:
        """A store of episodes for the lanes and spaces of `stream`.

        Raises:
            MemoryBudgetError: it does not fit.
        """

        def ring_of(rows: int) -> Ring:
            try:
                return make_ring(stream, device, rows)
            except MemoryBudgetError as error:
                raise MemoryBudgetError(
                    f"episodes of {rows} rows in {stream.num_envs} lanes do not fit into the memory of {device}; give "
                    f"fewer lanes, fewer episodes_per_update, or an env with a time limit"
                ) from error

        def view_of(ring: Ring, extras: Mapping[str, tuple[int, ...]]) -> EpisodeView:
            return EpisodeView(ring, self.gamma, self.lambda_, extras, self.baseline, normalizer.rewards)

        return EpisodeBuffer(ring_of, self.episodes_per_update, view_of, self.extras)

    def in_sequences(self, length: int | None) -> NoReturn:
        """Refuses: samples of episodes are shuffled.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            "policies with a memory are not for REINFORCE and VPG, which learn from whole episodes at once; use A2C or PPO"
        )
