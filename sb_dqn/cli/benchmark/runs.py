"""Runs of a benchmark: one job per algorithm, environment and seed, the time they will take, and their results as rows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from sb_dqn.cli.benchmark.suite import Suite, Task
from sb_dqn.files import write_text
from sb_dqn.plotting import read_evaluations
from sb_dqn.runs.comparison import Setup
from sb_dqn.runs.folder import CONFIG, plain_data, read_config
from sb_dqn.runs.jobs import Job
from sb_dqn.runs.plan import make_plan
from sb_dqn.runs.result_file import Result, read_result

RESULTS = "results.csv"
CURVES = "curves.csv"
OWN = "sb_dqn"
"""Name of this library in the column `library`."""


@dataclass(frozen=True)
class Entry(Job):
    """One run of a benchmark; a run with settings that the presets no longer have is none of it, and stays where it is."""

    library: str
    algorithm: str
    task: Task
    seed: int
    expected: Mapping[str, Any]
    """What `config.yaml` of the run must say: env steps, lanes, keywords of the environment, and the settings of the preset."""

    @property
    def folder(self) -> Path | None:
        """Newest folder of the run with the present settings, or None."""
        started = [path.parent for path in self.home.glob(f"*/{CONFIG}") if self._is_current(path.parent)]
        return max(started, key=lambda path: int(path.name.rpartition("_")[2]), default=None)

    def _is_current(self, folder: Path) -> bool:
        config = _read_config(folder)
        settings = config.get("settings", {})
        return all(settings.get(name) == value for name, value in self.expected["settings"].items()) and all(
            config.get(name) == value for name, value in self.expected.items() if name != "settings"
        )

    @property
    def result(self) -> Result:
        """Steps, time and returns so far."""
        return read_result(self.folder or self.home)

    def row(self) -> dict[str, Any]:
        """Returns the line of a finished run in `results.csv`."""
        assert self.folder is not None
        config, result = _read_config(self.folder), self.result
        curve = read_evaluations(self.folder)[1].mean(axis=1)
        machine = config.get("machine", {})
        return {
            "library": self.library,
            "algorithm": self.algorithm,
            "env": self.task.name,
            "seed": self.seed,
            "score": round(fmean(result.returns), 3) if result.returns else "",
            "score_sd": round(pstdev(result.returns), 3) if result.returns else "",
            "episodes": len(result.returns),
            "best": round(float(curve.max()), 3) if len(curve) else "",
            "steps": result.steps,
            "seconds": round(result.seconds, 1),
            "cpu_seconds": round(result.cpu_seconds, 1),
            "version": config["versions"][self.library],
            "torch": config["versions"]["torch"],
            "machine": f"{machine.get('gpu') or machine.get('cpu')}, {machine.get('threads')} of {machine.get('cores')} cores",
            "commit": config.get("commit", ""),
            "command": f"sb-dqn {' '.join(self.published_command)}",
        }

    @property
    def published_command(self) -> list[str]:
        """Returns the words of the command without those that name a place on this machine."""
        words = [*self.train]
        at = words.index("--folder")
        return [word for word in words[:at] + words[at + 2 :] if word != "--no-progress"]

    def curve(self) -> str:
        """Returns the evaluations during training as `steps:mean return`, separated by blanks."""
        assert self.folder is not None
        steps, returns = read_evaluations(self.folder)
        return " ".join(f"{step:.0f}:{mean:.5g}" for step, mean in zip(steps, returns.mean(axis=1), strict=True))


def make_entries(suite: Suite, out: Path, queue: Mapping[str, Iterable[int]]) -> list[Entry]:
    """Returns the runs of a suite, one seed after the other, so that all cells of the tables fill at the same pace.

    Args:
        suite: environments and their algorithms.
        out: folder of the benchmark.
        queue: seeds of each algorithm.
    """
    return [
        _entry(out, algorithm, task, seed)
        for seed in sorted({seed for seeds in queue.values() for seed in seeds})
        for task in suite.tasks
        for algorithm in task.algorithms
        if seed in queue.get(algorithm, ())
    ]


def _entry(out: Path, algorithm: str, task: Task, seed: int) -> Entry:
    words = tuple(f"{key}={value}" for key, value in task.env_kwargs.items())
    plan = make_plan(
        algorithm, task.env, preset=task.preset, timesteps=task.timesteps, seed=seed, env_assignments=words
    )
    home = out / "runs" / f"{algorithm}_{re.sub(r'[^A-Za-z0-9.-]+', '-', task.name)}_{seed}"
    evaluation = {name: getattr(task, name) for name in ("eval_episodes", "final_episodes", "final_steps")}
    command = Setup(task.env, plan.n_timesteps, words, **evaluation).command(algorithm, (), seed, home, "auto")
    if task.preset is not None:
        command = (*command, "--preset", task.preset)
    facts = {name: plain_data(getattr(plan, name)) for name in ("n_timesteps", "n_envs", "env_kwargs", "settings")}
    return Entry(f"{algorithm} on {task.name}, seed {seed}", home, command, OWN, algorithm, task, seed, facts)


@cache
def _read_config(folder: Path) -> dict[str, Any]:
    return read_config(folder)


def seconds_left(entries: Iterable[Entry], jobs: int) -> float | None:
    """Returns an estimate of the time until all runs are finished; None before the first one has finished a part.

    The speed of a run is that of the same algorithm on the same environment, else of the algorithm, else of all runs.
    """
    todo, spent = list[Entry](), dict[tuple[str, ...], list[tuple[float, int]]]()
    for entry in entries:
        result = entry.result
        for group in _groups(entry):
            spent.setdefault(group, []).append((result.seconds, result.steps))
        if not entry.finished:
            todo.append(entry)
    total = 0.0
    for entry in todo:
        for group in _groups(entry):
            seconds, steps = (sum(column) for column in zip(*spent[group], strict=True))
            if steps:
                total += max(entry.expected["n_timesteps"] - entry.result.steps, 0) * seconds / steps
                break
        else:
            return None
    return total / jobs


def _groups(entry: Entry) -> list[tuple[str, ...]]:
    """Returns the groups of runs that are as fast as this one, the most similar first."""
    own = (entry.library, entry.algorithm)
    return [(*own, entry.task.name), own, ()]


def write_results(out: Path, entries: Iterable[Entry]) -> None:
    """Writes `results.csv` and `curves.csv` of the finished runs atomically."""
    finished = [entry for entry in entries if entry.finished]
    if not finished:
        return
    rows = [entry.row() for entry in finished]
    write_text(out / RESULTS, as_csv(rows))
    names = ("library", "algorithm", "env", "seed")
    curves = [
        {**{name: row[name] for name in names}, "curve": entry.curve()}
        for row, entry in zip(rows, finished, strict=True)
    ]
    write_text(out / CURVES, as_csv(curves))


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Returns rows with the same keys as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
