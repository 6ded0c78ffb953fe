"""The share of dormant units after training, for each task of a benchmark: mean and standard deviation over its seeds.

Each model plays greedily from the same seed; a hidden unit is dormant if its mean absolute output over these observations is at
most 0.025 of the mean of its layer (Sokar et al. 2023, arXiv 2302.12902). Prints one JSON line for each task.

Usage: python scripts/benchmarks/dormant.py runs/benchmark_switches --tasks "replay ratio 4" "replay ratio 4, ReDo"
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from sb_dqn.algorithms import DQN
from sb_dqn.envs.make import make_env
from sb_dqn.nn.units import DORMANT, unit_scores, watched
from scripts.benchmarks.agents import finished_entries


def share_of_model(model: DQN, env: gymnasium.Env[Any, Any], steps: int) -> float:
    """Returns the share of dormant units of the online network, over all hidden layers together."""
    obs, seen = env.reset(seed=0)[0], []
    for _ in range(steps):
        seen.append(obs)
        obs, _, terminated, truncated, _ = env.step(model.predict(obs, deterministic=True)[0])
        if terminated or truncated:
            obs = env.reset()[0]
    with torch.no_grad(), watched(model.policy) as outputs:
        model.q_values(np.stack(seen))
    dormant = torch.cat([unit_scores(output) <= DORMANT for output in outputs.values()])
    return float(dormant.float().mean())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "benchmark", type=Path, help="folder of sb-dqn benchmark, of Q-learning in environments of vectors"
    )
    parser.add_argument("--tasks", nargs="+", help="names of tasks; all without it")
    parser.add_argument("--steps", type=int, default=2_000, help="observations of each model")
    chosen = parser.parse_args(arguments)
    shares: dict[str, list[float]] = {}
    for entry in finished_entries(chosen.benchmark):
        if entry.folder is not None and (not chosen.tasks or entry.task.name in chosen.tasks):
            model = DQN.load(entry.folder / "model.zip", device="cpu")
            shares.setdefault(entry.task.name, []).append(share_of_model(model, make_env(entry.task.env), chosen.steps))
    for task, values in shares.items():
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        print(json.dumps({"task": task, "dormant": float(np.mean(values)), "sd": spread, "seeds": len(values)}))


if __name__ == "__main__":
    main()
