"""Adam's step with and without denormal numbers, if most parameters have had no gradient for a long time.

Usage: python scripts/benchmarks/denormals.py [--threads 1] [--rounds 5]

Without the learner's flush to zero, the momentum of such a parameter ends at the smallest denormal number and stays there. The
net is as large as the Nature CNN. Prints the milliseconds of a step before, and after 1,500 steps without gradient.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import numpy as np
import torch
from gymnasium import spaces

import sb_dqn.learning.optimizer_step
from sb_dqn.learning.learner import Learner
from sb_dqn.learning.optimizer_step import FLUSH_EVERY
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import CnnPolicy


def milliseconds(learner: Learner, gradient: torch.Tensor, steps: int = 2 * FLUSH_EVERY) -> float:
    """Mean of one step."""
    began = time.perf_counter()
    for _ in range(steps):
        learner.apply(gradient)
    return 1e3 * (time.perf_counter() - began) / steps


def measure(share: float) -> tuple[float, float]:
    """A step while all parameters have a gradient, and one after `share` of them had none for 1,500 steps."""
    policy = CnnPolicy(spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6))
    learner = Learner(policy.q_net, policy.q_net_target, QLearning(Bootstrap()))
    gradient = torch.full_like(learner.flat, 1e-3)
    before = milliseconds(learner, gradient)
    gradient[: int(share * gradient.numel())] = 0.0
    for _ in range(1_500):
        learner.apply(gradient)
    return before, milliseconds(learner, gradient)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.5, help="of the parameters, without gradient")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    found: dict[str, list[tuple[float, float]]] = {"kept": [], "forgotten": []}
    for _ in range(options.rounds):
        for name, every in (("kept", sys.maxsize), ("forgotten", FLUSH_EVERY)):
            sb_dqn.learning.optimizer_step.FLUSH_EVERY = every  # which is looked up at each step
            found[name].append(measure(options.share))
    for name, pairs in found.items():
        before, after = ([round(value, 2) for value in column] for column in zip(*pairs, strict=True))
        print(json.dumps({"denormals": name, "before, ms": before, "after, ms": after}))


if __name__ == "__main__":
    main()
