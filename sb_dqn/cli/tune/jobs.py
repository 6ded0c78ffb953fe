"""Trials of a study, in this process or in several; the samples, reports and results go through the process of the study."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from sb_dqn.cli.tune.folder import StudySetup
from sb_dqn.cli.tune.spaces import sample
from sb_dqn.cli.tune.study import ERROR, REPEATS, import_optuna
from sb_dqn.cli.tune.training import Outcome, run_trial

START_METHOD = "spawn"
"""Forked processes cannot use CUDA, nor the thread pools of torch."""


class Worker:
    """Process that trains one trial after another.

    Args:
        setup: setup of the study.
        device: torch device, or None.
        threads: number of torch's threads.
    """

    def __init__(self, setup: StudySetup, device: str | None, threads: int) -> None:
        context: Any = multiprocessing.get_context(START_METHOD)
        self.connection, other = context.Pipe()
        # Not a daemon, so that a trial may have processes of its own, such as actors.
        self.process = context.Process(target=work, args=(other, setup, device, threads), daemon=False)
        self.process.start()
        other.close()
        self.trial: Any = None

    def begin(self, trial: Any, sampled: dict[str, Any]) -> None:
        """Starts a trial."""
        self.trial = trial
        self.connection.send((trial.number, sampled))

    def receive(self) -> Outcome | None:
        """Returns the outcome of the trial, or None after a report, which is answered."""
        try:
            message = self.connection.recv()
            if isinstance(message, Outcome):
                return message
            self.connection.send(report(self.trial, *message))
        except (EOFError, OSError):
            self.process.join()
            return Outcome(error=f"the process of the trial ended with exit status {self.process.exitcode}")
        return None

    def stop(self) -> None:
        """Ends the process, in the middle of a trial, too."""
        self.process.terminate()
        self.process.join()
        self.connection.close()


def work(connection: Connection, setup: StudySetup, device: str | None, threads: int) -> None:
    """Trains the trials that arrive, until the process of the study ends."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process of the study, which ends this one
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(threads)

    def ask(step: int, mean: float) -> bool:
        try:
            connection.send((step, mean))
            return bool(connection.recv())
        except (EOFError, OSError):
            raise SystemExit from None

    with suppress(EOFError, OSError):
        while True:
            number, sampled = connection.recv()
            connection.send(run_trial(setup, number, sampled, device, ask))


def report(trial: Any, step: int, mean: float) -> bool:
    """Stores the mean return of an evaluation; returns True if the trial is to be pruned, which repeats never are."""
    trial.report(mean, step)
    return REPEATS not in trial.user_attrs and bool(trial.should_prune())


def run_trials(
    study: Any,
    setup: StudySetup,
    out: Path,
    trials: Iterator[Any],
    jobs: int,
    device: str | None,
    on_done: Callable[[Any], None],
) -> None:
    """Runs trials, `jobs` at a time.

    Args:
        study: study of Optuna.
        setup: its setup.
        out: its folder.
        trials: yields the next trial when there is room for it.
        jobs: number of trials at a time; a single one runs in this process.
        device: torch device, or None.
        on_done: called with each finished trial.

    Raises:
        KeyboardInterrupt: by Ctrl-C or SIGTERM; the running trials are repeated by the next call.
    """

    def begun() -> Iterator[tuple[Any, dict[str, Any]]]:
        for trial in trials:
            trial.set_user_attr("folder", str(out.resolve()))
            yield trial, sample(trial, dict(setup.space))

    def tell(trial: Any, outcome: Outcome) -> None:
        on_done(_tell(study, trial, outcome))

    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if jobs > 1:
            _run_parallel(setup, begun(), jobs, device, tell)
            return
        for trial, sampled in begun():
            tell(trial, run_trial(setup, trial.number, sampled, device, partial(report, trial)))
    finally:
        signal.signal(signal.SIGTERM, previous)


def _run_parallel(
    setup: StudySetup,
    trials: Iterator[tuple[Any, dict[str, Any]]],
    jobs: int,
    device: str | None,
    tell: Callable[[Any, Outcome], None],
) -> None:
    from sb_dqn.runs.jobs import available_cores

    threads = max(1, available_cores() // jobs)
    workers: list[Worker] = []
    try:
        while True:
            while sum(worker.trial is not None for worker in workers) < jobs and (begun := next(trials, None)):
                idle = [worker for worker in workers if worker.trial is None]
                if not idle:
                    idle = [Worker(setup, device, threads)]
                    workers += idle
                idle[0].begin(*begun)
            busy = [worker.connection for worker in workers if worker.trial is not None]
            if not busy:
                return
            ready = wait(busy)
            for worker in [worker for worker in workers if worker.connection in ready]:
                if (outcome := worker.receive()) is None:
                    continue
                trial, worker.trial = worker.trial, None
                if not worker.process.is_alive():
                    workers.remove(worker)
                tell(trial, outcome)
    finally:
        for worker in workers:
            worker.stop()


def _tell(study: Any, trial: Any, outcome: Outcome) -> Any:
    """Stores the end of a trial; returns the stored trial."""
    state = import_optuna().trial.TrialState
    if outcome.error is not None:
        trial.set_user_attr(ERROR, outcome.error)
        return study.tell(trial, state=state.FAIL)
    if outcome.score is None:
        return study.tell(trial, state=state.PRUNED)
    return study.tell(trial, outcome.score)
