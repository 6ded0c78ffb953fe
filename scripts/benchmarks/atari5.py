"""Estimate of the median human-normalized score on 57 Atari games from five of them (Aitchison et al. 2023, arXiv 2210.02019).

With phi(x) = log10(1 + max(0, x)) for a score x in percent of a human's, phi of the median is a weighted sum of phi of the five
games; on 44 published agents the estimate is off by a factor of 1.09 on average.

Usage: python scripts/benchmarks/atari5.py runs/benchmark_atari runs/more      # folders of sb-dqn train, compare or benchmark
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from sb_dqn.cli.plots.normalization import ATARI_ID, human_scores
from sb_dqn.runs.run import runs_below

WEIGHTS = {"BattleZone": 0.382, "DoubleDunk": 0.068, "NameThisGame": 0.311, "Phoenix": 0.124, "Qbert": 0.081}


def estimated_median(scores: Mapping[str, float]) -> float:
    """Returns the estimate of the median human-normalized score, 1 for a human, from the mean scores of the five games."""
    phi = 0.0
    for game, weight in WEIGHTS.items():
        low, high = human_scores()[game]
        phi += weight * math.log10(1 + max(0.0, 100 * (scores[game] - low) / (high - low)))
    return (10**phi - 1) / 100


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in parser.parse_args(arguments).folders:
        for run in runs_below(folder):
            if run.result.mean is not None and (match := ATARI_ID.fullmatch(run.env_id)):
                found[run.algorithm][match[1]].append(run.result.mean)
    for algorithm, games in found.items():
        missing = [game for game in WEIGHTS if game not in games]
        text = f"no runs of {', '.join(missing)}" if missing else ""
        means = {game: fmean(values) for game, values in games.items()}
        print(f"{algorithm}: {text or f'estimated median {estimated_median(means):.3f}'}")


if __name__ == "__main__":
    main()
