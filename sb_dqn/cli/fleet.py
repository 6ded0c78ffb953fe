"""Many training runs, some at a time, each a process of its own that `sb-dqn train` or `resume` would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from sb_dqn.cli.keeping import checkpoints
from sb_dqn.cli.locks import alone_in
from sb_dqn.cli.results import read_result
from sb_dqn.cli.runs import CONFIG, MODEL

LOG = "log.txt"
GO = b"go\n"
"""What a process that waits for its turn reads."""
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
    def warnings(self) -> list[str]:
        """The warnings that its processes wrote, each once."""
        path = self.home / LOG
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        return list(dict.fromkeys(line for line in lines if line.startswith("UserWarning: ")))

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

    Where there are more cores than that, the process of the next job is started ahead: it imports what it needs, which takes
    seconds, and waits for its turn. Ctrl-C and SIGTERM stop them; each takes a full checkpoint, and the next call goes on from there.

    Raises:
        KeyboardInterrupt: they were stopped.
    """
    waiting, begun, failures = deque(jobs), dict[subprocess.Popen[bytes], Job](), list[Failure]()
    ahead = 1 if cores() > at_once else 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while waiting or begun:
            while waiting and len(begun) < at_once + ahead:
                begun |= {_start(waiting[0], at_once): waiting[0]}
                waiting.popleft()
            for process in list(begun)[:at_once]:
                _let_go(process)
            time.sleep(_POLL)
            for process in [process for process in begun if process.poll() is not None]:
                job = begun.pop(process)
                _let_go(process)  # closes its pipe, should it have ended before its turn
                if job.finished:
                    done(job)
                else:
                    failures.append(Failure(job, _last_words(job, process.returncode)))
    finally:
        _stop(begun)
        signal.signal(signal.SIGTERM, before)
    return failures


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Lets a process that waits for its turn begin; does nothing if it has begun."""
    if process.stdin is not None and not process.stdin.closed:
        with suppress(BrokenPipeError):
            process.stdin.write(GO)
            process.stdin.flush()
        with suppress(BrokenPipeError):
            process.stdin.close()


def _start(job: Job, at_once: int) -> subprocess.Popen[bytes]:
    """Starts a process that waits for `_let_go`.

    It has a session of its own, so that Ctrl-C in a terminal reaches us alone and each process is told once.
    """
    job.home.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ)
    if at_once > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores() // at_once)))
    with (job.home / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sb_dqn.cli.worker", *job.command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            close_fds=False,  # they hold the lock of the comparison as long as they live
        )


def _stop(begun: dict[subprocess.Popen[bytes], Job]) -> None:
    """Ask every process to save and to end, and wait until it has; asked again, it stops in the middle of a step."""
    while alive := [process for process in begun if process.poll() is None]:
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
