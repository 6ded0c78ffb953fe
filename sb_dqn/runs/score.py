"""Score of an agent over its runs, one per seed, and the table and the curves of several scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from sb_dqn.plotting.curve import Points
from sb_dqn.plotting.picture import STYLES, draw_curves, draw_rows, new_figure, save_figure, styled
from sb_dqn.plotting.series import Series, line_with_band
from sb_dqn.runs.run import Run
from sb_dqn.runs.statistics import Estimate, aggregate_iqm, at_common_places, mean_band
from sb_dqn.types import Kwargs


@dataclass(frozen=True)
class Score:
    """Results of an agent on one environment; the score of a run is the mean return of its final greedy episodes."""

    label: str
    runs: Sequence[Run]

    @property
    def finished(self) -> list[Run]:
        """Runs that have a score: trained to the end, with a finished final episode."""
        return [run for run in self.runs if run.result.returns]

    @property
    def drawn(self) -> list[Run]:
        """Runs for curves: the finished ones, or all of them while none is finished."""
        return self.finished or list(self.runs)

    @cached_property
    def means(self) -> Points:
        """`[R]` score of each finished run."""
        return np.array([run.result.mean for run in self.finished], np.float64)

    @cached_property
    def estimate(self) -> Estimate:
        """Interquartile mean of the scores with its interval."""
        return aggregate_iqm(self.means[:, None])

    @property
    def steps(self) -> int:
        """Env steps of a run."""
        return self.finished[0].result.steps

    @property
    def seconds(self) -> float:
        """Mean training time of a run, evaluations during training included."""
        return float(np.mean([run.result.seconds for run in self.finished]))

    @property
    def mean_text(self) -> str:
        spread = f" ± {self.means.std(ddof=1):.1f}" if len(self.means) > 1 else ""
        return f"{self.means.mean():.1f}{spread}"

    @property
    def interval_text(self) -> str:
        interval = self.estimate.interval
        return f"[{interval[0]:.1f}, {interval[1]:.1f}]" if interval else ""

    @property
    def evaluations(self) -> tuple[Points, Points]:
        """Env steps `[V]` of the evaluations during training and their mean returns `[R, V]`, of the runs that have any."""
        return at_common_places([run.evaluations for run in self.drawn if len(run.evaluations[0])])


def as_table(env_id: str, scores: Sequence[Score]) -> str:
    """Returns a Markdown table with one row per agent."""
    columns = "mean ± sd | IQM [95 % interval]" if several_seeds(scores) else "mean | IQM"
    lines = [
        f"| {env_id} | {columns} | seeds | env steps | wall-clock |",
        "|---|---|---|---|---|---|",
    ]
    for score in scores:
        iqm = score.estimate.text("{:.1f}".format)
        lines.append(
            f"| {score.label} | {score.mean_text} | {iqm} | {len(score.means)} | {score.steps:,} | {score.seconds:,.0f} s |"
        )
    return "\n".join(lines)


def several_seeds(scores: Iterable[Score]) -> bool:
    """Returns True if a score has several seeds, and so an interval."""
    return any(len(score.drawn) > 1 for score in scores)


def caption(jobs: int | None, several: bool = True) -> str:
    """Returns the explanation of the columns.

    Args:
        jobs: number of runs that trained at a time; None if unknown.
        several: True if a score has several seeds.
    """
    parallel = f", {jobs} at a time" if jobs is not None and jobs > 1 else ""
    spread = (
        "Mean and sd (n - 1) over the seeds; interquartile mean with 95 % percentile bootstrap interval. For fewer than "
        "four seeds the interquartile mean is the mean."
        if several
        else "With one seed no interval can be computed."
    )
    return (
        f"The score of a seed is the mean return of its greedy episodes after training. {spread} Wall-clock is the training "
        f"time of one run{parallel}, with the evaluations during training, without the final episodes and the start and end of "
        f"its process."
    )


def evaluation_series(scores: Iterable[Score]) -> list[Series]:
    """Returns the evaluations of each seed, and their mean over the seeds with its interval."""
    series: list[Series] = []
    for number, score in enumerate(scores):
        steps, curves = score.evaluations
        if not len(steps):
            continue
        line = line_with_band(steps, *mean_band(curves), number, f"{score.label} ({len(curves)})")
        seeds = [Series("line", steps, curve, color=number, faint=True) for curve in curves]
        faint = seeds if len(seeds) > 1 else []
        mean = line[-1].y
        titles = [f"{score.label}, step {step:,.0f}: {value:.1f}" for step, value in zip(steps, mean, strict=True)]
        series += [*line[:-1], *faint, line[-1], Series("marks", steps, mean, color=number, titles=titles)]
    return series


def draw_seeds(path: Path, title: str, scores: Sequence[Score], unit: str) -> None:
    """Draws the comparison and writes it to `path`: the curves, and the interquartile mean of each agent.

    Args:
        path: .png, .svg or .pdf file to write.
        title: title of the left axes, such as the environment.
        scores: runs of each agent.
        unit: episodes of an evaluation during training, such as "5 greedy episodes".

    Raises:
        ConfigurationError: matplotlib is missing, or the file cannot be written.
    """
    with styled(STYLES["screen"]):
        figure = new_figure(11, 4.8)
        left, right = figure.subplots(1, 2, width_ratios=[2.2, 1])
        interval = "mean and 95 % bootstrap interval over seeds" if several_seeds(scores) else "one seed, no interval"
        left.set_title(f"{title}: {interval}", loc="left")
        left.set(xlabel="environment steps", ylabel=f"mean return, {unit} [game score]")
        draw_rows(right, {score.label: score.estimate for score in scores}, range(len(scores)))
        right.set_xlabel("interquartile mean at the end")
        draw_curves(figure, left, evaluation_series(scores))
        save_figure(figure, path)


def group_runs(runs: Iterable[Run]) -> dict[str, list[Score]]:
    """Groups runs that differ by the seed only, by environment; labels name the settings in which two groups differ.

    Of several runs of one seed, which are no further evidence, the latest counts, or the latest finished one.
    """
    members: dict[str, dict[object, Run]] = {}
    for run in runs:
        seeds = members.setdefault(repr(_identity(run)), {})
        seed = run.folder if run.seed is None else run.seed
        seeds[seed] = max(
            seeds.get(seed, run), run, key=lambda run: (run.result.finished, str(run.config.get("started")))
        )
    by_env: dict[str, list[list[Run]]] = {}
    for same in members.values():
        first, *others = same.values()
        by_env.setdefault(first.env_id, []).append([first, *others])
    return {
        env_id: [
            Score(
                _label(same[0], [other[0] for other in groups]), sorted(same, key=lambda run: str(run.seed).zfill(12))
            )
            for same in groups
        ]
        for env_id, groups in by_env.items()
    }


def _identity(run: Run) -> Kwargs:
    return {"env_id": run.env_id, "n_timesteps": run.budget, **run.agent}


def _label(run: Run, others: Iterable[Run]) -> str:
    """Returns the algorithm, with the settings that differ from those of other groups of the same algorithm."""
    own = _identity(run)
    same = [_identity(other) for other in others if other.algorithm == run.algorithm]
    names = [name for name in own if any(other.get(name) != own[name] for other in same)]
    differences = [f"{name}={own[name]}" for name in names[:3]] + (["…"] if len(names) > 3 else [])
    return f"{run.algorithm} ({', '.join(differences)})" if differences else run.algorithm
