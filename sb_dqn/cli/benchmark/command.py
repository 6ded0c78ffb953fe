"""The command `sb-dqn benchmark`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import folder_option, number_option
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.files import read_yaml, write_yaml

if TYPE_CHECKING:
    from sb_dqn.cli.benchmark.runs import Entry, Queue, Suite

FORMAT = 2
"""Version of the folder's content."""
QUEUE = "benchmark.yaml"
SPARE = 256 * 2**20
"""Free bytes of the disk below which the runs are stopped, so that each can still be saved."""


class _WithLists(click.Command):
    """Command whose options of several values take them as words: `--seeds 100 101` is `--seeds 100 --seeds 101`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        lists = {name for each in self.params if isinstance(each, click.Option) and each.multiple for name in each.opts}
        words, option, values = list[str](), "", 0
        for word in args:
            if word.startswith("-"):
                option, values = (word if word in lists else ""), 0
            elif option:
                words += [option] if values else []
                values += 1
            words.append(word)
        return super().parse_args(ctx, words)


@click.command(cls=_WithLists, short_help="Train a suite of environments with several seeds, for days if need be.")
@click.argument("suite_name", metavar="SUITE")
@click.option(
    "--algos",
    multiple=True,
    metavar="ALGO...",
    help='Algorithms, or agents of peers: "sb3 DQN". Default: all algorithms.',
)
@click.option("--envs", multiple=True, metavar="ENV...", help="Environments of the suite. Default: all.")
@number_option(
    "--seeds",
    multiple=True,
    metavar="N | SEED...",
    help="Number of seeds from 100 on, or the seeds. Default: 5. Presets are tuned on seeds below 100.",
)
@click.option("--peers", multiple=True, metavar="LIBRARY...", help="Other libraries to train, too: sb3.")
@click.option("--resume", is_flag=True, help="Do what is left of all earlier calls for this folder.")
@number_option("--jobs", "-j", default=1, help="Number of runs at a time.")
@folder_option("--out", help="Folder of the runs and results. Default: runs/benchmark_SUITE.")
def benchmark(
    suite_name: str,
    algos: tuple[str, ...],
    envs: tuple[str, ...],
    seeds: tuple[int, ...],
    peers: tuple[str, ...],
    resume: bool,
    jobs: int,
    out: Path | None,
) -> None:
    """Train the algorithms of SUITE by their presets on seeds from 100 on; write results.csv, a row for each run.

    Finished runs are not repeated: the same command, or --resume, goes on after a kill. Runs made with other settings than
    the presets have now stay where they are and are made again.

    \b
    sb-dqn benchmark classic --seeds 5 --algos DQN QRDQN PPO
    sb-dqn benchmark classic --envs CartPole-v1 --peers sb3
    sb-dqn benchmark classic --resume
    """
    from sb_dqn.cli.benchmark.runs import make_entries, read_suite
    from sb_dqn.runs.folder_lock import lock_output

    suite = read_suite(suite_name)
    out = out or Path("runs") / f"benchmark_{suite_name}"
    queue = _read_queue(out, suite_name)
    if resume and (algos or envs or seeds or peers):
        raise click.UsageError("--resume must be used alone, got --algos, --envs, --seeds or --peers. Remove them.")
    if resume and not queue:
        raise click.UsageError(
            f"--resume must name the folder of a benchmark, got {out}. Start one there without --resume."
        )
    wanted = queue if resume else _wanted(suite, algos, envs, seeds, peers)
    every, entries = make_entries(suite, out, queue := _both(queue, wanted)), make_entries(suite, out, wanted)
    entries = _without_missing_packages(entries)
    try:
        with lock_output(out, "benchmark"):
            write_yaml(out / QUEUE, {"format": FORMAT, "suite": suite_name, "runs": queue})
            _train(entries, every, out, jobs)
    except OSError as error:  # a full disk, a folder without permission
        raise click.UsageError(
            f"--out must be a writable folder with free space, got {out}: {error.strerror or error}. Finished runs are kept."
        ) from error


def _without_missing_packages(entries: Sequence[Entry]) -> list[Entry]:
    """Returns the runs whose environments can be made, and prints which tasks are left out and why."""
    from sb_dqn.envs.by_id import open_env

    reasons: dict[str, ConfigurationError | None] = {}
    for entry in entries:
        if entry.task.env not in reasons:
            try:
                open_env(entry.task.env, 1, entry.expected["env_kwargs"]).close()
                reasons[entry.task.env] = None
            except ConfigurationError as error:
                reasons[entry.task.env] = error
    missing = {name: reason for name, reason in reasons.items() if reason}
    if missing and len(missing) == len(reasons):
        raise next(iter(missing.values()))
    for name, reason in missing.items():
        click.echo(f"left out: {name}, since {reason}")
    return [entry for entry in entries if entry.task.env not in missing]


def _train(entries: Sequence[Entry], every: Sequence[Entry], out: Path, jobs: int) -> None:
    """Trains the runs that are left and writes the results after each."""
    from sb_dqn.cli.benchmark.runs import RESULTS, write_results
    from sb_dqn.runs.jobs import run_jobs

    left = [entry for entry in entries if not entry.finished]
    click.echo(
        f"{len(left)} of {len(entries)} runs to do, {jobs} at a time{_estimate(entries, jobs)}; writing to {out}"
    )
    if outdated := [entry.label for entry in left if entry.folder is None and any(entry.home.glob("*/config.yaml"))]:
        click.echo(f"made with other settings than the presets have now, made again: {'; '.join(outdated)}")
    write_results(out, every)

    def show(job: Any) -> None:
        write_results(out, every)
        row = job.row()
        remaining = sum(not entry.finished for entry in entries)
        click.echo(
            f"{job.label}: {row['score']} ± {row['score_sd']} after {row['seconds']:,.0f} s; {remaining} runs left"
            f"{_estimate(entries, jobs)}"
        )
        sys.stdout.flush()

    def check_disk(_: object) -> None:
        if (free := shutil.disk_usage(out).free) < SPARE:
            raise ConfigurationError(
                f"the disk of {out} must have {SPARE >> 20} MB free, got {free >> 20}. Free some; --resume goes on."
            )

    try:
        failures = run_jobs(left, jobs, show, check_disk)
    except KeyboardInterrupt:
        click.echo("\nstopped; the runs are saved, and --resume goes on")
        sys.exit(130)
    for failure in failures:
        click.echo(f"{failure.job.label} failed: {failure.reason}", err=True)
    click.echo(out / RESULTS)
    if failures:
        sys.exit(1)


def _estimate(entries: Sequence[Entry], jobs: int) -> str:
    """Returns the time that the runs will take as text, if it is known."""
    from sb_dqn.cli.benchmark.runs import seconds_left

    seconds = seconds_left(entries, jobs)
    return f", about {timedelta(seconds=round(seconds))} left" if seconds else ""


def _wanted(
    suite: Suite, algos: Sequence[str], envs: Sequence[str], seeds: Sequence[int], peers: Sequence[str]
) -> Queue:
    """Returns the seeds that a call asks for, of each agent on each environment."""
    from sb_dqn.cli.benchmark.peer import check_peer
    from sb_dqn.cli.benchmark.runs import agents_of
    from sb_dqn.runs.settings_syntax import canonical

    agents = list(dict.fromkeys(agent for task in suite.tasks for agent in agents_of(task)))
    own = [agent for agent in agents if " " not in agent]
    chosen = _chosen("--algos", [name if name in agents else canonical(name) for name in algos], agents, suite) or own
    for library in dict.fromkeys([*peers, *(agent.split()[0] for agent in chosen if agent not in own)]):
        check_peer(library)
    tasks = _chosen("--envs", envs, [task.name for task in suite.tasks], suite)

    def is_wanted(agent: str) -> bool:
        library, _, algorithm = agent.rpartition(" ")
        return agent in chosen or (library in peers and algorithm.removeprefix("Recurrent") in chosen)

    queue = {
        task.name: {agent: _seeds(seeds) for agent in agents_of(task) if is_wanted(agent)}
        for task in suite.tasks
        if not tasks or task.name in tasks
    }
    if not any(queue.values()):
        known = "; ".join(f"{task.name}: {', '.join(agents_of(task))}" for task in suite.tasks if task.name in queue)
        raise ConfigurationError(
            f"--algos must be trained on one of the environments ({known}), got {', '.join(chosen)}. Use one of these; of classes "
            f"whose presets make the same agent only the parent is trained."
        )
    return queue


def _chosen(option: str, names: Sequence[str], known: Sequence[str], suite: Suite) -> Sequence[str]:
    """Returns the names that an option lists, once they are checked."""
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"{option} must be some of {suite.name}: {', '.join(known)}; got {name}. Use these.{nearest(name, known)}"
            )
    return names


def _both(first: Queue, second: Queue) -> Queue:
    """Returns the runs of two queues, each once."""
    return {
        task: {
            agent: sorted({*first.get(task, {}).get(agent, []), *second.get(task, {}).get(agent, [])})
            for agent in {**first.get(task, {}), **second.get(task, {})}
        }
        for task in {**first, **second}
    }


def _seeds(values: Sequence[int]) -> list[int]:
    """Returns the seeds that `--seeds` names: a number of them, or the seeds themselves."""
    from sb_dqn.cli.benchmark.runs import FIRST_SEED

    if len(values) < 2 and (not values or values[0] < FIRST_SEED):
        return list(range(FIRST_SEED, FIRST_SEED + (values[0] if values else 5)))
    if low := [seed for seed in values if seed < FIRST_SEED]:
        raise click.BadParameter(
            f"must be {FIRST_SEED} or more, got {low[0]}, a seed to tune on. Use {FIRST_SEED + low[0]}.",
            param_hint="--seeds",
        )
    return list(values)


def _read_queue(out: Path, suite: str) -> Queue:
    """Returns the runs that earlier calls asked for; empty for a new folder."""
    path = out / QUEUE
    content = read_yaml(path)
    if content is None:
        if out.is_dir() and any(each.name != ".lock" for each in out.iterdir()):
            raise ConfigurationError(
                f"--out must be empty or the folder of a benchmark, got {out}. Choose another one."
            )
        return {}
    found = content.get("format"), content.get("suite")
    if found != (FORMAT, suite):
        raise ConfigurationError(
            f"{path} must be of format {FORMAT} and suite {suite}, got {found}. Choose another folder with --out."
        )
    return dict(content["runs"])
