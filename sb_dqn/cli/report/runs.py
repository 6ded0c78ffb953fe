"""Runs of a report: their folders, what their files say, and groups of runs that differ by the seed only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np

from sb_dqn.errors import ConfigurationError
from sb_dqn.plotting import Curve, Points, read_curve, read_log
from sb_dqn.runs.comparison import read_comparison
from sb_dqn.runs.folder import CONFIG, MODEL, SAME_AGENT, plain_data, read_config
from sb_dqn.runs.jobs import Job
from sb_dqn.runs.result_file import Result, read_result

CLOCK = "time/total_timesteps"
NO_CURVE = Curve(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0), np.zeros((0, 1)))


@dataclass(frozen=True)
class Run:
    """Folder of a run and the content of its files."""

    folder: Path
    config: Mapping[str, Any]
    result: Result
    curve: Curve
    log: Mapping[str, Points]
    """Numeric columns of `progress.csv`."""

    @property
    def settings(self) -> Mapping[str, Any]:
        return dict(self.config.get("settings") or {})

    @property
    def seed(self) -> Any:
        return self.settings.get("seed")

    @cached_property
    def steps(self) -> int:
        """Env steps so far, by the file that knows most."""
        logged = np.concatenate([self.clock, self.curve.steps, self.curve.eval_steps])
        return int(max([self.result.steps, *logged[np.isfinite(logged)]]))

    @property
    def clock(self) -> Points:
        """`[L]` env steps of the lines of the log."""
        return self.log.get(CLOCK, np.zeros(0))

    @property
    def seconds(self) -> float:
        """Seconds of training so far."""
        return float(max([self.result.seconds, *self.curve.seconds[-1:].tolist()]))

    @property
    def returns(self) -> Points:
        """`[n]` returns of the final greedy episodes."""
        return np.array(self.result.returns, np.float64)


@dataclass(frozen=True)
class Group:
    """Runs of one algorithm with the same settings, one per seed."""

    label: str
    runs: Sequence[Run]

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def finished(self) -> list[Run]:
        """Runs that have a score: trained to the end, with a finished final episode."""
        return [run for run in self.runs if run.result.returns]

    @property
    def drawn(self) -> list[Run]:
        """Runs for curves: the finished ones, or all of them while none is finished."""
        return self.finished or list(self.runs)


def read_run(folder: Path) -> Run:
    """Reads the files of a run, which may be going on or have been killed.

    Raises:
        ConfigurationError: a file is damaged.
    """
    try:
        config, result = read_config(folder), read_result(folder)
        _check_types(config, result)
        run = Run(folder, config, result, _read_curve(folder), read_log(folder))
        for name, numbers in (("curve", run.curve.steps), ("evaluations", run.curve.eval_steps), ("log", run.clock)):
            if np.isinf(numbers).any():
                raise ValueError(f"infinite env steps in the {name}")
    except Exception as error:  # damaged files raise errors of many types in YAML and NumPy
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigurationError(
            f"the files of a run must be as `sb-dqn train` wrote them, got damaged ones in {folder} ({reason}). Restore them, or "
            f"leave this run out."
        ) from error
    return run


def _check_types(config: Mapping[str, Any], result: Result) -> None:
    """Checks the parts of the configuration and the result that a report reads.

    Raises:
        ValueError: a part is missing or has another type; the message names it.
    """
    expected: dict[str, Any] = {
        **dict.fromkeys(("settings", "versions", "machine", "env_kwargs", "preset"), dict),
        **dict.fromkeys(("n_timesteps", "n_envs"), int),
        **dict.fromkeys(("algorithm", "env_id"), str),
    }
    wrong = [name for name, kind in expected.items() if not isinstance(config.get(name), (kind, type(None)))]
    wrong += [name for name in ("algorithm", "env_id", "settings") if config.get(name) is None]
    if config.get("preset") and not {"name", "source"} <= config["preset"].keys():
        wrong.append("preset")
    numbers = np.array([result.steps, result.seconds, *result.returns], np.float64)
    if not np.isfinite(numbers).all():
        wrong.append("result.yaml")
    if wrong:
        raise ValueError(f"unexpected {', '.join(wrong)}")


def _read_curve(folder: Path) -> Curve:
    """Reads episodes and evaluations; empty before the first episode has ended."""
    try:
        curve = read_curve(folder)
    except ConfigurationError:
        return NO_CURVE
    if curve.eval_returns.ndim != 2 or len(curve.eval_returns) != len(curve.eval_steps):
        raise ValueError(f"unexpected shape of evaluations {curve.eval_returns.shape}")
    return curve


def find_folders(paths: Iterable[Path]) -> list[Path]:
    """Returns the folders of the runs at or below each path, without duplicates.

    Raises:
        click.BadParameter: a path does not exist or has no run.
    """
    folders: list[Path] = []
    for path in paths:
        if not path.is_dir():
            raise click.BadParameter(
                f"must be the folder of a run or of a comparison, got {path}, which is no folder. Train first, or check the path.",
                param_hint="RUN",
            )
        if (path / CONFIG).is_file():
            folders.append(path)
            continue
        found = _newest_of_each_seed(path) or sorted((file.parent for file in path.rglob(CONFIG)), key=_by_number)
        if not found:
            reason = f"with {MODEL} but without {CONFIG}" if (path / MODEL).is_file() else f"without a {CONFIG}"
            raise click.BadParameter(
                f"must be the folder of a run or of a comparison, got {path}, a folder {reason}. Pass a folder that "
                f"`sb-dqn train` or `sb-dqn compare` has written.",
                param_hint="RUN",
            )
        folders += found
    return list({folder.resolve(): folder for folder in folders}.values())


def _newest_of_each_seed(path: Path) -> list[Path]:
    """Returns the runs of a comparison as `sb-dqn compare` selects them: for each seed the newest; empty for other folders."""
    content = read_comparison(path)
    homes = [path / name / f"seed_{seed}" for name, count in content.get("seeds", {}).items() for seed in range(count)]
    return [folder for home in homes if (folder := Job(home.name, home, ()).folder) is not None]


def group_runs(runs: Iterable[Run]) -> dict[str, list[Group]]:
    """Groups runs that differ by the seed only, by environment; labels name the settings in which two groups differ."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(repr(_identity(run)), []).append(run)
    by_env: dict[str, list[list[Run]]] = {}
    for same in members.values():
        by_env.setdefault(str(same[0].config["env_id"]), []).append(same)
    return {
        env_id: [
            Group(
                _label(same[0], [other[0] for other in groups]), sorted(same, key=lambda run: str(run.seed).zfill(12))
            )
            for same in groups
        ]
        for env_id, groups in by_env.items()
    }


def _identity(run: Run) -> dict[str, Any]:
    """Returns everything that determines a run, except its seed."""
    config, settings = run.config, run.settings
    names = ("algorithm", "env_id", "n_timesteps", "n_envs", "policy", "env_kwargs", "learners")
    facts = {name: plain_data(config.get(name)) for name in names}
    if run.result.finished:  # maybe trained further by `resume --timesteps`
        facts["n_timesteps"] = planned_steps(run)
    return facts | {name: value for name, value in sorted(settings.items()) if name not in SAME_AGENT}


def planned_steps(run: Run) -> int:
    """Returns the planned env steps of a run that made them, up to one tick of its lanes, else the steps that it has made."""
    planned, lanes = run.config.get("n_timesteps"), run.config.get("n_envs")
    if isinstance(planned, int) and isinstance(lanes, int) and 0 <= run.steps - planned < lanes:
        return planned
    return run.steps


def _label(run: Run, others: Sequence[Run]) -> str:
    """Returns the algorithm, with the settings that differ from those of other groups of the same algorithm."""
    algorithm, own = str(run.config["algorithm"]), _identity(run)
    same = [_identity(other) for other in others if other.config["algorithm"] == algorithm]
    names = [name for name in own if any(other.get(name) != own[name] for other in same)]
    differences = [f"{name}={own[name]}" for name in names[:3]] + (["…"] if len(names) > 3 else [])
    return f"{algorithm} ({', '.join(differences)})" if differences else algorithm


def _by_number(folder: Path) -> tuple[Any, ...]:
    """Orders paths by their names, with numbers at the end of a name in numeric order."""
    stem, _, number = folder.name.rpartition("_")
    return (*folder.parent.parts, stem, int(number) if number.isdecimal() else 0, folder.name)
