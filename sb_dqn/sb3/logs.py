"""Logger and episode statistics of Stable-Baselines3 for the training loop of this library."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.utils import configure_logger

from sb_dqn.core.training_run import Logs
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.types import Rows


class TheirLogs(Logs):
    """Opens loggers of Stable-Baselines3; the last one stays readable after `learn`."""

    _logger: Any

    @property
    def logger(self) -> Any:
        if self._logger is None:
            self._logger = configure_logger(0, None)
        return self._logger

    def open(self, name: str, new_run: bool) -> None:
        self.name = name
        if self.is_ours:
            super().close()
            self._logger = configure_logger(self.verbose, self.tensorboard_log, name, new_run)

    def close(self) -> None:
        """Does nothing: the logger is closed when the next one opens."""


class MonitorStatistics(EpisodeStatistics):
    """Statistics with the returns that a `Monitor` reports, where there is one: raw rewards and whole games."""

    monitored = False
    """True if the environments have a Monitor: a lost life without its report ends no episode."""

    def _record(self, rows: Rows) -> None:
        reported = [info["episode"] for info in rows.make_infos() if "episode" in info]
        self.ep_info_buffer.extend(reported)
        if not (reported or self.monitored):
            super()._record(rows)
        self.monitored = self.monitored or bool(reported)
