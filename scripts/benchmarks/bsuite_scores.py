"""Scores of bsuite (Osband et al. 2020, arXiv 1908.03568): 23 experiments, each scored from 0 to 1 by its own rule.

An experiment is a task in up to 30 settings, each for a fixed number of episodes; what counts is the regret while learning, so
there is no evaluation. A setting that is finished is not repeated, an unfinished one starts again; several processes may work
on experiments that differ. Experiments with MNIST need its images, which bsuite downloads.

Usage: OMP_NUM_THREADS=1 python scripts/benchmarks/bsuite_scores.py DQN --experiments catch cartpole --out runs/bsuite
       python scripts/benchmarks/bsuite_scores.py DQN --out runs/bsuite --score        # the table of what is finished

It needs `pip install bsuite` (0.3.6 works with Python 3.11, NumPy 2.4 and pandas 2.3).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import gymnasium
import numpy as np
from gymnasium import spaces

PAPER = {
    "learning_rate": 1e-3, "batch_size": 32, "buffer_size": 10_000, "learning_starts": 100, "train_freq": 1,
    "target_update_interval": 4, "exploration_initial_eps": 0.05, "exploration_final_eps": 0.05,
    "policy_kwargs": {"net_arch": [50, 50]},
}  # fmt: skip
"""Settings of bsuite's own DQN."""
AGENTS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "DQN": ("DQN", "MlpPolicy", PAPER),
    "switches": (
        "DQN", "MlpPolicy",
        {**PAPER, "double_q": True, "n_steps": 3, "munchausen": True, "prioritized_replay": True, "normalize_rewards": True},
    ),
    "R2D2": (
        "R2D2", "MlpLstmPolicy",
        {
            "batch_T": 32, "batch_B": 16, "warmup_T": 0, "store_rnn_state_interval": 32, "replay_ratio": 16,
            "count_burn_in": False, "learning_rate": 1e-3, "buffer_size": 50_000, "learning_starts": 500,
            "target_update_interval": 500, "policy_kwargs": {"lstm_hidden_size": 64, "net_arch": [64]},
        },
    ),
}  # fmt: skip
"""Name of an agent to its class, policy and settings."""


class BsuiteEnv(gymnasium.Env[Any, int]):
    """Task of bsuite, an environment of dm_env, with flat observations.

    Args:
        env: the task; what it logs is between its own `reset` and `step`.
    """

    def __init__(self, env: Any) -> None:
        shape = env.observation_spec().shape
        self.env = env
        self.observation_space = spaces.Box(-np.inf, np.inf, (int(np.prod(shape)),), np.float32)
        self.action_space: Any = spaces.Discrete(int(env.action_spec().num_values))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._flat(self.env.reset()), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        step = self.env.step(int(action))
        ended = bool(step.last())
        return self._flat(step), float(step.reward), ended and step.discount == 0, ended and step.discount != 0, {}

    def _flat(self, step: Any) -> Any:
        return np.asarray(step.observation, np.float32).reshape(-1)


def logged_episodes(path: Path) -> int:
    """Returns the number of episodes that the log of a setting covers."""
    if not path.is_file():
        return 0
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return int(float(rows[-1]["episode"])) if rows else 0


def train(agent: str, bsuite_id: str, folder: Path, seed: int) -> None:
    """Trains an agent on one setting for its number of episodes; the log is written by bsuite."""
    from sb_dqn.algorithms import ALGORITHMS
    from sb_dqn.callbacks import StopTrainingOnMaxEpisodes

    bsuite: Any = import_module("bsuite")
    env = bsuite.load_and_record(bsuite_id, str(folder), overwrite=True)
    name, policy, settings = AGENTS[agent]
    make: Callable[..., Any] = ALGORITHMS[name]
    model = make(policy, BsuiteEnv(env), seed=seed, device="cpu", **settings)
    model.learn(10**9, callback=StopTrainingOnMaxEpisodes(env.bsuite_num_episodes))


def scores_of(folder: Path) -> dict[str, tuple[float, int]]:
    """Returns score and number of finished settings of each experiment in a folder."""
    load: Any = import_module("bsuite.logging.csv_load")
    analysis: Any = import_module("bsuite.experiments.summary_analysis")
    logs, varied = load.load_bsuite(str(folder))
    found = analysis.bsuite_score(logs, varied)
    counts = logs.groupby("bsuite_env")["bsuite_id"].nunique()
    return {row["bsuite_env"]: (float(row["score"]), int(counts[row["bsuite_env"]])) for _, row in found.iterrows()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", choices=AGENTS)
    parser.add_argument("--experiments", nargs="+", metavar="NAME", help="default: all 23")
    parser.add_argument("--out", type=Path, default=Path("runs/bsuite"))
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--score", action="store_true", help="print the scores only")
    options = parser.parse_args(arguments)
    sweep: Any = import_module("bsuite.sweep")
    folder = options.out / options.agent
    for bsuite_id in () if options.score else sweep.SWEEP:
        name, episodes = bsuite_id.split("/")[0], sweep.EPISODES[bsuite_id]
        path = folder / f"bsuite_id_-_{bsuite_id.replace('/', '-')}.csv"
        if (options.experiments and name not in options.experiments) or logged_episodes(path) >= episodes:
            continue
        train(options.agent, bsuite_id, folder, options.seed)
        print(f"{bsuite_id}: {episodes} episodes", flush=True)
    scores = scores_of(folder)
    print("| Experiment | Score | Settings |\n|---|---|---|")
    for name, (score, count) in scores.items():
        print(f"| {name} | {score:.2f} | {count} |")
    print(f"| mean of {len(scores)} | {np.mean([score for score, _ in scores.values()]):.2f} | |")


if __name__ == "__main__":
    main()
