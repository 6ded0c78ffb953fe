"""Worker processes of vector envs (gymnasium's and Stable-Baselines3's): which died or hang, and exceptions that ended them."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Iterable, Sequence
from multiprocessing import connection, util
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from sb_dqn.envs.vector.env_checks import FIX
from sb_dqn.errors import EnvironmentFault
from sb_dqn.types import Env, EnvLike

RAISED = 1
"""Exit code of a process that an exception ended."""
RESTART = "Create the environment again and resume."
GRACE = 1.0
"""Seconds to wait until a process that died is reported as dead, and until a terminated process has ended."""


class WorkerFailures(NamedTuple):
    """Dead or hung workers."""

    text: str
    """Each with its lane, the cause and its last call."""
    fix: str
    """Sentences on what to do."""
    cause: WorkerTraceback | None = None
    """Traceback of the first worker that ended by an exception, where it is known."""


def worker_failures(env: EnvLike, action: object, error: Exception) -> WorkerFailures | None:
    """Returns the dead or hung workers that caused an error; None if the environment itself raised it.

    Args:
        env: a vector env; only those with `processes` have workers.
        action: `[B, ...]` the actions that were sent last; None for a reset.
        error: the error.
    """
    if isinstance(error, (TimeoutError, multiprocessing.TimeoutError)):  # the second is gymnasium's
        pipes = getattr(getattr(env, "unwrapped", env), "parent_pipes", ())
        hung = [lane for lane, pipe in enumerate(pipes) if pipe is not None and not pipe.poll(0)]
        text = "; ".join(f"the worker of lane {lane} hangs while {_last_call(action, lane)}" for lane in hung)
        return WorkerFailures(text, RESTART) if text else None
    if not isinstance(error, (EOFError, OSError)):  # from a broken pipe
        return None
    return ended_workers(env, lambda lane: f"while {_last_call(action, lane)}")


def ended_workers(env: EnvLike, when: Callable[[int], str]) -> WorkerFailures | None:
    """Returns the workers that died, with exception, exit code or signal; None if all are alive.

    Args:
        env: a vector env; only those with `processes` have workers.
        when: describes the last call of a lane.
    """
    workers = _workers(env)
    for worker in workers:
        worker.join(0.0)
    if all(worker.exitcode is None for worker in workers):
        for worker in workers:
            worker.join(GRACE / max(len(workers), 1))
    ended = {lane: worker.exitcode for lane, worker in enumerate(workers) if worker.exitcode is not None}
    if not ended:
        return None
    reports = reports_of(env)
    raised = {lane: report for lane in ended if reports is not None and (report := reports.take(lane)) is not None}
    text = "; ".join(
        f"the worker of lane {lane} {f'raised {raised[lane].text}' if lane in raised else cause_of_death(code)} {when(lane)}"
        for lane, code in ended.items()
    )
    if raised:
        return WorkerFailures(text, "Fix the environment.", WorkerTraceback(next(iter(raised.values())).traceback))
    if any(code == RAISED for code in ended.values()):
        serial = "DummyVecEnv" if any(base.__name__ == "VecEnv" for base in type(env).__mro__) else "SyncVectorEnv"
        return WorkerFailures(
            text,
            f"The traceback of the worker is above, on stderr. Fix the environment; {serial} raises its error here.",
        )
    return WorkerFailures(text, RESTART)


def raising_lanes(env: EnvLike) -> list[int]:
    """Returns the lanes of gymnasium's AsyncVectorEnv whose environment raised: their pipes are gone."""
    pipes = getattr(getattr(env, "unwrapped", env), "parent_pipes", ())
    return [lane for lane, pipe in enumerate(pipes) if pipe is None]


class WatchedPipe:
    """Pipe to a worker that raises `EOFError` once the worker has ended.

    A forked worker holds the ends of the pipes of others, so that a pipe stays open after its own worker has ended.

    Args:
        pipe: connection to the worker.
        process: the worker.
    """

    def __init__(self, pipe: Any, process: BaseProcess) -> None:
        self.pipe = pipe
        self.process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self.pipe, name)

    def recv(self) -> Any:
        """Returns the next message."""
        connection.wait([self.pipe, self.process.sentinel])
        if not self.pipe.poll(0):
            raise EOFError("the worker has ended")
        return self.pipe.recv()


def watch_pipes(env: Any) -> None:
    """Makes Stable-Baselines3's SubprocVecEnv with forked workers notice that one has ended; it would wait forever."""
    owner = getattr(env, "unwrapped", env)
    pipes, processes = (vars(owner).get(name, ()) for name in ("remotes", "processes"))
    if pipes and len(pipes) == len(processes) and type(processes[0]).__name__ == "ForkProcess":
        watched = zip(pipes, processes, strict=True)
        owner.remotes = tuple(
            pipe if isinstance(pipe, WatchedPipe) else WatchedPipe(pipe, process) for pipe, process in watched
        )


def end_workers(env: Any) -> None:
    """Ends all workers, so that none keeps running and `close()` does not wait for one."""
    workers = _workers(env)
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.join(GRACE)
        if worker.exitcode is None:
            worker.kill()
            worker.join()
    if workers:
        getattr(env, "unwrapped", env).closed = True
    reports = reports_of(env)
    if reports is not None:
        reports.clear()


def _workers(env: EnvLike) -> Sequence[BaseProcess]:
    workers: Sequence[BaseProcess] = getattr(getattr(env, "unwrapped", env), "processes", None) or ()
    return workers


def _last_call(action: Any, lane: int) -> str:
    return "resetting" if action is None else f"taking action {action[lane]}"


def cause_of_death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


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

    def __init__(self, env_fn: Callable[[], Env], path: str) -> None:
        self.env_fn = env_fn
        self.path = path
        self.made_in = os.getpid()

    def __call__(self) -> Env:
        if os.getpid() != self.made_in:
            util.Finalize(None, write_report, (self.path,), exitpriority=0)  # runs while the exception is in flight
        return self.env_fn()


class WorkerReports:
    """Files of the workers of one vector environment; a file exists only after a worker ended by an exception, until `take`."""

    def __init__(self) -> None:
        self._prefix = os.path.join(tempfile.gettempdir(), f"sb_dqn-worker-{secrets.token_hex(8)}")
        self._paths: list[str] = []
        weakref.finalize(self, _remove, self._paths)

    def around(self, env_fns: Iterable[Callable[[], Env]]) -> list[ReportingFactory]:
        """Returns the factories of all lanes, such that their workers write reports."""
        factories = [ReportingFactory(env_fn, f"{self._prefix}-{lane}.json") for lane, env_fn in enumerate(env_fns)]
        self._paths += [factory.path for factory in factories]
        return factories

    def attach(self, env: EnvLike) -> None:
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


def reports_of(env: EnvLike) -> WorkerReports | None:
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
