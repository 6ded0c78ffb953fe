"""Worker processes that are made anew when one of them dies, hangs or raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorWrapper

from sb_dqn.checks import check_choice
from sb_dqn.envs.indices import WorkerLanes
from sb_dqn.envs.lanes import PATIENCE, Env
from sb_dqn.envs.workers import end_workers, lost_and_hung
from sb_dqn.errors import ConfigurationError


def worker_lanes(
    env_fns: Sequence[Callable[[], Env]],
    on_env_error: str = "raise",
    step_timeout: float | None = None,
    **kwargs: Any,
) -> Any:
    """A process for each lane.

    Args:
        env_fns: one factory for each lane.
        on_env_error: what becomes of a worker that dies, hangs or raises: "raise", or "restart", see `RenewedWorkers`.
        step_timeout: seconds after which a worker counts as hung, with "restart"; None waits for ever.
        kwargs: of gymnasium's AsyncVectorEnv.
    """
    if check_choice("on_env_error", on_env_error, ("raise", "restart")) == "restart":
        return RenewedWorkers(env_fns, step_timeout, **kwargs)
    if step_timeout is not None:
        raise ConfigurationError(
            f"step_timeout={step_timeout} needs on_env_error='restart'; to raise instead, give the reader "
            f"StreamOptions(step_timeout={step_timeout})"
        )
    return WorkerLanes(env_fns, **kwargs)


class RenewedWorkers(VectorWrapper):
    """gymnasium's AsyncVectorEnv, of which all workers are ended and made anew when one is lost.

    The episodes under way end, in every lane, as truncated at the last observation that was seen: what the others answered
    to the last action is lost with the one that did not answer. `restarts` counts it.

    Args:
        env_fns: one factory for each lane.
        step_timeout: seconds after which a worker counts as hung; None waits for ever.
        autoreset_mode, copy: of AsyncVectorEnv; its own defaults alone.
        kwargs: its others.

    Raises:
        ConfigurationError: an autoreset mode other than NEXT_STEP, or observations that are not copied.
    """

    env: AsyncVectorEnv

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env]],
        step_timeout: float | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        **kwargs: Any,
    ) -> None:
        if AutoresetMode(autoreset_mode) is not AutoresetMode.NEXT_STEP:
            raise ConfigurationError(
                f"on_env_error='restart' needs autoreset_mode NEXT_STEP, not {autoreset_mode!r}: leave it out"
            )
        if not copy:
            raise ConfigurationError("on_env_error='restart' needs the last observation, which copy=False overwrites")
        self._make: Callable[[], AsyncVectorEnv] = lambda: AsyncVectorEnv(env_fns, **kwargs)
        super().__init__(self._make())
        self.step_timeout = step_timeout
        self.restarts = 0
        """Times that all workers were made anew."""
        self._observations: Any = None
        self._actions: Any = None
        self._begun: tuple[Any, dict[str, Any]] | None = None
        self._steps = self._failed = self._times = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """As the env does."""
        self._begun = None
        self._observations, info = self.env.reset(**kwargs)
        return self._observations, info

    def step(self, actions: Any) -> Any:
        """As the env does in NEXT_STEP autoreset."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Takes the actions of a step; `step_wait` takes the step."""
        self._actions = actions

    def step_wait(self, timeout: float | None = None) -> Any:
        """The step, or what new workers began with after those that were lost.

        Raises:
            Exception: what a worker raised, after three renewals in a row.
        """
        self._steps += 1
        if self._begun is not None:
            (self._observations, info), self._begun = self._begun, None
            return self._answer(truncated=False, info=info)
        try:
            self.env.step_async(self._actions)
            answer = self.env.step_wait(timeout=self.step_timeout if timeout is None else timeout)
        except Exception as error:
            self._renew(error)
            return self._answer(truncated=True, info={})
        self._observations = answer[0]
        return answer

    def _answer(self, truncated: bool, info: dict[str, Any]) -> Any:
        nothing = np.zeros(self.num_envs, np.bool_)
        return self._observations, np.zeros(self.num_envs), nothing, np.full(self.num_envs, truncated), info

    def _renew(self, error: Exception) -> None:
        self._times = self._times + 1 if self._failed >= self._steps - 2 else 1
        lost = lost_and_hung(self.env, self._actions, error)
        if self._times > PATIENCE:
            raise error
        end_workers(self.env)
        self._failed, self.restarts = self._steps, self.restarts + 1
        warnings.warn(
            f"{lost or f'a worker raised {type(error).__name__}: {error}'} at step {self._steps}; all workers were made anew, "
            f"the episodes of all lanes count as truncated",
            stacklevel=2,
        )
        self.env = self._make()
        self._begun = self.env.reset(seed=self.restarts * self.num_envs)
