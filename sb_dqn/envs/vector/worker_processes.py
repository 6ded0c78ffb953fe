"""Detection of dead and hung worker processes of vector envs (AsyncVectorEnv, Stable-Baselines3's SubprocVecEnv)."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from typing import Any

GRACE = 1.0
"""Seconds to wait until a process that died is reported as dead, and until a terminated process has ended."""


def worker_failures(env: Any, action: Any, error: Exception) -> str:
    """Describes the dead or hung workers that caused an error; empty if the environment itself raised it."""
    if isinstance(error, (TimeoutError, multiprocessing.TimeoutError)):  # the second is gymnasium's
        return hung_workers(env, action)
    return lost_workers(env, action) if isinstance(error, (EOFError, OSError)) else ""  # from a broken pipe


def lost_workers(env: Any, action: Any) -> str:
    """Describes the lanes whose worker died, with its exit code or signal and its last call; empty if all are alive.

    Args:
        env: a vector env; only those with `processes` have workers.
        action: `[B, ...]` the actions that were sent last; None for a reset.
    """
    workers = _workers(env)
    for worker in workers:
        worker.join(0.0)
    if all(worker.exitcode is None for worker in workers):
        for worker in workers:
            worker.join(GRACE / max(len(workers), 1))
    return "; ".join(
        f"the worker of lane {lane} {cause_of_death(worker.exitcode)} while {_last_call(action, lane)}"
        for lane, worker in enumerate(workers)
        if worker.exitcode is not None
    )


def hung_workers(env: Any, action: Any) -> str:
    """Describes the lanes whose worker has not replied."""
    pipes = getattr(getattr(env, "unwrapped", env), "parent_pipes", ())
    hung = [lane for lane, pipe in enumerate(pipes) if pipe is not None and not pipe.poll(0)]
    return "; ".join(f"the worker of lane {lane} hangs while {_last_call(action, lane)}" for lane in hung)


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
