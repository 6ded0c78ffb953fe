"""Plots of the learning curves in `docs/benchmarks/pong-*.csv` and `halfcheetah-*.csv` over env steps and over minutes of training.

Usage: python scripts/benchmarks/draw_curves.py PICTURE NAME=CURVE.csv ...
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np
import numpy.typing as npt

from sb_dqn.plotting import new_figure

NEEDED = ("env_steps", "seconds", "mean_return", "greedy_mean", "greedy_sd")
AXES = {"env_steps": ("thousand env steps", 1e3), "seconds": ("minutes of training", 60.0)}


def read(path: Path) -> dict[str, npt.NDArray[np.float64]]:
    """The columns of a curve; NaN where nothing was written."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([float(row[name] or "nan") for row in rows]) for name in NEEDED}


def draw(picture: Path, curves: dict[str, Path]) -> None:
    """Greedy means with their deviation, and thin the means of the last training games."""
    figure = new_figure(10, 4)
    for axes, (over, (label, unit)) in zip(figure.subplots(1, 2, sharey=True), AXES.items(), strict=True):
        for number, (name, path) in enumerate(curves.items()):
            columns, color = read(path), f"C{number}"
            played = np.isfinite(columns["greedy_mean"])
            axes.plot(columns[over] / unit, columns["mean_return"], color=color, lw=0.8, alpha=0.6)
            axes.errorbar(
                columns[over][played] / unit, columns["greedy_mean"][played], columns["greedy_sd"][played],
                fmt="o-", ms=4, capsize=3, color=color, label=name,
            )  # fmt: skip
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("return: greedy (dots), last 20 games (thin)")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(picture, dpi=100)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("curves", nargs="+", metavar="NAME=CURVE.csv")
    options = parser.parse_args(arguments)
    named = [curve.partition("=") for curve in options.curves]
    if not all(path for _, _, path in named):
        parser.error(f"curves {options.curves} are not allowed: give each as NAME=FILE.csv")
    draw(options.picture, {name: Path(path) for name, _, path in named})


if __name__ == "__main__":
    main()
