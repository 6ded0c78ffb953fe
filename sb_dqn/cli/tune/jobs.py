"""Trials of a study: in this process one after the other, or in several processes that share its storage."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.tune.folder import StudySetup
from sb_dqn.cli.tune.spaces import sample
from sb_dqn.cli.tune.storage import VARIABLE
from sb_dqn.cli.tune.study import (
    ERROR,
    REPEATS,
    ended_trials,
    finished_trials,
    import_optuna,
    next_trial,
    running_trials,
)
from sb_dqn.cli.tune.training import Outcome, run_trial
from sb_dqn.runs.jobs import LOG, Failure, Job, run_jobs

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

ASK = ".ask.lock"
"""File that is locked while a process begins a trial."""
WORKER = "worker"
"""User attribute of a trial: name of the process that trains it."""
PAUSE = 1.0
"""Seconds between two looks at the storage."""


def report(trial: optuna.Trial, step: int, mean: float) -> bool:
    """Stores the mean return of an evaluation; returns True if the trial is to be pruned, which repeats never are."""
    trial.report(mean, step)
    return REPEATS not in trial.user_attrs and bool(trial.should_prune())


def work(
    study: optuna.Study,
    setup: StudySetup,
    out: Path,
    n_trials: int,
    device: str | None,
    on_done: Callable[[FrozenTrial], None] = lambda trial: None,
    worker: str = "",
) -> None:
    """Trains one trial after the other, those of the search and then the repeats, until none is missing.

    Calls `on_done` with each finished trial; `worker` is the name of this process among several.

    Raises:
        KeyboardInterrupt: by Ctrl-C or SIGTERM; the running trials are repeated by the next call.
    """
    from filelock import FileLock

    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            with FileLock(out / ASK):  # of several processes, one at a time counts the trials and begins one
                trial = next_trial(study, setup, out, n_trials)
                if trial is not None:
                    trial.set_user_attr("folder", str(out.resolve()))
                    trial.set_user_attr(WORKER, worker)
                    sampled = sample(trial, dict(setup.space))
            if trial is not None:
                outcome = run_trial(setup, trial.number, sampled, device, partial(report, trial))
                on_done(_tell(study, trial, outcome))
            elif running_trials(study, out):  # the last ones of the search decide which are repeated
                time.sleep(PAUSE)
            else:
                return
    finally:
        signal.signal(signal.SIGTERM, previous)


@dataclass(frozen=True)
class Worker(Job):
    """Process that trains trials of a study."""

    study: optuna.Study
    out: Path
    storage: str | None

    @property
    def trial(self) -> Any:
        """Trial that the process trains; None if it trains none."""
        running = running_trials(self.study, self.out)
        return next((trial for trial in running if trial.user_attrs.get(WORKER) == self.label), None)

    @property
    def finished(self) -> bool:
        """True if the process has left no trial behind."""
        return self.trial is None

    @property
    def environment(self) -> Mapping[str, str]:
        """The storage with its password, which is so in no list of processes."""
        return {VARIABLE: self.storage} if self.storage else {}

    @property
    def command(self) -> tuple[str, ...]:
        return self.train


def run_workers(
    study: optuna.Study,
    setup: StudySetup,
    out: Path,
    n_trials: int,
    device: str | None,
    on_done: Callable[[FrozenTrial], None],
    jobs: int,
) -> None:
    """Runs `work` in `jobs` processes. If one ends before its trial, the trial has failed, and the process starts again."""
    known, latest = {trial.number for trial in ended_trials(study)}, 0.0

    def look(_: object = None) -> None:
        nonlocal latest
        if time.monotonic() - latest < PAUSE:
            return
        for trial in sorted(ended_trials(study), key=lambda trial: trial.datetime_complete):
            if trial.number not in known:
                known.add(trial.number)
                on_done(trial)
        latest = time.monotonic()

    def fail(failure: Failure) -> bool:
        assert isinstance(failure.job, Worker)
        trial = import_optuna().trial.Trial(study, failure.job.trial._trial_id)
        _tell(study, trial, Outcome(error=f"the process of the trial ended: {failure.reason}"))
        return True

    words = ("tune", "--resume", str(out), *(("--device", device) if device else ()), "--worker")
    workers = [
        Worker(name, out / "workers" / name, (*words, name), study, out, setup.storage)
        for name in map(str, range(jobs))
    ]
    run_jobs(workers, jobs, look, look, fail)
    latest = 0.0
    look()
    if len(finished_trials(study)) < n_trials:
        raise click.ClickException(
            f"the processes of the trials must train them, but ended. Read {out}/workers/*/{LOG}."
        )


def _tell(study: optuna.Study, trial: optuna.Trial, outcome: Outcome) -> Any:
    """Stores the end of a trial; returns the stored trial."""
    state = import_optuna().trial.TrialState
    if outcome.error is not None:
        trial.set_user_attr(ERROR, outcome.error)
        return study.tell(trial, state=state.FAIL)
    if outcome.score is None:
        return study.tell(trial, state=state.PRUNED)
    return study.tell(trial, outcome.score)
