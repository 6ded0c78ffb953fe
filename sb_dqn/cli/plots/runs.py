"""Runs to plot: found in folders, labeled, and checked to be comparable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sb_dqn.errors import ConfigurationError
from sb_dqn.runs.folder import CONFIG
from sb_dqn.runs.run import Run, runs_below

NEEDED = {"algorithm", "env_id", "settings", "n_timesteps"}
"""Keys of the configuration without which a run cannot be plotted."""


def parse_target(text: str) -> tuple[str | None, Path]:
    """Splits `NAME=FOLDER` into label and folder; a text that is a path has no label.

    Raises:
        click.BadParameter: there is no such folder.
    """
    name, equals, folder = text.partition("=")
    labeled = bool(equals and name) and not Path(text).exists()
    path = Path(folder if labeled else text)
    if not path.is_dir():
        raise click.BadParameter(
            f"must be a folder of runs, or NAME=FOLDER, got {text}, but {path} is not a folder. Train one with `sb-dqn train`.",
            param_hint="FOLDER",
        )
    return (name if labeled else None), path


def find_runs(targets: Iterable[tuple[str | None, Path]]) -> list[Run]:
    """Returns the runs in or below the folders, each once, in the order of the folders and of their start.

    Args:
        targets: pairs of label and folder; label None takes the name of the algorithm.

    Raises:
        ConfigurationError: a folder has no run, or a label has runs that do not belong together.
    """
    found: dict[Path, Run] = {}
    for label, folder in targets:
        runs = [run for run in runs_below(folder, label or "") if run.config.keys() >= NEEDED]
        if not runs:
            raise ConfigurationError(
                f"FOLDER must contain runs of `sb-dqn train` or `sb-dqn compare`, got {folder}, in which no {CONFIG} names an "
                f"algorithm. Pass the folder that one of these commands wrote."
            )
        for run in sorted(runs, key=_started):
            found.setdefault(run.folder.resolve(), run)
    runs = _one_per_seed(found.values())
    _check_settings(runs)
    return runs


def _started(run: Run) -> str:
    return str(run.config.get("started"))


def _one_per_seed(runs: Iterable[Run]) -> list[Run]:
    """Returns one run for each label, environment and seed: the finished one, or the one that started last."""
    groups: dict[tuple[str, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.label, run.env_id, run.seed].append(run)
    chosen = []
    for same in groups.values():
        finished = [run for run in same if run.result.finished]
        if len(finished) > 1:
            raise ConfigurationError(
                f"each seed of an algorithm must have one run on an environment, got {finished[0].folder} and "
                f"{finished[1].folder} with the same seed of {finished[0].label}. Remove one, or label it with NAME=FOLDER."
            )
        chosen.append(finished[0] if finished else max(same, key=_started))
    return chosen


def _check_settings(runs: Iterable[Run]) -> None:
    """Checks that the runs of a label on an environment are seeds of the same agent."""
    first: dict[tuple[str, str], Run] = {}
    for run in runs:
        other = first.setdefault((run.label, run.env_id), run)
        ours, theirs = run.agent, other.agent
        different = sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
        if different:
            raise ConfigurationError(
                f"the runs of {run.label} on {run.env_id} must have the same settings, got different {', '.join(different[:4])} in "
                f"{other.folder} and {run.folder}. Label them apart: NAME=FOLDER."
            )


@dataclass(frozen=True)
class Grid:
    """Runs by label and environment, with the same number of runs of a label on each environment."""

    labels: tuple[str, ...]
    env_ids: tuple[str, ...]
    runs: Mapping[str, Sequence[Sequence[Run]]]
    """Runs of each label, `[M][R]`: environments in the order of `env_ids`, then seeds in rising order."""

    def runs_on(self, task: int) -> list[Run]:
        """Returns the runs of all labels on an environment."""
        return [run for label in self.labels for run in self.runs[label][task]]


def make_grid(runs: Sequence[Run], hint: str = "") -> Grid:
    """Arranges runs by label and environment.

    Args:
        runs: at least one run.
        hint: end of an error message, on runs that were left out.

    Raises:
        ConfigurationError: an algorithm lacks runs on an environment; the message names them.
    """
    labels, env_ids = (tuple(dict.fromkeys(values)) for values in ((r.label for r in runs), (r.env_id for r in runs)))
    cells: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.seed):
        cells[run.label, run.env_id].append(run)
    lacking = [f"{label} on {env_id}" for env_id in env_ids for label in labels if not cells[label, env_id]]
    if lacking:
        raise ConfigurationError(
            f"each algorithm must have runs on each environment, got none of {', '.join(lacking)}. Train them, or pass the "
            f"folders of the other environments only.{hint}"
        )
    for label in labels:
        counts = Counter({env_id: len(cells[label, env_id]) for env_id in env_ids})
        (most, high), (least, low) = counts.most_common()[0], counts.most_common()[-1]
        if high > low:
            seeds, all_seeds = ({run.seed for run in cells[label, env_id]} for env_id in (least, most))
            missing = (
                f" (seeds {', '.join(map(str, sorted(all_seeds - seeds)))} are missing)" if seeds < all_seeds else ""
            )
            raise ConfigurationError(
                f"an algorithm must have the same number of runs on each environment, got {label} with {high} on {most} and "
                f"{low} on {least}{missing}. Train the missing ones.{hint}"
            )
    return Grid(labels, env_ids, {label: [cells[label, env_id] for env_id in env_ids] for label in labels})
