"""Comparison of A2C with Stable-Baselines3's on its identity tasks, where the right action equals the observation.

Usage: OMP_NUM_THREADS=1 python scripts/benchmarks/identity.py
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

TF_LIKE: dict[str, Any] = {"optimizer_class": "RMSpropTFLike", "optimizer_kwargs": {"eps": 1e-5}}
OURS: dict[str, dict[str, Any]] = {
    "sb_dqn before": {**TF_LIKE, "binary_logits": 2},
    "sb_dqn, binary_logits=2": {"binary_logits": 2},
    "sb_dqn": {},
}
"""`policy_kwargs` by column; the first are the defaults of earlier versions, the second those but for the optimizer."""


def tasks() -> dict[str, Callable[[], Any]]:
    """Stable-Baselines3's environments; an episode has 100 steps, each worth 1 where action and observation are the same."""
    from stable_baselines3.common.envs import identity_env

    return {
        "Discrete(4)": lambda: identity_env.IdentityEnv(4),
        "Box": lambda: identity_env.IdentityEnvBox(eps=0.5),  # as in Stable-Baselines3's own test
        "MultiDiscrete([4, 4])": lambda: identity_env.IdentityEnvMultiDiscrete(4),
        "MultiBinary(2)": lambda: identity_env.IdentityEnvMultiBinary(2),
        "MultiBinary(3)": lambda: identity_env.IdentityEnvMultiBinary(3),
        "MultiBinary(4)": lambda: identity_env.IdentityEnvMultiBinary(4),
    }


def trained(column: str, make_env: Callable[[], Any], seed: int, options: argparse.Namespace) -> float:
    """Mean return of greedy episodes after training with one seed, which the environment's states are drawn by, too."""
    import stable_baselines3
    from stable_baselines3.common.evaluation import evaluate_policy as evaluate_theirs
    from stable_baselines3.common.vec_env import DummyVecEnv

    from sb_dqn import A2C, evaluate_policy

    env = make_env()
    env.action_space.seed(seed)  # an identity task draws its states from this space
    lane: Any = DummyVecEnv([lambda: env])
    common: dict[str, Any] = {"learning_rate": options.learning_rate, "gamma": options.gamma, "seed": seed}
    if column in OURS:
        ours = A2C("MlpPolicy", lane, **common, device=options.device, policy_kwargs=OURS[column]).learn(
            options.timesteps
        )
        scores: Any = evaluate_policy(ours, lane, options.episodes, deterministic=True, warn=False)
        return float(scores[0])
    theirs = stable_baselines3.A2C("MlpPolicy", lane, **common, device=options.device).learn(options.timesteps)
    found: Any = evaluate_theirs(theirs, lane, options.episodes, deterministic=True, warn=False)
    return float(found[0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=list(tasks()), choices=list(tasks()), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=12, help="how many, from 0")
    parser.add_argument("--timesteps", type=int, default=1_200)
    parser.add_argument("--episodes", type=int, default=10, help="greedy episodes at the end of each run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gamma", type=float, default=0.5)
    parser.add_argument("--learning-rate", type=float, default=7e-4)
    options = parser.parse_args(arguments)
    columns = [*OURS, "Stable-Baselines3"]
    print(f"| Task | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}")
    for task in options.tasks:
        cells = []
        for column in columns:
            means = [trained(column, tasks()[task], seed, options) for seed in range(options.seeds)]
            cells.append(f"{np.mean(means):.1f} ± {np.std(means, ddof=1):.1f}")
        print(f"| {task} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
