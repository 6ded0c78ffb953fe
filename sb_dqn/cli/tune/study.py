"""Study of Optuna: storage, sampler, pruner, and the files written from its trials."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb_dqn.cli.tune.folder import BEST, PICTURE, STORAGE, TRIALS, StudySetup
from sb_dqn.cli.tune.spaces import start_of
from sb_dqn.cli.tune.storage import make_storage, masked, reason_of
from sb_dqn.errors import ConfigurationError, import_extra
from sb_dqn.files import csv_text, write_text, write_yaml

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

ERROR = "error"
"""User attribute with the error of a failed trial; an interrupted trial has none."""
REPEATS = "repeats"
"""User attribute of a trial that trains the settings of an earlier one with another seed: the number of that trial."""
MIN_IMPORTANCE = 10
"""Completed trials with different scores below which importances are noise."""


def import_optuna() -> Any:
    """Imports Optuna.

    Raises:
        ConfigurationError: it is not installed.
    """
    optuna = import_extra("optuna", "tune", "for `sb-dqn tune`")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    return optuna


def open_study(out: Path, setup: StudySetup, defaults: Iterable[Any] = (), worker: int | None = None) -> Any:
    """Opens or creates the study; trials that were running when it stopped are repeated.

    Args:
        out: folder of the study, locked by this process.
        setup: its setup.
        defaults: settings to start a new study from, the first with a value of a name counts.
        worker: number of a process that trains trials of a study that another one has opened; None: this one opens it.

    Raises:
        ConfigurationError: the storage cannot be opened, or a package is missing.
    """
    optuna = import_optuna()
    storage = storage_of(out, setup)
    try:
        study = optuna.create_study(
            storage=make_storage(optuna, storage),
            study_name=setup.name,
            direction="maximize",
            pruner=_pruner(optuna, setup),
            load_if_exists=True,
        )
    except ConfigurationError:
        raise
    except Exception as error:  # of any database
        raise ConfigurationError(
            f"storage must be a database URL that can be opened or a .log file, got {masked(storage)} "
            f"({reason_of(error.__cause__ or error)}). Use another --storage."
        ) from None
    trials = study.get_trials(deepcopy=False)
    # With the same seed, a sampler would repeat the samples of the first call, or of another process.
    seed = (setup.seed or 0) + len(trials) + 1_000_003 * (0 if worker is None else worker + 1)
    study.sampler = _sampler(optuna, setup.sampler, seed % 2**32)
    if worker is not None:
        return study
    if not trials and (start := start_of(dict(setup.space), *defaults)):
        study.enqueue_trial(start)
    for trial in running_trials(study, out):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if REPEATS not in trial.user_attrs:  # those are missing again
            study.enqueue_trial(trial.params)
    return study


def storage_of(out: Path, setup: StudySetup) -> str:
    """Returns the storage of a study: that of its setup, or a database in its folder."""
    return setup.storage or f"sqlite:///{(out / STORAGE).as_posix()}"


def _sampler(optuna: Any, name: str, seed: int) -> Any:
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    import_extra("cmaes", "tune", "for --sampler cmaes")
    return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


def _pruner(optuna: Any, setup: StudySetup) -> Any:
    if setup.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=setup.evaluations // 3)
    if setup.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=1, max_resource=setup.evaluations)
    return optuna.pruners.NopPruner()


def ended_trials(study: optuna.Study) -> list[Any]:
    """Returns the trials that were completed, pruned, or failed by an error; not the interrupted ones."""
    ended = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    return [trial for trial in ended if trial.state.name != "FAIL" or ERROR in trial.user_attrs]


def finished_trials(study: optuna.Study) -> list[Any]:
    """Returns the ended trials of the search, without those that repeat earlier ones."""
    return [trial for trial in ended_trials(study) if REPEATS not in trial.user_attrs]


def running_trials(study: optuna.Study, out: Path) -> list[FrozenTrial]:
    """Returns the trials that the processes of the study in `out` train."""
    running = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "RUNNING"]
    return [trial for trial in running if trial.user_attrs.get("folder") == str(out.resolve())]


def next_trial(study: optuna.Study, setup: StudySetup, out: Path, n_trials: int) -> optuna.Trial | None:
    """Begins the next missing trial, of the search or a repeat; returns None if none is missing, or others must end before."""
    running = running_trials(study, out)
    searching = [trial for trial in running if REPEATS not in trial.user_attrs]
    if len(finished_trials(study)) + len(searching) < n_trials:
        return study.ask()
    if not searching:
        done = Counter(trial.user_attrs.get(REPEATS) for trial in [*ended_trials(study), *running])
        for best in _ranked(study)[: setup.finalists]:
            if done[best.number] < setup.finalist_seeds:
                study.enqueue_trial(best.params, user_attrs={REPEATS: best.number})
                return study.ask()
    return None


class Best(NamedTuple):
    """A trial of the search with its score."""

    trial: FrozenTrial
    score: float
    """Its mean return, or the mean over those of its repeats."""
    seeds: int
    """Number of repeats; 0 for a trial that was not repeated."""


def finalists_of(study: optuna.Study) -> list[Best]:
    """Returns the repeated trials with the means of their repeats, the best one first."""
    scores: dict[int, list[float]] = {}
    for trial in ended_trials(study):
        if REPEATS in trial.user_attrs and trial.state.name == "COMPLETE":
            scores.setdefault(trial.user_attrs[REPEATS], []).append(trial.value)
    found = [
        Best(trial, fmean(scores[trial.number]), len(scores[trial.number]))
        for trial in _ranked(study)
        if trial.number in scores
    ]
    return sorted(found, key=lambda best: -best.score)


def best_settings(study: optuna.Study) -> Best | None:
    """Returns the best finalist; without repeats the trial with the highest score; None if no trial was completed."""
    ranked = finalists_of(study) or [Best(trial, trial.value, 0) for trial in _ranked(study)]
    return ranked[0] if ranked else None


def _ranked(study: optuna.Study) -> list[Any]:
    """Returns the completed trials of the search, the best one first."""
    completed = [trial for trial in finished_trials(study) if trial.state.name == "COMPLETE"]
    return sorted(completed, key=lambda trial: -trial.value)


def write_trials(out: Path, study: optuna.Study) -> None:
    """Writes `trials.csv`: number, state, score, seconds, settings and error of each ended trial, and which one it repeats."""
    trials = ended_trials(study)
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    rows = [["number", "state", "mean_return", "seconds", *names, "repeats", "error"]]
    for trial in trials:
        seconds = round(trial.duration.total_seconds(), 3) if trial.duration else ""
        settings = [trial.params.get(name, "") for name in names]
        value = "" if trial.value is None else trial.value
        attributes = [trial.user_attrs.get(name, "") for name in (REPEATS, ERROR)]
        rows.append([trial.number, trial.state.name.lower(), value, seconds, *settings, *attributes])
    write_text(out / TRIALS, csv_text(rows))


def write_best(out: Path, setup: StudySetup, policy: str, study: optuna.Study) -> Best | None:
    """Writes `best.yaml`, a preset with the settings of the best trial, and returns it; None if no trial was completed."""
    from sb_dqn.cli.tune.spaces import sample
    from sb_dqn.cli.tune.training import plan_of

    best = best_settings(study)
    if best is None:
        return None
    fixed = import_optuna().trial.FixedTrial(best.trial.params)
    plan = plan_of(setup, best.trial.number, sample(fixed, dict(setup.space)))
    seeds = f"mean over other seeds ({best.seeds})" if best.seeds else f"seed {plan.settings['seed']}"
    entry = {
        "source": f"sb-dqn tune {setup.algorithm} {setup.env_id}, the best of {len(finished_trials(study))} trials (number "
        f"{best.trial.number}), sampler {setup.sampler}, seed {setup.seed}",
        "result": f"mean return {best.score:.2f} of {setup.final_episodes} greedy episodes, {seeds}",
        "n_timesteps": plan.n_timesteps,
        "n_envs": plan.n_envs,
        "policy": plan.policy or policy,
        **({"env_kwargs": dict(plan.env_kwargs)} if plan.env_kwargs else {}),
        **{name: value for name, value in plan.settings.items() if name not in ("seed", "device")},
    }
    write_yaml(out / BEST, {"presets": {setup.env_id: entry}})
    return best


def draw_study(out: Path, title: str, study: optuna.Study) -> Path:
    """Draws the scores over the trials with the best so far, and the importance of each setting (PED-ANOVA) if it is known.

    Raises:
        ConfigurationError: matplotlib is missing.
    """
    from sb_dqn.plotting.picture import STYLES, color_of, draw_series, new_figure, save_figure, styled
    from sb_dqn.plotting.series import Series

    trials = [trial for trial in finished_trials(study) if trial.value is not None]
    numbers, values = (np.array([getattr(trial, name) for trial in trials], float) for name in ("number", "value"))
    complete = np.array([trial.state.name == "COMPLETE" for trial in trials], bool)
    importances = _importances(study)
    with styled(STYLES["screen"]):
        figure = new_figure(11 if importances else 6.5, 4.5)
        history, *bars = figure.subplots(1, 2 if importances else 1, squeeze=False)[0]
        pruned = Series("marks", numbers[~complete], values[~complete], faint=True, label="pruned")
        scores = Series("marks", numbers[complete], values[complete], label="complete")
        best = Series("line", scores.x, np.maximum.accumulate(scores.y), color=1, label="best so far")
        draw_series(history, [each for each in (pruned, scores, best) if len(each.x)], steps=True)
        history.set(title=title, xlabel="trial", ylabel="mean return")
        history.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        if trials:
            history.legend()
        for axes in bars:
            axes.barh(list(importances)[::-1], list(importances.values())[::-1], color=color_of(0))
            axes.grid(axis="y", visible=False)
            axes.set(title="importance", xlabel="relative importance")
        save_figure(figure, out / PICTURE)
    return out / PICTURE


def _importances(study: optuna.Study) -> dict[str, float]:
    """Returns the importance of each setting, the largest first; empty if there are too few completed trials."""
    optuna = import_optuna()
    values = {trial.value for trial in finished_trials(study) if trial.state.name == "COMPLETE"}
    if len(values) < MIN_IMPORTANCE:
        return {}
    try:
        return dict(
            optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
        )
    except (RuntimeError, ValueError):  # all trials alike
        return {}
