"""Many training runs, some at a time, each a process of its own that `sb-dqn train` or `resume` would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sb_dqn.cli.keeping import checkpoints
from sb_dqn.cli.locks import alone_in
from sb_dqn.cli.results import read_result
from sb_dqn.cli.runs import CONFIG, MODEL

LOG = "log.txt"
_POLL = 0.1
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Job:
    """One run of a fleet."""

    label: str
    home: Path
    """Folder of this run alone; `train` makes the run's folder in it."""
    train: tuple[str, ...]
    """Arguments of `sb-dqn` with which it begins."""

    @property
    def folder(self) -> Path | None:
        """Of the run: the newest that was begun; None before that."""
        begun = [path.parent for path in self.home.glob(f"*/{CONFIG}")]
        return max(begun, key=lambda path: (int(path.name.rpartition("_")[2]), path.name), default=None)

    @property
    def finished(self) -> bool:
        """Whether it has been trained to the end, and evaluated."""
        return self.folder is not None and read_result(self.folder).finished

    @property
    def command(self) -> tuple[str, ...]:
        """What is to be done: go on where a model was saved, else begin."""
        folder = self.folder
        if folder is not None and ((folder / MODEL).is_file() or checkpoints(folder)):
            return ("resume", str(folder), "--no-progress")
        return self.train


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error."""

    job: Job
    why: str


def run_jobs(jobs: Sequence[Job], at_once: int, done: Callable[[Job], None]) -> list[Failure]:
    """Bring every job to its end, `at_once` at a time; `done` is told of each that got there.

    Ctrl-C and SIGTERM stop them; each takes a full checkpoint, and the next call goes on from there.

    Raises:
        KeyboardInterrupt: they were stopped.
    """
    waiting, running, failures = deque(jobs), dict[subprocess.Popen[bytes], Job](), list[Failure]()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running |= {_start(waiting[0], at_once): waiting[0]}
                waiting.popleft()
            time.sleep(_POLL)
            for process in [process for process in running if process.poll() is not None]:
                job = running.pop(process)
                if job.finished:
                    done(job)
                else:
                    failures.append(Failure(job, _last_words(job, process.returncode)))
    finally:
        _stop(running)
        signal.signal(signal.SIGTERM, before)
    return failures


def _start(job: Job, at_once: int) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C in a terminal reaches us alone and each process is told once."""
    job.home.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    if at_once > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // at_once)))
    with (job.home / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sb_dqn.cli.main", *job.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            close_fds=False,  # they hold the lock of the comparison as long as they live
        )


def _stop(running: dict[subprocess.Popen[bytes], Job]) -> None:
    """Ask every process to save and to end, and wait until it has; asked again, it stops in the middle of a step."""
    while alive := [process for process in running if process.poll() is None]:
        for process in alive:
            process.send_signal(signal.SIGTERM)
        try:
            for process in alive:
                process.wait()
        except KeyboardInterrupt:
            continue


def cores() -> int:
    """That this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _last_words(job: Job, status: int) -> str:
    """The last line that the process wrote."""
    lines = (job.home / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else f'exit status {status}'} (all of it in {job.home / LOG})"


def locked(folder: Path) -> AbstractContextManager[None]:
    """Hold the folder for this process and those that it starts, so that no second fleet writes to the same runs.

    Raises:
        click.UsageError: another process holds it.
    """
    return alone_in(
        folder,
        f"another sb-dqn compare, or a run that it began, is at work in {folder}; wait for it, or name another folder "
        f"with --out",
        with_children=True,
    )
