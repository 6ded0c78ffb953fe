"""What can be read off a model by Stable-Baselines3's names, and its log."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import torch
from gymnasium import spaces

from sb_dqn.algorithms.counters import Counters
from sb_dqn.algorithms.logs import Logs
from sb_dqn.algorithms.session import Session
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.stream import Stream
from sb_dqn.learner import Learner
from sb_dqn.logger import Logger
from sb_dqn.policies.base import Policy
from sb_dqn.rng import Generators
from sb_dqn.types import Blueprint


class Attributes:
    """Read-only names on the parts of a model."""

    keeps_replay: ClassVar[bool] = True
    """Whether there is a replay that can be saved."""
    arguments: dict[str, Any]
    blueprint: Blueprint
    counters: Counters
    learner: Learner
    logs: Logs
    policy: Policy
    rng: Generators
    session: Session | None
    statistics: EpisodeStatistics
    stream: Stream | None

    def get_env(self) -> Any:
        """The environment, as it was given or made; None if there is none."""
        return None if self.stream is None else self.stream.env

    def set_logger(self, logger: Logger) -> None:
        """Logs to `logger` from now on; whoever made it closes it."""
        self.logs.take(logger)

    def dump_logs(self) -> None:
        """Writes a log line now (while learning)."""
        if self.session is not None:
            self.session.dump()

    @property
    def logger(self) -> Logger:
        return self.logs.logger

    @property
    def num_timesteps(self) -> int:
        return self.counters.num_timesteps

    @property
    def _total_timesteps(self) -> int:
        return self.counters.horizon

    @property
    def _n_updates(self) -> int:
        return self.counters.n_updates

    @property
    def n_envs(self) -> int:
        return self.blueprint.num_envs

    @property
    def seed(self) -> int | None:
        """The seed that was given, or drawn."""
        return self.rng.seed

    @property
    def device(self) -> torch.device:
        return self.learner.flat.device

    @property
    def observation_space(self) -> spaces.Space[Any]:
        return self.blueprint.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        return self.blueprint.action_space

    @property
    def action_mask(self) -> str | None:
        """Where the legal actions are told: "info", a key of the observation, or nowhere."""
        return self.arguments.get("action_mask")

    @property
    def reads_reward(self) -> bool:
        """Whether `predict` must be told the last reward."""
        return self.policy.reads_reward

    @property
    def ep_info_buffer(self) -> deque[dict[str, Any]]:
        return self.statistics.ep_info_buffer
