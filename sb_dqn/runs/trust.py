"""Questions before a command runs code, or starts many processes, that the files of a run ask for."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.runs.learner_processes import PARENT

if TYPE_CHECKING:
    from sb_dqn.runs.run import Run

ORIGIN = "origin.yaml"
"""File of a pulled run, which names its repository; only a pull writes it."""

trust_option = click.option(
    "--trust", is_flag=True, help="Import the modules, and start the processes, that RUN asks for, without a question."
)


def foreign_modules(folder: Path, config: Mapping[str, Any], env_id: str | None = None) -> list[str]:
    """Returns the modules that the environment of a pulled run imports; `env_id` is one that the user names, with its module."""
    if not (folder / ORIGIN).is_file():
        return []
    named = _modules(
        [None if env_id else config.get("env_id"), config.get("env_kwargs"), config.get("eval_env_kwargs")]
    )
    return sorted(set(named))


def _modules(value: object) -> Iterator[str]:
    """Yields the modules of ids of the form "module:Name-v0" in plain data."""
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple)):
        for inner in value:
            yield from _modules(inner)
    elif isinstance(value, str) and ":" in value:
        yield value.partition(":")[0]


def ask_before_import(run: Run, trust: bool, env_id: str | None = None) -> None:
    """Asks before the environment of a pulled run imports modules, unless the user trusts it; `env_id` as in `foreign_modules`.

    Raises:
        click.UsageError: there is no terminal to ask.
        click.Abort: the user says no.
    """
    if modules := foreign_modules(run.folder, run.config, env_id):
        _ask(f"{run.folder}, which was pulled, imports and so runs {', '.join(modules)} for its environment", trust)


def ask_before_starting(run: Run, trust: bool) -> None:
    """Asks before a run continues with very many environments or processes; raises as `ask_before_import`."""
    from sb_dqn.actors.settings import MAX_LANES, MAX_WORKERS, as_actors, asks_too_much

    actors, lanes = run.config.get("settings", {}).get("actors"), run.config.get("n_envs", 1)
    learners = run.config.get("learners", 1)
    if asks_too_much(as_actors(actors)):
        _ask(f"{run.folder} asks for the actors {actors}", trust)
    elif lanes > MAX_LANES or learners > MAX_WORKERS:
        _ask(f"{run.folder} asks for {lanes:,} environments and {learners:,} learners", trust)


def _ask(what: str, trust: bool) -> None:
    if trust or PARENT in os.environ:  # the process that started this learner has asked
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"--trust must be set: {what}. Pass it if you know who made the run.")
    click.confirm(f"{what}. Go on?", abort=True)
