"""Exceptions that end worker processes, handed to the process that made the workers."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import secrets
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Iterable
from multiprocessing import util
from typing import Any, NamedTuple

from sb_dqn.envs.vector.env_checks import FIX
from sb_dqn.errors import EnvironmentFault


class WorkerTraceback(Exception):
    """Traceback of a worker, the cause of an error in this process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class WorkerReport(NamedTuple):
    """The exception that ended a worker."""

    text: str
    """Type, text and place, such as `ValueError: no such map (maps.py, line 8)`."""
    traceback: str


class ReportingFactory:
    """Factory of an environment whose process writes a file if an exception ends it, in this factory or later.

    The environment itself is not wrapped. In the process that made the factory nothing is written.

    Args:
        env_fn: makes the environment.
        path: of the file.
    """

    def __init__(self, env_fn: Callable[[], Any], path: str) -> None:
        self.env_fn = env_fn
        self.path = path
        self.made_in = os.getpid()

    def __call__(self) -> Any:
        if os.getpid() != self.made_in:
            util.Finalize(None, write_report, (self.path,), exitpriority=0)  # runs while the exception is in flight
        return self.env_fn()


class WorkerReports:
    """Files of the workers of one vector environment; a file exists only after a worker ended by an exception, until `take`."""

    def __init__(self) -> None:
        self._prefix = os.path.join(tempfile.gettempdir(), f"sb_dqn-worker-{secrets.token_hex(8)}")
        self._paths: list[str] = []
        weakref.finalize(self, _remove, self._paths)

    def around(self, env_fns: Iterable[Callable[[], Any]]) -> list[ReportingFactory]:
        """Returns the factories of all lanes, such that their workers write reports."""
        factories = [ReportingFactory(env_fn, f"{self._prefix}-{lane}.json") for lane, env_fn in enumerate(env_fns)]
        self._paths += [factory.path for factory in factories]
        return factories

    def attach(self, env: Any) -> None:
        """Makes `reports_of` find this object by the vector environment."""
        with contextlib.suppress(AttributeError):  # a class of the user with slots
            env.worker_reports = self

    def take(self, lane: int) -> WorkerReport | None:
        """Returns the report of a worker that has ended and removes its file; None if no exception ended it."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(self._paths[lane], encoding="utf-8") as file:
                data = json.load(file)
            os.remove(self._paths[lane])
            return WorkerReport(str(data["text"]), str(data["traceback"]))
        return None

    def clear(self) -> None:
        """Removes the files; to be called once all workers have ended."""
        _remove(self._paths)


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.remove(path)


def reports_of(env: Any) -> WorkerReports | None:
    """Returns the reports of the workers of a vector environment, wrapped or not; None if it was made without."""
    for owner in (env, getattr(env, "unwrapped", None)):
        found = getattr(owner, "worker_reports", None)
        if isinstance(found, WorkerReports):
            return found
    return None


def write_report(path: str) -> None:
    """Writes the exception that ends this process, if one does and the process that reads it is alive."""
    error, parent = sys.exc_info()[1], multiprocessing.parent_process()
    if error is None or parent is None or not parent.is_alive():
        return
    data = {"text": describe_error(error), "traceback": "".join(traceback.format_exception(error))}
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(data, file)


def describe_error(error: BaseException) -> str:
    """Returns type, text and place of an error in one line."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, EnvironmentFault):  # the caller gives the fix
        text = text.removesuffix(FIX)
    places = traceback.extract_tb(error.__traceback__)
    cause = error.__cause__
    if cause is not None:
        places = traceback.extract_tb(cause.__traceback__) or places
    return f"{text} ({os.path.basename(places[-1].filename)}, line {places[-1].lineno})" if places else text
