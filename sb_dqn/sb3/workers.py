"""Stable-Baselines3's `SubprocVecEnv`, whose errors have the exception of the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from stable_baselines3.common.vec_env import subproc_vec_env as theirs

from sb_dqn.envs.vector.worker_processes import WorkerReports, end_workers, ended_workers, watch_pipes
from sb_dqn.errors import EnvironmentFault


def _explained(method: Callable[..., Any]) -> Any:
    """Returns one of their methods with the errors of pipes explained."""

    @wraps(method)
    def explained(self: Any, *args: object, **kwargs: object) -> Any:
        with self._explaining(f"in {method.__name__}()"):
            return method(self, *args, **kwargs)

    return explained


class SubprocVecEnv(theirs.SubprocVecEnv):
    """Steps each environment in a process of its own.

    An exception that ends a worker is raised here as an `EnvironmentFault` with lane, type, text and traceback; theirs raises
    `EOFError` or `ConnectionResetError`. Vector environments of their class are instances of this one, too.

    Args:
        env_fns: make the environments.
        start_method: of multiprocessing; None: "forkserver" or "spawn".

    Raises:
        EnvironmentFault: an environment raised while it was made.
    """

    _started = False

    def __init__(self, env_fns: list[Callable[[], Any]], start_method: str | None = None) -> None:
        self.env_fns = env_fns
        """Make one more environment, for rewards of other goals in hindsight."""
        self.worker_reports = WorkerReports()
        with self._explaining(""):
            factories: list[Any] = self.worker_reports.around(env_fns)
            super().__init__(factories, start_method)
        self._started = True

    @classmethod
    def __subclasshook__(cls, other: type[Any]) -> Any:
        return theirs.SubprocVecEnv in other.__mro__ if cls is SubprocVecEnv else NotImplemented

    @contextmanager
    def _explaining(self, call: str) -> Iterator[None]:
        """Raises errors of pipes as the errors of the workers that have ended, and ends the others."""
        watch_pipes(self)
        try:
            yield
        except (EOFError, OSError) as error:
            failures = ended_workers(self, lambda _: call if self._started else "while it started")
            if failures is None:
                raise
            end_workers(self)
            error.__cause__ = failures.cause
            raise EnvironmentFault(f"{failures.text}; all workers were ended. {failures.fix}") from error


for _name in (
    "reset", "step_async", "step_wait", "get_attr", "set_attr", "has_attr", "env_method", "env_is_wrapped", "get_images",
):  # fmt: skip
    setattr(SubprocVecEnv, _name, _explained(getattr(theirs.SubprocVecEnv, _name)))
