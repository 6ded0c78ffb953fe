"""What it costs to look for NaN and infinity in every observation and reward: training with the checks and without.

Usage: python scripts/benchmarks/fault_checks.py [--rounds 7]

Prints for each task the median of (seconds without the checks) / (seconds with them), interleaved; 0.99 is a cost of 1 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import sb_dqn.envs.stream_lanes
from sb_dqn import DQN, make_atari_env
from sb_dqn.envs.stream_base import Stream


class Believing:
    """`math` for a reader that believes everything."""

    @staticmethod
    def isfinite(value: float) -> bool:
        """Whatever it is."""
        return True


def seconds(model: DQN, steps: int, checks: bool) -> float:
    """Of learning on for some env steps."""
    with ExitStack() as stack:
        if not checks:
            stack.enter_context(patch.object(Stream, "_check_observation", lambda *_: None))
            stack.enter_context(patch.object(Stream, "_check_score", lambda *_: None))
            stack.enter_context(patch.object(sb_dqn.envs.stream_lanes, "math", Believing))
        began = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    tasks: dict[str, tuple[Callable[[], Any], dict[str, Any], int]] = {
        "CartPole-v1, DQN's defaults": (lambda: "CartPole-v1", {"policy": "MlpPolicy"}, 5_000),
        "Pong, one update per 4 steps, 8 lanes": (
            lambda: make_atari_env("PongNoFrameskip-v4", 8),
            {"policy": "CnnPolicy", "buffer_size": 10_000},
            800,
        ),
    }
    for name, (make, keywords, steps) in tasks.items():
        model = DQN(env=make(), seed=0, learning_starts=100, train_freq=4, **keywords)
        seconds(model, steps, checks=True)  # a warm-up
        ratios = []
        for number in range(options.rounds):
            order = (True, False) if number % 2 else (False, True)
            spent = {checks: seconds(model, steps, checks) for checks in order}
            ratios.append(spent[False] / spent[True])
        found = {"task": name, "median": round(statistics.median(ratios), 4)}
        print(json.dumps({**found, "lowest": round(min(ratios), 4), "highest": round(max(ratios), 4)}), flush=True)


if __name__ == "__main__":
    main()
