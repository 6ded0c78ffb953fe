"""The command `sb-dqn compare`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import folder_option, number_option, settings_option
from sb_dqn.cli.train import bar_wanted
from sb_dqn.files import write_text
from sb_dqn.runs.comparison import (
    COMPARISON,
    Setup,
    read_comparison,
    reject_run_folder,
    write_comparison,
)
from sb_dqn.runs.folder_lock import lock_output

if TYPE_CHECKING:
    from sb_dqn.runs.jobs import Failure, Job

PICTURE = "comparison.png"
TABLE = "comparison.md"


@click.command(short_help="Train several algorithms with several seeds and compare them.")
@click.argument("targets", metavar="ALGO... | FOLDER", nargs=-1, required=True)
@click.option("--env", "env_id", metavar="ID", help="Environment. Without it, FOLDER is drawn again.")
@number_option("--seeds", default=3, help="Number of seeds (0, 1, ...) of each algorithm.")
@number_option(
    "--steps",
    "--timesteps",
    "-n",
    "steps",
    metavar="N",
    help="Env steps of each run. Default: as in the folder, else those of the longest preset.",
)
@settings_option(
    "--set", "-o", "settings", help="A constructor keyword of all algorithms, or of one as ALGO.NAME=VALUE"
)
@settings_option("--env-set", "env_settings", help="A keyword of the environment")
@number_option("--n-envs", metavar="N", help="Number of parallel environments (lanes). Default: by each preset.")
@number_option("--eval-freq", least=0, metavar="N", help="Env steps between evaluations; 0: none. Default: ten in all.")
@number_option("--eval-episodes", default=5, help="Episodes of each evaluation.")
@number_option(
    "--final-episodes", default=20, help="Greedy episodes after training; their mean return is the score of the run."
)
@number_option(
    "--final-steps",
    least=0,
    metavar="N",
    help="Maximum env steps of the final episodes; 0: no limit. Default: the trained steps, within 20,000 to 100,000.",
)
@number_option("--jobs", "-j", default=1, help="Number of runs at a time.")
@click.option("--device", default="auto", show_default=True)
@click.option(
    "--progress/--no-progress",
    default=None,
    help="Live table of the runs. Default: in a terminal; without it, a line for each finished run.",
)
@folder_option("--out", help="Folder of the comparison. Default: runs/compare_ENV.")
def compare(
    targets: tuple[str, ...],
    env_id: str | None,
    seeds: int,
    steps: int | None,
    jobs: int,
    device: str,
    progress: bool | None,
    out: Path | None,
    **setup_options: Any,
) -> None:
    """Train ALGOs with several seeds on one environment, draw their curves with intervals, and print a table.

    Each run uses the settings of `sb-dqn train`, its preset included. Finished runs are not repeated: the same command
    resumes a stopped comparison, and adds more ALGOs or seeds to a finished one. FOLDER alone is drawn again.

    \b
    sb-dqn compare DQN MunchausenDQN QRDQN --env CartPole-v1 --seeds 3 --jobs 2
    sb-dqn compare DQN QRDQN --env LunarLander-v3 -o learning_rate=1e-3 -o QRDQN.n_quantiles=50 --out runs/lunar
    sb-dqn compare runs/lunar
    """
    from sb_dqn.cli.compare.live_table import live_table
    from sb_dqn.runs.jobs import run_jobs

    if env_id is None:
        _redraw(targets)
        return
    out = out or Path("runs") / f"compare_{env_id.replace('/', '-').replace(':', '-')}"
    reject_run_folder(out)
    stored_steps = None if steps else read_comparison(out).get("setup", {}).get("steps")
    setup, settings = _make_setup(targets, env_id, steps or stored_steps, **setup_options)
    with lock_output(out, "compare"):
        write_comparison(out, setup, settings, seeds)
        by_algorithm = _make_jobs(out, setup, settings, dict.fromkeys(settings, seeds), device)
        all_jobs = [job for algorithm_jobs in by_algorithm.values() for job in algorithm_jobs]
        missing = [job for job in all_jobs if not job.finished]
        click.echo(
            f"{', '.join(settings)} on {env_id}: {seeds} seed{'s' * (seeds > 1)} of {setup.steps:,} steps"
            f"{' as before' if stored_steps else ''}, {len(missing)} of {len(all_jobs)} runs to do, {jobs} at a time; writing "
            f"to {out}"
        )
        started, earlier = time.monotonic(), sum(job.result.seconds for job in missing)
        shown = missing if bar_wanted(progress) else []
        try:
            with live_table(env_id, shown, setup.steps) if shown else nullcontext(lambda running: None) as on_poll:
                failures = run_jobs(missing, jobs, lambda job: _print_result(job, all_jobs), on_poll)
        except KeyboardInterrupt:
            click.echo(f"\n{_stop_message(missing)}")
            sys.exit(130)
    if missing:
        click.echo(_describe_time(missing, time.monotonic() - started, earlier, jobs))
    for failure in failures:
        click.echo(f"{failure.job.label} failed: {failure.reason}", err=True)
    if len(failures) < len(all_jobs) or (out / TABLE).is_file():
        _report(out, jobs, failures)
    if failures:
        sys.exit(1)


def _make_setup(
    names: Iterable[str], env_id: str, steps: int | None, settings: Iterable[str], **setup_options: Any
) -> tuple[Setup, dict[str, list[str]]]:
    """Returns the setup and the settings of each algorithm; checks as much as possible before training starts."""
    from sb_dqn.cli.compare.per_algorithm_settings import settings_per_algorithm
    from sb_dqn.core.arguments import check_keywords
    from sb_dqn.envs.make import spec_of
    from sb_dqn.runs.plan import make_plan
    from sb_dqn.runs.settings_syntax import algorithm_class, canonical, constructor_defaults

    spec_of(env_id)
    per_algorithm = settings_per_algorithm([canonical(name) for name in names], settings)
    longest, agents = 0, {}
    for name, assignments in per_algorithm.items():
        plan = make_plan(name, env_id, seed=0, assignments=assignments, env_assignments=setup_options["env_settings"])
        cls = algorithm_class(name)
        defaults = constructor_defaults(cls)
        check_keywords(cls, {key: value for key, value in plan.settings.items() if key not in defaults})
        longest = max(longest, plan.n_timesteps)
        agents[name] = plan.agent
    for first, second in combinations(agents, 2):
        if agents[first] == agents[second]:
            click.echo(
                f"Warning: {first} and {second} have the same settings on {env_id}; the same agent is trained twice",
                err=True,
            )
    return Setup(env_id, steps or longest, **setup_options), per_algorithm


def _make_jobs(
    out: Path, setup: Setup, settings: Mapping[str, list[str]], seeds: Mapping[str, int], device: str
) -> dict[str, list[Job]]:
    """Returns the runs of each algorithm, one per seed."""
    from sb_dqn.runs.jobs import Job

    jobs: dict[str, list[Job]] = {}
    for name, assignments in settings.items():
        homes = [out / name / f"seed_{seed}" for seed in range(seeds[name])]
        jobs[name] = [
            Job(f"{name} seed {seed}", home, setup.command(name, assignments, seed, home, device))
            for seed, home in enumerate(homes)
        ]
    return jobs


def _check_runs(jobs: Iterable[Job], steps: int) -> tuple[dict[str, str], list[str]]:
    """Returns the reason to leave out a finished run that did not train for `steps` or has no score, by label, and notes on others."""
    reasons: dict[str, str] = {}
    notes = []
    for job in jobs:
        if (run := job.run) is None or not run.result.finished:
            continue
        returns, missing = run.result.returns, run.result.unfinished_episodes
        if not run.has_trained(steps):
            done = f"{run.result.steps:,}"
            reasons[job.label] = (
                f"it has {done} env steps, the comparison has {steps:,}; delete {job.home} to train it again"
            )
        elif not returns:
            reasons[job.label] = "no final episode finished; raise the limit with --final-steps N, or use 0 for none"
        elif missing:
            notes.append(
                f"{job.label}: {len(returns)} of {len(returns) + missing} final episodes finished within the limit on their env "
                f"steps (--final-steps); short episodes are over-represented"
            )
    return reasons, notes


def _stop_message(jobs: Iterable[Job]) -> str:
    """Returns the line to print after Ctrl-C."""
    if any(job.finished or job.command != job.train for job in jobs):
        return "stopped; the runs are saved, and the same command resumes them"
    return "stopped before any run was saved; the same command starts again"


def _print_result(job: Job, all_jobs: list[Job]) -> None:
    """Prints mean return, training time and warnings of a finished run."""
    result = job.result
    mean = "no final episode finished" if result.mean is None else f"mean return {result.mean:.2f}"
    finished = sum(each.finished for each in all_jobs)
    lines = [f"{mean} after {result.seconds:,.0f} s ({finished} of {len(all_jobs)})", *job.warnings]
    for line in lines:
        click.echo(f"{job.label}: {line}", file=sys.stdout)  # without `file` click writes past the live table


def _describe_time(jobs: Sequence[Job], wall: float, earlier: float, n_parallel: int) -> str:
    """Returns a line with the wall-clock time of jobs, and the share of training, without `earlier` parts, and of final episodes."""
    results = [job.result for job in jobs]
    training = sum(result.seconds for result in results) - earlier
    playing = sum(result.evaluation.seconds for result in results if result.evaluation is not None)
    share = f"{training:,.0f} s of training and {playing:,.0f} s of final episodes"
    count = f"{len(jobs)} run{'s' * (len(jobs) > 1)}"
    if n_parallel > 1:
        return (
            f"{count}, {n_parallel} at a time, took {wall:,.0f} s; in total {share}, the rest is the start (imports) and end of "
            f"their processes"
        )
    rest = max(wall - training - playing, 0.0)
    return f"{count} took {wall:,.0f} s: {share}, and {rest:,.0f} s to start (imports) and end processes"


def _redraw(targets: tuple[str, ...]) -> None:
    """Draws the comparison in the only target, a folder, again."""
    from sb_dqn.runs.settings_syntax import typed_options

    example = f"sb-dqn compare {' '.join(targets)} --env CartPole-v1"
    if len(targets) > 1:
        raise click.UsageError(f"--env must be set, got none. Name the environment, for example {example}.")
    folder = targets[0]
    if not read_comparison(Path(folder)):
        raise click.UsageError(
            f"FOLDER must be the folder of a comparison, got {folder}, which has no {COMPARISON}. To train, name the "
            f"environment: {example}."
        )
    if typed := typed_options():
        raise click.UsageError(
            f"{', '.join(typed.values())} must be used with --env, got no --env. Remove it to draw {folder} again, or train more runs "
            f"with sb-dqn compare ALGO... --env ID --out {folder}."
        )
    _report(Path(folder), None)


def _report(out: Path, jobs: int | None, failures: Sequence[Failure] = ()) -> None:
    """Prints and writes the table of the finished runs, and draws the plot.

    The runs are in their folders, and this reads nothing else: if it fails, `sb-dqn compare FOLDER` does it again.
    """
    from sb_dqn.errors import ConfigurationError
    from sb_dqn.runs.score import Score, as_table, caption, draw_seeds, several_seeds

    content = read_comparison(out)
    setup = Setup(**content["setup"])
    by_algorithm = _make_jobs(out, setup, content["algorithms"], content["seeds"], "auto")
    all_jobs = [job for algorithm_jobs in by_algorithm.values() for job in algorithm_jobs]
    excluded, notes = _check_runs(all_jobs, setup.steps)
    scores = [
        Score(name, [run for job in algorithm_jobs if (run := job.run) and job.label not in excluded])
        for name, algorithm_jobs in by_algorithm.items()
    ]
    scores = [score for score in scores if score.finished]
    run_notes = [*(f"{label} left out: {reason}" for label, reason in excluded.items()), *notes]
    for note in run_notes:
        click.echo(note)
    if not scores:
        raise click.UsageError(f"{out} must have a finished run, got none. Run the comparison again.")
    text = f"{as_table(setup.env_id, scores)}\n\n{caption(jobs, several_seeds(scores))}\n"
    failed = {failure.job.label: f"{failure.job.label} failed: {failure.reason}" for failure in failures}
    labels = [job.label for job in all_jobs if not job.finished and job.label not in failed]
    unfinished = [f"not finished and left out: {', '.join(labels)}"] if labels else []
    listed = "\n".join(f"- {note}" for note in [*run_notes, *unfinished, *failed.values()])
    click.echo("\n".join(["", text, *unfinished]))  # before the file, which a full disk may refuse
    write_text(out / TABLE, text + (listed and f"\n{listed}\n"))
    try:
        draw_seeds(out / PICTURE, setup.env_id, scores, f"{setup.eval_episodes} greedy episodes")
        click.echo(out / PICTURE)
    except ConfigurationError as error:
        click.echo(f"no {PICTURE}: {error}")
