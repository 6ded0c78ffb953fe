"""Hindsight experience replay on `sb_dqn/BitFlip-v0`: success of the greedy policy and time, with those of Stable-Baselines3.

    python scripts/benchmarks/goals.py --bits 10 15 --seeds 100 101 102 103 104

Prints the share of 200 episodes in which the goal is reached, and the seconds of training, for each seed. Without hindsight,
with it, and with Stable-Baselines3's `HerReplayBuffer` (`pip install "sb_dqn[bench]"`), with the same settings and one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # so that this runs as a file, from anywhere

SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3, "buffer_size": 100_000, "learning_starts": 1_000, "batch_size": 128, "gamma": 0.98, "train_freq": 1,
    "target_update_interval": 500, "exploration_fraction": 0.5, "exploration_final_eps": 0.05, "device": "cpu",
    "policy_kwargs": {"net_arch": [256]},
}  # fmt: skip
GOALS = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
EPISODES = 200


def train(kind: str, bits: int, steps: int, seed: int) -> tuple[float, float]:
    """Returns the share of greedy episodes that reach the goal, and the seconds of training."""
    import torch

    from sb_dqn.envs.goal_tasks import BitFlip

    torch.set_num_threads(1)
    model: Any
    if kind == "sb3":
        from stable_baselines3 import DQN as TheirDQN
        from stable_baselines3 import HerReplayBuffer

        model = TheirDQN(
            "MultiInputPolicy", BitFlip(bits), replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=GOALS, seed=seed, **SETTINGS
        )  # fmt: skip
    else:
        from sb_dqn import DQN

        hindsight = GOALS if kind == "hindsight" else False
        model = DQN("MultiInputPolicy", BitFlip(bits), hindsight=hindsight, seed=seed, **SETTINGS)
    start = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - start
    env, reached = BitFlip(bits), 0
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=episode)
        ended = truncated = False
        while not (ended or truncated):
            obs, _, ended, truncated, _ = env.step(int(model.predict(obs, deterministic=True)[0]))
        reached += ended
    return reached / EPISODES, seconds


def main() -> None:
    """Prints a line for each run, and the means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[10])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=30_000, help="env steps of each run")
    parser.add_argument("--kinds", nargs="+", default=["plain", "hindsight", "sb3"])
    options = parser.parse_args()
    for bits in options.bits:
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in options.kinds}
        for seed in options.seeds:
            for kind in options.kinds:
                found[kind].append(train(kind, bits, options.steps, seed))
                reached, seconds = found[kind][-1]
                print(f"{bits} bits, {kind}, seed {seed}: reached {reached:.3f} in {seconds:.0f} s", flush=True)
        for kind, runs in found.items():
            reached_all, seconds_all = np.array(runs).T
            print(
                f"{bits} bits, {kind}: reached {reached_all.mean():.3f} +- {reached_all.std():.3f}, {np.median(seconds_all):.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
