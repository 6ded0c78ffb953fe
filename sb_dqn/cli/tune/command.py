"""The command `sb-dqn tune`."""

from __future__ import annotations

import secrets
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import folder_option, number_option, path_option, settings_option
from sb_dqn.cli.tune.folder import BEST, STUDY, StudySetup, check_study, read_study, write_study
from sb_dqn.cli.tune.storage import MASK, VARIABLE, masked, storage_errors

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

TRIALS = 50
"""Default number of trials."""


@click.command(short_help="Search good settings of an algorithm for an environment.")
@click.argument("algo", metavar="ALGO", required=False)
@click.argument("env_id", metavar="ENV", required=False)
@number_option(
    "--trials", metavar="N", help="Number of trials in all, those of earlier calls included. Default: 50, or as before."
)
@number_option("--timesteps", "-n", metavar="N", help="Env steps of each trial. Default: by the preset.")
@number_option("--jobs", "-j", default=1, help="Number of trials at a time.")
@click.option("--sampler", type=click.Choice(["tpe", "random", "cmaes"]), default="tpe", show_default=True)
@click.option("--pruner", type=click.Choice(["median", "hyperband", "none"]), default="median", show_default=True)
@path_option(
    "--space", "space_file", metavar="FILE", help="YAML file with the search space. Default: one for each algorithm."
)
@settings_option("--set", "-o", "settings", help="A fixed keyword of the constructor, which is not searched")
@settings_option("--env-set", "env_settings", help="A keyword of the environment")
@click.option("--preset", metavar="NAME", help="Preset to start from, as in `sb-dqn train`. Default: the one for ENV.")
@click.option("--policy", metavar="NAME", help="Policy, as in `sb-dqn train`.")
@number_option("--n-envs", metavar="N", help="Number of parallel environments (lanes).")
@number_option("--evaluations", default=10, help="Evaluations of a trial, for the pruner.")
@number_option("--eval-episodes", default=5, help="Episodes of each.")
@number_option(
    "--final-episodes", default=20, help="Greedy episodes after training; their mean return is the score of the trial."
)
@number_option(
    "--finalists",
    least=0,
    default=3,
    help="Number of the best settings that are trained again after the search, with other seeds, so that the best is not the "
    "one with the luckiest seed; 0: none.",
)
@number_option("--finalist-seeds", default=3, help="Other seeds of each of them.")
@number_option(
    "--seed",
    least=0,
    metavar="S",
    help="Seed of the sampler; trial i trains with seed S + i. Default: drawn, and saved with the study.",
)
@click.option("--device", metavar="NAME", help="auto, cpu, cuda, cuda:1.")
@click.option(
    "--storage",
    metavar="URL",
    envvar=VARIABLE,
    show_envvar=True,
    help="Database URL, or a .log file for a journal. Default: study.db (SQLite) in the folder. A password is not kept: the "
    "same URL is needed to continue.",
)
@folder_option("--out", "--folder", "out", help="Folder of the study. Default: runs/tune_ALGO_ENV.")
@folder_option(
    "--resume",
    metavar="FOLDER",
    help="Continue the study in FOLDER with its own settings; with --trials, --jobs and --device only, and --storage if its "
    "URL has a password.",
)
@number_option("--worker", least=0, hidden=True, help="Number of this process among those of the study.")
def tune(
    algo: str | None,
    env_id: str | None,
    trials: int | None,
    jobs: int,
    device: str | None,
    out: Path | None,
    resume: Path | None,
    worker: int | None,
    **options: Any,
) -> None:
    """Train ALGO on ENV with many settings, chosen by Optuna, and write the best as a preset.

    Each trial uses the settings of `sb-dqn train`, its preset included, with sampled ones over them. The same command
    continues a stopped study, and one with more --trials extends it.

    \b
    sb-dqn tune dqn LunarLander-v3 --trials 40 --timesteps 50000 --jobs 4
    sb-dqn tune ppo CartPole-v1 --space my_space.yaml --sampler random --pruner none
    sb-dqn tune --resume runs/tune_dqn_LunarLander-v3 --trials 80
    sb-dqn train dqn LunarLander-v3 --preset runs/tune_dqn_LunarLander-v3/best.yaml
    """
    from sb_dqn.cli.tune.study import import_optuna, storage_of
    from sb_dqn.runs.folder_lock import lock_folder

    import_optuna()
    if resume is not None:
        out, setup, stored_trials = _stored_study(resume, algo, env_id, options["storage"])
    elif algo is None or env_id is None:
        raise click.UsageError("ALGO and ENV must be set. Use sb-dqn tune ALGO ENV, or sb-dqn tune --resume FOLDER.")
    else:
        out, setup, stored_trials = _requested_study(algo, env_id, out, **options)
    n_trials = trials or stored_trials
    if worker is not None:
        from sb_dqn.cli.tune.jobs import work
        from sb_dqn.cli.tune.study import open_study

        try:
            with storage_errors(storage_of(out, setup)):
                work(open_study(out, setup, worker=worker), setup, out, n_trials, device, worker=str(worker))
        except KeyboardInterrupt:
            sys.exit(130)
        return
    policy = _check(setup, device)
    with (
        lock_folder(out, f"Another `sb-dqn tune` uses {out}. Wait until it ends, or choose another folder with --out."),
        storage_errors(storage_of(out, setup)),
    ):
        _run(out, setup, n_trials, jobs, device, policy)


def _stored_study(out: Path, algo: str | None, env_id: str | None, storage: str | None) -> tuple[Path, StudySetup, int]:
    """Returns the study in a folder; the password of its storage is that of the command line or the environment."""
    from sb_dqn.runs.settings_syntax import canonical, typed_options

    stored = read_study(out)
    if stored is None:
        raise click.UsageError(
            f"--resume must be the folder of a study, got {out}, which has no {STUDY}. Start one with sb-dqn tune ALGO ENV."
        )
    setup, trials = stored
    allowed = {"resume", "trials", "jobs", "device", "worker"}
    if storage and setup.storage and masked(storage) == masked(setup.storage):
        setup = replace(setup, storage=storage)
        allowed.add("storage")
    fixed = [option for name, option in typed_options().items() if name not in allowed]
    fixed += [algo] if algo is not None and canonical(algo) != setup.algorithm else []
    fixed += [env_id] if env_id not in (None, setup.env_id) else []
    if fixed:
        raise click.UsageError(
            f"{out} must be continued with its own settings, got {', '.join(fixed)}. Remove these arguments, or start another "
            f"study without --resume."
        )
    if setup.storage is not None and MASK in setup.storage and "storage" not in allowed:
        raise click.UsageError(
            f"--storage must be {setup.storage} with its password, which {STUDY} has not, got none. Add the option, or set {VARIABLE}."
        )
    return out, setup, trials


def _requested_study(
    algo: str, env_id: str, out: Path | None, seed: int | None, space_file: Path | None, **options: Any
) -> tuple[Path, StudySetup, int]:
    """Returns the study of the command line; a stored one in its folder has the seed and the name."""
    from sb_dqn.cli.tune.spaces import default_space, read_space, without_fixed
    from sb_dqn.runs.settings_syntax import canonical, parse_assignments

    algorithm = canonical(algo)
    out = out or Path("runs") / f"tune_{algorithm.lower()}_{env_id.replace('/', '-').replace(':', '-')}"
    stored = read_study(out)
    if seed is None:
        seed = secrets.randbelow(2**31) if stored is None else stored[0].seed
    space = default_space(algorithm) if space_file is None else read_space(space_file, algorithm)
    space = without_fixed(space, parse_assignments(options["settings"]))
    if (preset := options["preset"]) is not None and preset.endswith((".yaml", ".yml")):
        options["preset"] = str(Path(preset).resolve())  # --resume may be called from another folder
    name = out.resolve().name if stored is None else stored[0].name
    return out, StudySetup(name, algorithm, env_id, seed=seed, space=space, **options), stored[1] if stored else TRIALS


def _check(setup: StudySetup, device: str | None) -> str:
    """Makes the model of the preset once, so that a wrong name or environment ends the command; returns the policy."""
    from sb_dqn.cli.tune.training import make_model, plan_of
    from sb_dqn.core.arguments import check_keywords
    from sb_dqn.runs.settings_syntax import algorithm_class

    if not setup.space:
        raise click.UsageError("The search space must have a setting, got none that --set leaves free. Remove a --set.")
    plan = plan_of(setup, 0, {}, device)
    check_keywords(algorithm_class(setup.algorithm), dict.fromkeys(name.partition(".")[0] for name in setup.space))
    model = make_model(plan)
    model.get_env().close()
    return plan.policy or type(model.policy).__name__


def _run(out: Path, setup: StudySetup, n_trials: int, jobs: int, device: str | None, policy: str) -> None:
    """Runs the missing trials, and reports."""
    from sb_dqn.cli.tune.jobs import run_workers, work
    from sb_dqn.cli.tune.study import finished_trials, open_study, write_best, write_trials
    from sb_dqn.cli.tune.training import plan_of
    from sb_dqn.runs.settings_syntax import algorithm_class, constructor_defaults

    check_study(out, setup)
    plan = plan_of(setup, 0, {})
    study = open_study(out, setup, (plan.settings, constructor_defaults(algorithm_class(setup.algorithm))))
    write_study(out, setup, n_trials)
    done = len(finished_trials(study))
    repeats = (
        f"; then the best {setup.finalists} again with {setup.finalist_seeds} other seeds" if setup.finalists else ""
    )
    click.echo(
        f"{setup.algorithm} on {setup.env_id}: {max(n_trials - done, 0)} of {n_trials} trials to do, {plan.n_timesteps:,} steps "
        f"each, {jobs} at a time, sampler {setup.sampler}, pruner {setup.pruner}, seed {setup.seed}\n"
        f"searching {', '.join(setup.space)}{repeats}\nwriting to {out}; Ctrl-C stops, and the same command continues"
    )

    def on_done(trial: FrozenTrial) -> None:
        write_trials(out, study)
        click.echo(_describe(trial, write_best(out, setup, policy, study)))

    try:
        if jobs > 1:
            run_workers(study, setup, out, n_trials, device, on_done, jobs)
        else:
            work(study, setup, out, n_trials, device, on_done)
    except KeyboardInterrupt:
        click.echo(
            f"\nstopped; {len(finished_trials(study))} finished trials are saved, and the same command continues"
        )
        sys.exit(130)
    _report(out, setup, policy, study)


def _describe(trial: Any, best: Any) -> str:
    """Returns the line of a finished trial."""
    from sb_dqn.cli.tune.study import ERROR, REPEATS

    if trial.state.name == "FAIL":
        return f"trial {trial.number} failed: {trial.user_attrs[ERROR]}"
    if trial.state.name == "PRUNED":
        return f"trial {trial.number}: pruned at evaluation {trial.last_step} (mean return {trial.value:.2f})"
    seconds = f"{trial.duration.total_seconds():,.0f} s"
    repeats = f", settings of trial {trial.user_attrs[REPEATS]}" if REPEATS in trial.user_attrs else ""
    return (
        f"trial {trial.number}: mean return {trial.value:.2f} after {seconds}{repeats} (best: trial {best.trial.number}, "
        f"{best.score:.2f})"
    )


def _report(out: Path, setup: StudySetup, policy: str, study: optuna.Study) -> None:
    """Writes the files of a finished study and prints the best settings."""
    from sb_dqn.cli.tune.study import (
        ERROR,
        draw_study,
        finalists_of,
        finished_trials,
        write_best,
        write_trials,
    )
    from sb_dqn.errors import ConfigurationError
    from sb_dqn.runs.training import program_name

    write_trials(out, study)
    trials, best = finished_trials(study), write_best(out, setup, policy, study)
    failed = [trial for trial in trials if trial.state.name == "FAIL"]
    if best is None:
        reason = f"; the last error was {failed[-1].user_attrs[ERROR]}" if failed else ""
        click.echo(f"no trial was completed ({len(failed)} failed){reason}", err=True)
        sys.exit(1)
    pruned = sum(trial.state.name == "PRUNED" for trial in trials)
    for repeated in finalists_of(study):
        click.echo(
            f"finalist: trial {repeated.trial.number}, mean return {repeated.trial.value:.2f} in the search, "
            f"{repeated.score:.2f} with other seeds ({repeated.seeds})"
        )
    click.echo(
        f"\n{len(trials)} trials, {pruned} pruned, {len(failed)} failed; best: trial {best.trial.number}, mean return "
        f"{best.score:.2f}"
    )
    for name, value in best.trial.params.items():
        click.echo(f"  {name}: {value}")
    try:
        click.echo(draw_study(out, f"{setup.algorithm} on {setup.env_id}", study))
    except ConfigurationError as error:
        click.echo(f"no plot: {error}")
    click.echo(f"\nnext\n  {program_name()} train {setup.algorithm} {setup.env_id} --preset {out / BEST}")
