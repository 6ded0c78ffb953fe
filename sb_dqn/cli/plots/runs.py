"""Runs to plot: found in folders, labeled, and checked to be comparable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from sb_dqn.errors import ConfigurationError
from sb_dqn.plotting import Points, read_evaluations
from sb_dqn.runs.folder import CONFIG, SAME_AGENT, read_config
from sb_dqn.runs.result_file import Result, read_result


@dataclass(frozen=True)
class Run:
    """One training run of an algorithm on an environment."""

    label: str
    """Name in the plot: the algorithm, unless the user chose another one."""
    folder: Path
    config: Mapping[str, Any]
    """Content of `config.yaml`."""

    @property
    def env_id(self) -> str:
        """Environment id."""
        return str(self.config["env_id"])

    @property
    def seed(self) -> int:
        """Random seed of the run."""
        return int(self.config["settings"]["seed"])

    @cached_property
    def result(self) -> Result:
        """Content of `result.yaml`."""
        return read_result(self.folder)

    @cached_property
    def evaluations(self) -> tuple[Points, Points]:
        """Env steps of the evaluations so far and their mean returns, each `[V]`."""
        steps, returns = read_evaluations(self.folder)
        return steps, returns.mean(axis=1)

    @property
    def score(self) -> float | None:
        """Mean return of the final greedy episodes; None before the first one has finished."""
        return sum(self.result.returns) / len(self.result.returns) if self.result.returns else None

    @property
    def steps(self) -> int:
        """Planned env steps, or those done if the run was extended.

        The last step of all lanes may exceed the plan by fewer than the number of lanes.
        """
        planned, done = int(self.config["n_timesteps"]), self.result.steps
        return done if done - planned >= int(self.config.get("n_envs", 1)) else planned

    @property
    def name(self) -> str:
        """Label, environment, seed and folder, for messages."""
        return f"{self.label} on {self.env_id}, seed {self.seed} ({self.folder})"


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
        configs = [folder / CONFIG] if (folder / CONFIG).is_file() else sorted(folder.rglob(CONFIG))
        runs = [Run(label or str(config.get("algorithm")), path, config) for path, config in _readable(configs)]
        if not runs:
            raise ConfigurationError(
                f"FOLDER must contain runs of `sb-dqn train` or `sb-dqn compare`, got {folder}, in which no {CONFIG} names an "
                f"algorithm. Pass the folder that one of these commands wrote."
            )
        for run in sorted(runs, key=lambda run: str(run.config.get("started"))):
            found.setdefault(run.folder.resolve(), run)
    runs = _one_per_seed(found.values())
    _check_settings(runs)
    return runs


def _readable(configs: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    """Returns folder and configuration of the runs among the `config.yaml` files."""
    contents = [(path.parent, read_config(path.parent)) for path in configs]
    needed = {"algorithm", "env_id", "settings", "n_timesteps"}
    return [(folder, content) for folder, content in contents if needed <= content.keys()]


def _one_per_seed(runs: Iterable[Run]) -> list[Run]:
    """Returns one run for each label, environment and seed: the finished one, or the one that started last.

    Raises:
        ConfigurationError: two finished runs have the same label, environment and seed.
    """
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
        chosen.append(finished[0] if finished else max(same, key=lambda run: str(run.config.get("started"))))
    return chosen


def _check_settings(runs: Iterable[Run]) -> None:
    """Checks that the runs of a label on an environment are seeds of the same agent.

    Raises:
        ConfigurationError: their settings differ; the message names the settings.
    """
    first: dict[tuple[str, str], Run] = {}
    for run in runs:
        other = first.setdefault((run.label, run.env_id), run)
        ours, theirs = _agent(run), _agent(other)
        different = sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
        if different:
            raise ConfigurationError(
                f"the runs of {run.label} on {run.env_id} must have the same settings, got different {', '.join(different[:4])} in "
                f"{other.folder} and {run.folder}. Label them apart: NAME=FOLDER."
            )


def _agent(run: Run) -> dict[str, Any]:
    """Returns the settings that the runs of a label share; those that another version did not write are missing."""
    settings = {name: value for name, value in run.config["settings"].items() if name not in SAME_AGENT}
    shared = {name: run.config[name] for name in ("algorithm", "policy", "n_envs", "env_kwargs") if name in run.config}
    return {**settings, **shared}


@dataclass(frozen=True)
class Grid:
    """Runs by label and environment, with the same number of runs of a label on each environment."""

    labels: tuple[str, ...]
    env_ids: tuple[str, ...]
    runs: Mapping[str, Sequence[Sequence[Run]]]
    """Runs of each label, `[M][R]`: environments in the order of `env_ids`, then seeds in rising order."""

    def count(self, label: str) -> int:
        """Returns the number R of runs of a label on each environment."""
        return len(self.runs[label][0])


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
