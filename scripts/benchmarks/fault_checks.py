"""Cost of checking every observation and reward for NaN and infinity: training with and without the checks.

Usage: python scripts/benchmarks/fault_checks.py [--rounds 61]

Prints for each task the median of (seconds without the checks) / (seconds with them), interleaved; 0.99 is a cost of 1 %.
Rounds are short and numerous, because the effect is smaller than the noise of one round. `half` is the range of the middle
half of the rounds, `error` the standard error of the median. Both sides of CartPole pay for the sum of the rewards that takes
the place of their check while it is small: it is part of the step there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from sb_dqn import DQN, make_atari_env
from sb_dqn.envs.streams.base import Stream


def without_checks(stream: Stream) -> ExitStack:
    """Returns a context in which a stream checks nothing."""
    stack = ExitStack()
    for name, nothing in (("_float_keys", []), ("_small_floats", False), ("_check_score", lambda _: None)):
        if hasattr(stream, name):
            stack.enter_context(patch.object(stream, name, nothing))
    return stack


def seconds(model: DQN, steps: int, checks: bool) -> float:
    """Of learning on for some env steps."""
    assert model.stream is not None
    with nullcontext() if checks else without_checks(model.stream):
        began = time.perf_counter()
        model.learn(steps, reset_num_timesteps=False)
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=61)
    options = parser.parse_args()
    tasks: dict[str, tuple[Callable[[], Any], dict[str, Any], int]] = {
        "CartPole-v1, DQN's defaults": (lambda: "CartPole-v1", {"policy": "MlpPolicy"}, 2_000),
        "Pong, one update per 4 steps, 8 lanes": (
            lambda: make_atari_env("PongNoFrameskip-v4", 8),
            {"policy": "CnnPolicy", "buffer_size": 10_000},
            160,
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
        low, median, high = statistics.quantiles(ratios, n=4)
        error = 1.253 * (high - low) / 1.349 / len(ratios) ** 0.5  # of a median, from the quartiles of a normal law
        found = {"task": name, "rounds": len(ratios), "median": round(median, 4), "error": round(error, 4)}
        print(json.dumps({**found, "half": [round(low, 4), round(high, 4)]}), flush=True)


if __name__ == "__main__":
    main()
