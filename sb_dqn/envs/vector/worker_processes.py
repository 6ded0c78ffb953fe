"""Detection of dead and hung worker processes of vector envs (AsyncVectorEnv, Stable-Baselines3's SubprocVecEnv)."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing import connection
from typing import Any, NamedTuple

from sb_dqn.envs.vector.worker_reports import WorkerTraceback, reports_of

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


def worker_failures(env: Any, action: Any, error: Exception) -> WorkerFailures | None:
    """Returns the dead or hung workers that caused an error; None if the environment itself raised it.

    Args:
        env: a vector env; only those with `processes` have workers.
        action: `[B, ...]` the actions that were sent last; None for a reset.
        error: the error.
    """
    if isinstance(error, (TimeoutError, multiprocessing.TimeoutError)):  # the second is gymnasium's
        return hung_workers(env, action)
    if not isinstance(error, (EOFError, OSError)):  # from a broken pipe
        return None
    return ended_workers(env, lambda lane: f"while {_last_call(action, lane)}")


def ended_workers(env: Any, when: Callable[[int], str]) -> WorkerFailures | None:
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


def hung_workers(env: Any, action: Any) -> WorkerFailures | None:
    """Returns the workers that have not replied; None if all have."""
    pipes = getattr(getattr(env, "unwrapped", env), "parent_pipes", ())
    hung = [lane for lane, pipe in enumerate(pipes) if pipe is not None and not pipe.poll(0)]
    text = "; ".join(f"the worker of lane {lane} hangs while {_last_call(action, lane)}" for lane in hung)
    return WorkerFailures(text, RESTART) if text else None


def raising_lanes(env: Any) -> list[int]:
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

    def __init__(self, pipe: Any, process: Any) -> None:
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


def _workers(env: Any) -> Sequence[Any]:
    workers: Sequence[Any] = getattr(getattr(env, "unwrapped", env), "processes", None) or ()
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
