"""Job runner: parallel processes of `sb-dqn`, such as the runs of a comparison or the workers of a study."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sb_dqn.runs.checkpoint_timer import checkpoints
from sb_dqn.runs.folder import MODEL, Result, read_result
from sb_dqn.runs.learner_processes import available_cores
from sb_dqn.runs.run import Run, newest_run

LOG = "log.txt"
START = b"go\n"
"""Start signal on the stdin of a waiting process."""
_POLL_INTERVAL = 0.1
"""Seconds between two polls of the processes."""


@dataclass(frozen=True)
class Job:
    """One of several runs to train."""

    label: str
    home: Path
    """Parent folder for this run only; `train` creates the run's folder in it."""
    train: tuple[str, ...]
    """Arguments of `sb-dqn` that start the run."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Further variables of the environment of the process."""
        return {}

    @property
    def run(self) -> Run | None:
        """Newest run of the job, or None if it has not started."""
        return newest_run(self.home)

    @property
    def folder(self) -> Path | None:
        """Folder of the newest run, or None if it has not started."""
        run = self.run
        return None if run is None else run.folder

    @property
    def result(self) -> Result:
        """Result of the newest run so far."""
        return read_result(self.folder or self.home)

    @property
    def finished(self) -> bool:
        """True once the run has been trained to the end and evaluated."""
        return self.result.finished

    @property
    def warnings(self) -> list[str]:
        """Warnings in the log of the run, without duplicates."""
        path = self.home / LOG
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
        return list(dict.fromkeys(line for line in lines if line.startswith("UserWarning: ")))

    @property
    def command(self) -> tuple[str, ...]:
        """Arguments of `sb-dqn` that resume the run if a model was saved, else start it."""
        folder = self.folder
        if folder is not None and ((folder / MODEL).is_file() or checkpoints(folder)):
            device = self.train.index("--device") if "--device" in self.train else len(self.train)
            return ("resume", str(folder), "--no-progress", *self.train[device : device + 2])
        return self.train


@dataclass(frozen=True)
class Failure:
    """Run that ended with an error."""

    job: Job
    reason: str


def run_jobs(
    jobs: Sequence[Job],
    n_parallel: int,
    on_done: Callable[[Job], None],
    on_poll: Callable[[Collection[Job]], None] = lambda running: None,
    again: Callable[[Failure], bool] = lambda failure: False,
) -> list[Failure]:
    """Runs all jobs, `n_parallel` at a time, and calls `on_done` for each that finished.

    If a core is free, the process of the next job is started ahead: it imports its modules, which takes seconds, and waits.
    Ctrl-C and SIGTERM stop all processes; each saves a full checkpoint, from which the next call resumes.

    Args:
        jobs: runs to start or resume.
        n_parallel: number of runs at a time.
        on_done: called with each finished job.
        on_poll: called several times a second with the jobs that run.
        again: called with each job that failed; returns True to start it again.

    Returns:
        The jobs that failed.

    Raises:
        KeyboardInterrupt: the jobs were stopped.
    """
    waiting, started, failures = deque(jobs), dict[subprocess.Popen[bytes], Job](), list[Failure]()
    ahead = 1 if available_cores() > n_parallel else 0
    previous_handler = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while waiting or started:
            while waiting and len(started) < n_parallel + ahead:
                started |= {_start(waiting[0], n_parallel): waiting[0]}
                waiting.popleft()
            for process in list(started)[:n_parallel]:
                _send_start(process)
            on_poll(list(started.values())[:n_parallel])
            time.sleep(_POLL_INTERVAL)
            for process in [process for process in started if process.poll() is not None]:
                job = started.pop(process)
                _send_start(process)  # closes the pipe of a process that ended before its start signal
                if job.finished:
                    on_done(job)
                elif again(failure := Failure(job, _last_line(job, process.returncode))):
                    waiting.append(job)
                else:
                    failures.append(failure)
    finally:
        _stop(started)
        signal.signal(signal.SIGTERM, previous_handler)
    return failures


def _send_start(process: subprocess.Popen[bytes]) -> None:
    """Sends the start signal to a waiting process; does nothing if it was sent before."""
    if process.stdin is not None and not process.stdin.closed:
        with suppress(BrokenPipeError):
            process.stdin.write(START)
            process.stdin.flush()
        with suppress(BrokenPipeError):
            process.stdin.close()


def _start(job: Job, n_parallel: int) -> subprocess.Popen[bytes]:
    """Starts a process that waits for the start signal.

    The process gets its own session, so that Ctrl-C in a terminal reaches the parent only, which then stops each process once.
    """
    job.home.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **job.environment}
    if n_parallel > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // n_parallel)))
    with (job.home / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "sb_dqn.cli.preloaded", *job.command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            close_fds=False,  # the child inherits the lock of a comparison
        )


def _stop(started: dict[subprocess.Popen[bytes], Job]) -> None:
    """Stops every process with SIGTERM, which saves the run, and waits; a second Ctrl-C sends another SIGTERM."""
    for process in started:
        if process.stdin is not None:
            process.stdin.close()  # a process that waits for its start signal ends
    while alive := [process for process in started if process.poll() is None]:
        for process in alive:
            process.send_signal(signal.SIGTERM)
        try:
            for process in alive:
                process.wait()
        except KeyboardInterrupt:
            continue


def _last_line(job: Job, status: int) -> str:
    """Returns the last line in the log of the job, or its exit status."""
    lines = (job.home / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{lines[-1] if lines else f'exit status {status}'} (full log: {job.home / LOG})"
