"""Processes of `sb-dqn train --learners N`: one `sb-dqn` per learner, ended together.

torch's launcher is not used: it kills the learners 30 s after Ctrl-C, even while they save, reports an error of one line in 42,
and its store listens on all interfaces.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

GRACE_SECONDS = 15.0
"""Time for the other learners to end after one has failed."""
PARENT = "SB_DQN_PARENT"
"""Environment variable with the process id of the starting process."""


def start_learners(count: int, further: Sequence[str] = ()) -> None:
    """Runs the current command, with `further` arguments, in `count` processes instead of this one.

    Returns at once in these, and for one learner.

    Raises:
        click.UsageError: this process is a learner of a group of another size.
    """
    if "WORLD_SIZE" in os.environ and "RANK" in os.environ:
        size = int(os.environ["WORLD_SIZE"])
        if count not in (1, size):
            raise click.UsageError(
                f"--learners must be {size} as started by torchrun, got {count}. Remove it, or start without torchrun."
            )
        _end_with_parent()
    elif count > 1:
        _run_learners(count, [*sys.argv[1:], *further])


def rank() -> int:
    """Returns the number of this learner; 0 if there is one."""
    return int(os.environ["RANK"]) if "WORLD_SIZE" in os.environ and "RANK" in os.environ else 0


def available_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _run_learners(count: int, arguments: Sequence[str]) -> None:
    """Runs `sb-dqn` with these arguments in `count` processes; the output of the first one is shown.

    Signals are passed on, so that the first Ctrl-C saves and stops, and the second stops at once. If a process fails, the
    others are ended. Exits with the status of the first failure.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]  # a free one
    shared = {**os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    threads = os.environ.get("OMP_NUM_THREADS", str(max(available_cores() // count, 1)))
    shared |= {PARENT: str(os.getpid()), "OMP_NUM_THREADS": threads}
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in processes:
            process.send_signal(number)

    before: dict[signal.Signals, Any] = {kind: signal.signal(kind, pass_on) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in range(count):
            environment = {**shared, "RANK": str(number), "LOCAL_RANK": str(number)}
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "sb_dqn.cli.main", *arguments],
                    env=environment,
                    stdout=None if number == 0 else subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C reaches this process only, which passes it on once
                )
            )
        status = _wait(processes)
    finally:
        for process in processes:
            process.kill()
        for kind, handler in before.items():
            signal.signal(kind, handler)
    sys.exit(status)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Waits for all processes; returns the status of the first that failed, and names it."""
    failed, deadline = 0, float("inf")
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if not failed:
            failed = _first_failure(processes)
            deadline = time.monotonic() + GRACE_SECONDS if failed else deadline
        time.sleep(0.05)
    return failed or _first_failure(processes)


def _first_failure(processes: list[subprocess.Popen[bytes]]) -> int:
    for number, process in enumerate(processes):
        status = process.poll()
        if status is not None and status < 0:
            click.echo(f"Error: learner {number} was ended by {signal.Signals(-status).name}", err=True)
            return 128 - status
    return next((process.returncode for process in processes if process.returncode), 0)


def _end_with_parent() -> None:
    """Makes this learner end when the process that started it does (Linux)."""
    if PARENT in os.environ and sys.platform.startswith("linux"):
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)
        if os.getppid() != int(os.environ[PARENT]):  # it has ended already
            os.kill(os.getpid(), signal.SIGTERM)
