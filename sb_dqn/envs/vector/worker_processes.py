"""Worker processes of vector envs (gymnasium's AsyncVectorEnv, Stable-Baselines3's SubprocVecEnv) that die or hang."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from typing import Any

GRACE = 1.0
"""Seconds for a process that has just ended to be seen as ended, and for one that was told to end to do so."""


def lost_and_hung(env: Any, action: Any, error: Exception) -> str:
    """Which workers an error comes from that are lost or hang; empty if it is the environment's own."""
    if isinstance(error, (TimeoutError, multiprocessing.TimeoutError)):  # the second is gymnasium's
        return hung_workers(env, action)
    return lost_workers(env, action) if isinstance(error, (EOFError, OSError)) else ""  # what a broken pipe raises


def lost_workers(env: Any, action: Any) -> str:
    """Which lanes have lost their worker, how it ended and what it was last asked to do; empty where all live.

    Args:
        env: a vector env; only those with `processes` have workers.
        action: `[B, ...]` what was sent last; None: a reset.
    """
    workers = _workers(env)
    for worker in workers:
        worker.join(0.0)
    if all(worker.exitcode is None for worker in workers):
        for worker in workers:
            worker.join(GRACE / max(len(workers), 1))
    return "; ".join(
        f"the worker of lane {lane} {_end(worker.exitcode)} while {_doing(action, lane)}"
        for lane, worker in enumerate(workers)
        if worker.exitcode is not None
    )


def hung_workers(env: Any, action: Any) -> str:
    """Which lanes have not answered yet."""
    pipes = getattr(getattr(env, "unwrapped", env), "parent_pipes", ())
    silent = [lane for lane, pipe in enumerate(pipes) if pipe is not None and not pipe.poll(0)]
    return "; ".join(f"the worker of lane {lane} hangs while {_doing(action, lane)}" for lane in silent)


def end_workers(env: Any) -> None:
    """Ends all of them, so that nothing is left running and `close()` waits for nobody."""
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
    found: Sequence[Any] = getattr(getattr(env, "unwrapped", env), "processes", None) or ()
    return found


def _doing(action: Any, lane: int) -> str:
    return "resetting" if action is None else f"taking action {action[lane]}"


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
