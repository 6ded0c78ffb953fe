"""`sb-dqn compare`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.comparison_folder import COMPARISON, Setup, enter, read, refuse_run

if TYPE_CHECKING:
    from sb_dqn.cli.fleet import Failure, Job

PICTURE, TABLE = "comparison.png", "comparison.md"


@click.command(short_help="Train several algorithms with several seeds, side by side.")
@click.argument("what", metavar="ALGO... | FOLDER", nargs=-1, required=True)
@click.option("--env", "env_id", metavar="ID", help="To train on. Without it FOLDER is drawn again.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="0, 1, ... for each algorithm.")
@click.option(
    "--steps", "--timesteps", "-n", "steps", type=click.IntRange(1), metavar="N",
    help="Of each run. Default: as in the folder, else the longest preset's.",
)  # fmt: skip
@click.option(
    "--set", "-o", "settings", multiple=True, metavar="NAME=VALUE",
    help="A keyword of every constructor; of one: ALGO.NAME=VALUE. Repeatable.",
)  # fmt: skip
@click.option("--env-set", "env_settings", multiple=True, metavar="NAME=VALUE", help="A keyword of the environment.")
@click.option("--n-envs", type=click.IntRange(1), metavar="N", help="Lanes. Default: by each preset.")
@click.option(
    "--eval-freq", type=click.IntRange(0), metavar="N", help="Steps between evaluations. Default: ten in all."
)
@click.option("--eval-episodes", type=click.IntRange(1), default=5, show_default=True, help="Episodes of each.")
@click.option(
    "--final-episodes", type=click.IntRange(1), default=20, show_default=True,
    help="Greedy episodes after each training, whose mean is its score.",
)  # fmt: skip
@click.option(
    "--final-steps", type=click.IntRange(0), metavar="N",
    help="End these after N env steps; 0: never. Default: as many as trained, 20,000 to 100,000.",
)  # fmt: skip
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, show_default=True, help="Runs at a time.")
@click.option("--device", default="auto", show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Default: runs/compare_ENV.")
def compare(
    what: tuple[str, ...], env_id: str | None, seeds: int, steps: int | None, jobs: int, device: str,
    out: Path | None, **said: Any,
) -> None:  # fmt: skip
    """Train ALGOs with several seeds on one environment, draw their curves with intervals, and print a table.

    Each run is what `sb-dqn train` makes of it, its preset included. What is finished is not repeated: the same
    command again goes on where it was stopped, with more ALGOs or seeds it adds them. FOLDER alone is drawn again.

    \b
    sb-dqn compare DQN MunchausenDQN QRDQN --env CartPole-v1 --seeds 3 --jobs 2
    sb-dqn compare DQN QRDQN --env LunarLander-v3 -o learning_rate=1e-3 -o QRDQN.n_quantiles=50 --out runs/lunar
    sb-dqn compare runs/lunar
    """
    from sb_dqn.cli.fleet import cores, locked, run_jobs
    from sb_dqn.cli.time_spent import Spent

    if env_id is None:
        _redraw(what)
        return
    out = out or Path("runs") / f"compare_{env_id.replace('/', '-').replace(':', '-')}"
    refuse_run(out)
    there = None if steps else read(out).get("setup", {}).get("steps")
    setup, settings = _planned(what, env_id, steps or there, **said)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        enter(out, setup, settings, seeds)
        fleet = [
            job for own in _jobs(out, setup, settings, dict.fromkeys(settings, seeds), device).values() for job in own
        ]
        missing = [job for job in fleet if not job.finished]
        click.echo(
            f"{', '.join(settings)} on {env_id}: {seeds} seed{'s' * (seeds > 1)} of {setup.steps:,} steps"
            f"{' as before' if there else ''}, {len(missing)} of {len(fleet)} runs to do, {jobs} at a time; into {out}"
        )
        spent = Spent(missing)
        if missing and cores() > jobs:
            Thread(target=_import_for_report, daemon=True).start()
        try:
            failures = run_jobs(missing, jobs, lambda job: _tell(job, fleet))
        except KeyboardInterrupt:
            click.echo(f"\n{_stopped(missing)}")
            sys.exit(130)
    if missing:
        click.echo(spent.describe(jobs))
    for failure in failures:
        click.echo(f"{failure.job.label} failed: {failure.why}", err=True)
    if len(failures) < len(fleet) or (out / TABLE).is_file():
        _report(out, jobs, failures)
    if failures:
        sys.exit(1)


def _planned(
    names: Iterable[str], env_id: str, steps: int | None, settings: Iterable[str], **said: Any
) -> tuple[Setup, dict[str, list[str]]]:
    """The setup, and the settings by algorithm; everything checked that can be before anything is trained."""
    from sb_dqn.algorithms.outside import refuse_unknown
    from sb_dqn.cli.names import algorithm_class, canonical, constructor_defaults
    from sb_dqn.cli.owners import by_owner
    from sb_dqn.cli.plan import make_plan
    from sb_dqn.envs.make import spec_of

    spec_of(env_id)
    shared = by_owner([canonical(name) for name in names], settings)
    longest, whole = 0, {}
    for name, own in shared.items():
        plan = make_plan(name, env_id, seed=0, assignments=own, env_assignments=said["env_settings"])
        cls = algorithm_class(name)
        known = constructor_defaults(cls)
        refuse_unknown(cls, {key: value for key, value in plan.settings.items() if key not in known})
        longest = max(longest, plan.n_timesteps)
        whole[name] = (plan.policy, plan.n_envs, {**known, **plan.settings, "seed": None})
    for one, other in combinations(whole, 2):
        if whole[one] == whole[other]:
            click.echo(f"{one} and {other} have the same settings on {env_id}: one agent, trained twice", err=True)
    return Setup(env_id, steps or longest, **said), shared


def _jobs(
    out: Path, setup: Setup, settings: Mapping[str, list[str]], seeds: Mapping[str, int], device: str
) -> dict[str, list[Job]]:
    """By algorithm its runs, by seed."""
    from sb_dqn.cli.fleet import Job

    found: dict[str, list[Job]] = {}
    for name, own in settings.items():
        homes = [out / name / f"seed_{seed}" for seed in range(seeds[name])]
        found[name] = [
            Job(f"{name} seed {seed}", home, setup.command(name, own, seed, home, device))
            for seed, home in enumerate(homes)
        ]
    return found


def _of_another_length(jobs: Iterable[Job], steps: int) -> dict[str, str]:
    """By label the finished runs that went on for more or fewer than `steps`, and what is said of each.

    The last tick of a run of several lanes may go beyond by fewer steps than there are lanes.
    """
    from sb_dqn.cli.results import read_result
    from sb_dqn.cli.runs import read_config

    found: dict[str, str] = {}
    for job in jobs:
        if job.folder and job.finished:
            done = read_result(job.folder).steps
            if not 0 <= done - steps < read_config(job.folder)["n_envs"]:
                found[job.label] = (
                    f"it has {done:,} env steps, the comparison is of {steps:,}; delete {job.home} to train it anew"
                )
    return found


def _without_score(jobs: Iterable[Job]) -> dict[str, str]:
    """By label the finished runs of which no final episode finished."""
    from sb_dqn.cli.results import read_result

    return {
        job.label: "none of its final episodes finished; give --final-steps N, or 0 for no bound"
        for job in jobs
        if job.folder and job.finished and not read_result(job.folder).returns
    }


def _cut_short(jobs: Iterable[Job]) -> list[str]:
    """Notes on runs of which some final episodes did not finish."""
    from sb_dqn.cli.results import read_result

    notes = []
    for job in jobs:
        if job.folder and job.finished and (missing := (result := read_result(job.folder)).unfinished_episodes):
            notes.append(
                f"{job.label}: {len(result.returns)} of {len(result.returns) + missing} final episodes finished within the "
                f"bound on their env steps (--final-steps); short ones are over-represented"
            )
    return notes


def _stopped(jobs: Iterable[Job]) -> str:
    """What is said after Ctrl-C to those who asked for `jobs`."""
    if any(job.finished or job.command != job.train for job in jobs):
        return "stopped; what was begun has been saved, and the same command goes on from there"
    return "stopped before the first run had learned anything; the same command begins anew"


def _tell(job: Job, fleet: list[Job]) -> None:
    from statistics import fmean

    from sb_dqn.cli.results import read_result

    result = read_result(job.folder or job.home)
    mean = f"mean return {fmean(result.returns):.2f}" if result.returns else "no final episode finished"
    click.echo(
        f"{job.label}: {mean} after {result.seconds:,.0f} s ({sum(one.finished for one in fleet)} of {len(fleet)})"
    )
    for warning in job.warnings:
        click.echo(f"{job.label}: {warning}")


def _redraw(what: tuple[str, ...]) -> None:
    from sb_dqn.cli.names import typed_options

    again = f"sb-dqn compare {' '.join(what)} --env CartPole-v1"
    if len(what) > 1:
        raise click.UsageError(f"say the environment: {again}")
    if not read(Path(what[0])):
        raise click.UsageError(
            f"{what[0]} is not the folder of a comparison (it has no {COMPARISON}); to train, say the environment: {again}"
        )
    if typed := typed_options():
        raise click.UsageError(
            f"{what[0]} alone is drawn again as it is, {', '.join(typed.values())} changes nothing: leave that out; to train "
            f"more, say what and on what, too: sb-dqn compare ALGO... --env ID --out {what[0]}"
        )
    _report(Path(what[0]), None)


def _import_for_report() -> None:
    """Imports what the report needs, while the runs train and this process waits; what is missing is told of later."""
    with suppress(Exception):
        import rliable.library  # noqa: F401


def _report(out: Path, jobs: int | None, failures: Sequence[Failure] = ()) -> None:
    """Print the table of what is finished, write it down, and draw the picture."""
    from sb_dqn.cli.comparison import as_table, caption, estimate_iqm, score_of
    from sb_dqn.cli.comparison_picture import draw
    from sb_dqn.errors import ConfigurationError

    content = read(out)
    setup = Setup(**content["setup"])
    every = _jobs(out, setup, content["algorithms"], content["seeds"], "auto")
    jobs_there = [job for own in every.values() for job in own]
    odd = _of_another_length(jobs_there, setup.steps) | _without_score(jobs_there)
    runs = {
        name: [job.folder for job in own if job.folder and job.finished and job.label not in odd]
        for name, own in every.items()
    }
    runs = {name: folders for name, folders in runs.items() if folders}
    left_out = [f"{label} left out: {why}" for label, why in odd.items()]
    for note in (left_out := [*left_out, *_cut_short([job for job in jobs_there if job.label not in odd])]):
        click.echo(note)
    if not runs:
        raise click.UsageError(f"no run in {out} is finished yet, so there is nothing to compare")
    scores = [score_of(name, folders) for name, folders in runs.items()]
    estimates = {score.label: estimate_iqm(score.means) for score in scores}
    spread = any(estimate.interval for estimate in estimates.values())
    text = f"{as_table(setup.env_id, scores, list(estimates.values()))}\n\n{caption(jobs, spread)}\n"
    failed = {failure.job.label: f"{failure.job.label} failed: {failure.why}" for failure in failures}
    labels = [job.label for own in every.values() for job in own if not job.finished and job.label not in failed]
    unfinished = [f"not finished and left out: {', '.join(labels)}"] if labels else []
    notes = "\n".join(f"- {note}" for note in [*left_out, *unfinished, *failed.values()])
    (out / TABLE).write_text(text + (notes and f"\n{notes}\n"), encoding="utf-8")
    click.echo("\n".join(["", text, *unfinished]))
    try:
        draw(out / PICTURE, setup.env_id, runs, estimates, f"{setup.eval_episodes} greedy episodes")
        click.echo(out / PICTURE)
    except ConfigurationError as error:
        click.echo(f"no {PICTURE}: {error}")
