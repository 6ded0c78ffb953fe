"""Worker processes that are restarted when one of them dies, hangs or raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorWrapper

from sb_dqn.checks import check_choice
from sb_dqn.envs.vector.lane_indices import FirstSeed, IndexedAttributes, WorkerLanes
from sb_dqn.envs.vector.sync_env import PATIENCE, restart_seed
from sb_dqn.envs.vector.worker_processes import end_workers, worker_failures
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import Env, EnvLike, Info, Kwargs, ResetResult


def worker_lanes(
    env_fns: Sequence[Callable[[], Env]], on_env_error: str = "raise", step_timeout: float | None = None, **kwargs: Any
) -> EnvLike:
    """Returns a vector env with one process per lane.

    Args:
        env_fns: one factory per lane.
        on_env_error: treatment of a worker that dies, hangs or raises: "raise", or "restart", see `RestartingAsyncEnv`.
        step_timeout: seconds after which a worker counts as hung, with "restart"; None waits forever.
        kwargs: arguments of gymnasium's AsyncVectorEnv.
    """
    if check_choice("on_env_error", on_env_error, ("raise", "restart")) == "restart":
        return RestartingAsyncEnv(env_fns, step_timeout, **kwargs)
    if step_timeout is not None:
        raise ConfigurationError(
            f"on_env_error must be 'restart' with step_timeout={step_timeout}, got 'raise'. To raise after a timeout, open the env "
            f"with StreamOptions(step_timeout={step_timeout})."
        )
    return WorkerLanes(env_fns, **kwargs)


class RestartingAsyncEnv(FirstSeed, IndexedAttributes, VectorWrapper):
    """gymnasium's AsyncVectorEnv that restarts all workers when one dies, hangs or raises.

    The episodes under way end, in every lane, as truncated at the last observation: the other workers' results of the last
    action are lost too. `restarts` counts the restarts.

    Args:
        env_fns: one factory per lane.
        step_timeout: seconds after which a worker counts as hung; None waits forever.
        autoreset_mode: NEXT_STEP, AsyncVectorEnv's default.
        copy: True, AsyncVectorEnv's default.
        kwargs: other arguments of AsyncVectorEnv.

    Raises:
        ConfigurationError: an autoreset mode other than NEXT_STEP, or copy=False.
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
                f"autoreset_mode must be NEXT_STEP with on_env_error='restart', got {autoreset_mode!r}. Leave it out."
            )
        if not copy:
            raise ConfigurationError(
                "copy must be True with on_env_error='restart', which needs the last observation, got False. Leave it out."
            )

        def make() -> AsyncVectorEnv:
            return AsyncVectorEnv(env_fns, **kwargs)

        super().__init__(make())
        self._make = make
        self.step_timeout = step_timeout
        self.restarts = 0
        """Number of times that all workers were restarted."""
        self._observations: Any = None
        self._actions: Any = None
        self._first_results: ResetResult | None = None
        self._seed = self._steps = 0
        self._failed_step = 0
        self._failures_in_a_row = 0

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of each lane's env and returns the results, or returns an attribute."""
        return self.env.call(name, *args, **kwargs)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of each lane's env to one value, or to one value per lane in a list or tuple."""
        self.env.set_attr(name, values)

    def reset(self, *, seed: Any = None, options: Kwargs | None = None) -> ResetResult:
        """Resets every lane; an int seeds lane b with seed + b."""
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        self._first_results = None
        if seed is not None:
            self._seed = int(np.ravel(seed)[0])
        self._observations, info = self.env.reset(seed=seed, options=options)
        return self._observations, info

    def step(self, actions: object) -> Any:
        """Steps every lane, in NEXT_STEP autoreset."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: object) -> None:
        """Stores the actions; `step_wait` sends them and takes the step."""
        self._actions = actions

    def step_wait(self, timeout: float | None = None) -> Any:
        """Returns the results of the step, or after a restart the first observations of the new workers.

        Raises:
            Exception: the error of a worker, after three restarts in a row.
        """
        self._steps += 1
        if self._first_results is not None:
            (self._observations, info), self._first_results = self._first_results, None
            return self._results(truncated=False, info=info)
        try:
            self.env.step_async(self._actions)
            results = self.env.step_wait(timeout=self.step_timeout if timeout is None else timeout)
        except Exception as error:
            self._restart(error)
            return self._results(truncated=True, info={})
        self._observations = results[0]
        return results

    def _results(self, truncated: bool, info: Info) -> Any:
        terminated = np.zeros(self.num_envs, np.bool_)
        return self._observations, np.zeros(self.num_envs), terminated, np.full(self.num_envs, truncated), info

    def _restart(self, error: Exception) -> None:
        self._failures_in_a_row = self._failures_in_a_row + 1 if self._failed_step >= self._steps - 2 else 1
        failures = worker_failures(self.env, self._actions, error)
        if self._failures_in_a_row > PATIENCE:
            raise error
        end_workers(self.env)
        self._failed_step = self._steps
        self.restarts += 1
        cause = f"a worker raised {type(error).__name__}: {error}" if failures is None else failures.text
        warnings.warn(
            f"{cause} at step {self._steps}; all workers were "
            f"restarted, the episodes of all lanes count as truncated. Fix the environment if this repeats.",
            stacklevel=2,
        )
        self.env = self._make()
        self._first_results = self.env.reset(seed=restart_seed(self._seed, self.restarts * self.num_envs))
