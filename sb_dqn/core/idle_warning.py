"""Warnings of a `learn` that makes no update."""

from __future__ import annotations

import warnings

from sb_dqn.errors import user_stacklevel
from sb_dqn.types import Experience


class IdleWarning:
    """Warns once of a `learn` that makes no update: before it if that is certain, else after it.

    After the first update or warning of a model it is silent, since `learn` may be called for a few steps at a time.
    """

    def __init__(self) -> None:
        self.silent = False

    def before(self, experience: Experience, total: int, num_envs: int) -> None:
        """Warns if `total` env steps over `num_envs` lanes cannot reach an update."""
        wait = experience.wait()
        if not self.silent and wait.least > total + num_envs - 1:
            self._warn(f"learn(total_timesteps={total:,}) will make no update: {wait.why}. {wait.fix}.")

    def after(self, experience: Experience, total: int, updated: bool, whole: bool) -> None:
        """Warns if a `learn` made no update.

        Args:
            experience: the buffer.
            total: its `total_timesteps`.
            updated: True if there was an update.
            whole: True if it reached its end and was not stopped by a callback.
        """
        if updated:
            self.silent = True
        elif whole and not self.silent:
            wait = experience.wait()
            self._warn(f"learn(total_timesteps={total:,}) made no update: {wait.why}. {wait.fix}.")

    def _warn(self, message: str) -> None:
        self.silent = True
        warnings.warn(message, stacklevel=user_stacklevel())
