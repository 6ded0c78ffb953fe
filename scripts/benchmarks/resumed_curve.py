"""Learning curve of a run that is killed and resumed five times, drawn over that of the uninterrupted run.

Usage: python scripts/benchmarks/resumed_curve.py PICTURE.png [--steps 50000] [--kills 5] [--seed 0]

Both are `sb-dqn train PERDQN CartPole-v1` with its preset. Every kill is a SIGKILL, at the end of an episode near a random
env step. Prints one JSON line: those steps, and the largest difference between returns of episodes, lengths, evaluations.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np
import numpy.typing as npt

from sb_dqn.plotting import read_curve
from scripts.benchmarks.kills import train

TRAIN = ("train", "PERDQN", "CartPole-v1", "--seed", "3", "--no-progress", "--device", "cpu", "--checkpoint-minutes")
MINUTES = "0.02"
Curve = npt.NDArray[np.float64]


def curves(folder: Path) -> tuple[Curve, Curve]:
    """`[episodes, 3]` end in env steps, return, length; and `[evaluations, 2]` env steps, mean return."""
    (run,) = (path.parent for path in folder.glob("*/config.yaml"))
    curve = read_curve(run)
    episodes = np.stack([curve.steps, curve.returns, curve.lengths], -1)
    return episodes, np.stack([curve.eval_steps, curve.eval_returns.mean(-1)], -1)


def has_reached(folder: Path, moment: int) -> bool:
    """Whether the run in `folder` has finished an episode at or after env step `moment`."""
    return any((read_curve(path.parent).steps >= moment).any() for path in folder.glob("*/monitor.csv"))


def draw(path: Path, whole: tuple[Curve, Curve], killed: tuple[Curve, Curve], at: list[int]) -> None:
    """Returns of episodes and evaluations of both, one on the other."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for (episodes, evaluations), color, width, label in (
        (whole, "tab:blue", 4.0, "not interrupted"),
        (killed, "black", 1.0, f"killed and resumed {len(at)} times"),
    ):
        axes.plot(episodes[:, 0], episodes[:, 1], color=color, linewidth=width, alpha=0.6, label=f"episodes, {label}")
        axes.plot(
            evaluations[:, 0], evaluations[:, 1], "o--", color=color, markersize=2 * width, label=f"greedy, {label}"
        )
    for moment in at:
        axes.axvline(moment, color="tab:red", linewidth=0.8, linestyle=":")
    axes.set_xlabel("env steps")
    axes.set_ylabel("return")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    moments = np.sort(
        np.random.default_rng(options.seed).integers(options.steps // 10, options.steps * 9 // 10, options.kills)
    )
    with tempfile.TemporaryDirectory() as scratch:
        whole, killed = Path(scratch) / "whole", Path(scratch) / "killed"
        for folder in (whole, killed):
            folder.mkdir()
        train(whole, options.steps, None, TRAIN, MINUTES)
        for moment in moments:
            alive, _ = train(killed, options.steps, partial(has_reached, killed, moment), TRAIN, MINUTES)
            assert alive
        train(killed, options.steps, None, TRAIN, MINUTES)
        ours, theirs = curves(whole), curves(killed)
        draw(options.picture, ours, theirs, moments.tolist())
    same = all(a.shape == b.shape for a, b in zip(ours, theirs, strict=True))
    worst = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True)) if same else None
    print(
        json.dumps(
            {
                "kills at": moments.tolist(),
                "episodes": len(ours[0]),
                "evaluations": len(ours[1]),
                "largest difference": worst,
            }
        )
    )


if __name__ == "__main__":
    main()
