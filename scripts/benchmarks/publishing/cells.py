"""Runs of each agent on each task, and their statistics."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from sb_dqn.cli.benchmark.runs import OWN, Suite, Task
from sb_dqn.plotting.series import Series, line_with_band
from sb_dqn.runs.statistics import aggregate_iqm, at_common_places, iqm_curve
from scripts.benchmarks.publishing import paths

KEY = ("library", "algorithm", "env", "seed")
SEEDS = 5
"""Runs that an agent should have on a task."""
PEERS = {"sb3": "Stable-Baselines3"}


@dataclass(frozen=True)
class Cell:
    """Runs of an agent on a task of a suite, one per seed."""

    library: str
    algorithm: str
    task: str
    rows: Sequence[Mapping[str, str]]
    curves: Sequence[str]
    twin: str = ""
    """Algorithm with the same settings, whose runs these are."""

    @property
    def note(self) -> str:
        return f" (the runs of {self.twin}, which has the same settings here)" if self.twin else ""

    @property
    def agent(self) -> str:
        return self.algorithm if self.library == OWN else f"{PEERS[self.library]} {self.algorithm}"

    def numbers(self, column: str) -> list[float]:
        return [float(row[column]) for row in self.rows if row.get(column)]  # older rows lack CPU seconds

    def mean(self, column: str) -> str:
        values = self.numbers(column)
        return f"{fmean(values):,.0f}" if values and any(values) else "–"

    @property
    def best(self) -> str:
        values = self.numbers("best")
        return number(fmean(values)) if values else "–"

    @property
    def score(self) -> str:
        return spread(self.numbers("score"))

    @property
    def area(self) -> str:
        """Mean of all evaluations during training, which is the area under the curve divided by the env steps."""
        return spread([fmean(float(point.partition(":")[2]) for point in curve.split()) for curve in self.curves])

    @property
    def iqm(self) -> str:
        return aggregate_iqm(np.array(self.numbers("score"))[:, None]).text(number)

    @property
    def minutes_per_step(self) -> float:
        """Mean CPU time of an env step, evaluations included; wall-clock time of runs without it."""
        seconds = [float(row.get("cpu_seconds") or 0.0) or float(row["seconds"]) for row in self.rows]
        return sum(seconds) / sum(self.numbers("steps")) / 60

    def series(self, color: int, label: str = "", minutes: bool = False) -> list[Series]:
        """Returns the interquartile mean of the evaluations of all runs, with its interval, over env steps or CPU minutes."""
        pairs = [np.array([point.split(":") for point in curve.split()], float).T for curve in self.curves]
        steps, values = at_common_places([(points[0], points[1]) for points in pairs])
        band = iqm_curve(values[:, np.newaxis])
        return line_with_band(steps * (self.minutes_per_step if minutes else 1.0), *band, color, label or self.agent)


def number(value: float) -> str:
    """Returns a score with as many digits as a reader needs."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: Sequence[float]) -> str:
    """Returns mean and standard deviation."""
    return number(fmean(values)) + (f" ± {number(stdev(values))}" if len(values) > 1 else "")


def read(path: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells_of(suite: Suite) -> list[Cell]:
    """Returns the cells of a suite in the order of its tasks; in each, the best agent first."""
    curves = {tuple(row[key] for key in KEY): row["curve"] for row in read(paths.DATA / f"{suite.name}-curves.csv")}
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read(paths.DATA / f"{suite.name}.csv"):
        groups[row["library"], row["algorithm"], row["env"]].append(row)
    cells = [
        Cell(*group, rows, [curves[tuple(row[key] for key in KEY)] for row in rows]) for group, rows in groups.items()
    ]
    cells += [twin for task in suite.tasks for twin in twins(task, [cell for cell in cells if cell.task == task.name])]
    order = [task.name for task in suite.tasks]
    return sorted(
        cells, key=lambda cell: (order.index(cell.task), -fmean(cell.numbers("score") or [-np.inf]), cell.agent)
    )


def twins(task: Task, cells: Sequence[Cell]) -> list[Cell]:
    """Returns the cells of the algorithms whose presets make the agent of another one."""
    runs = {cell.algorithm: cell for cell in cells if cell.library == OWN and cell.rows}
    return [replace(runs[twin], algorithm=name, twin=twin) for name, twin in task.twins.items() if twin in runs]


def normalized(suite: Suite, cells: Sequence[Cell]) -> dict[tuple[str, str], np.ndarray]:
    """Returns the normalized scores `[R, M]` of each agent, by library and algorithm, that has runs on all tasks with references."""
    tasks = {task.name: task.reference for task in suite.tasks if task.reference}
    by_agent: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(dict)
    for cell in cells:
        if reference := tasks.get(cell.task):
            low, high = reference
            by_agent[cell.library, cell.algorithm][cell.task] = [
                (x - low) / (high - low) for x in cell.numbers("score")
            ]
    found = {}
    for agent, scores in by_agent.items():
        runs = min(map(len, scores.values()))
        if len(scores) == len(tasks) and runs:
            found[agent] = np.array([scores[task][:runs] for task in tasks]).T
    return found
