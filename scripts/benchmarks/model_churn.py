"""Memory that models leave behind: many models in one process, made, trained and deleted, and many steps of one model.

    python scripts/benchmarks/model_churn.py
    python scripts/benchmarks/model_churn.py --models 20 --steps 300 --mode eager

Prints the growth of the resident memory in MiB. A sweep or a test suite makes many models in one process, and a model runs
for many steps: neither may use more and more memory.
"""

from __future__ import annotations

import argparse
import gc
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from scripts.benchmarks.components import resident_bytes

WARM_UP = 5
"""Models before the first measurement; imports and allocators have their final size after them."""
MIB = 2**20


def make_model(device: str = "cpu") -> Any:
    """Returns a small model with prioritized replay."""
    from sb_dqn import DQN

    return DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_starts=100,
        buffer_size=1_000,
        prioritized_replay=True,
        seed=0,
        device=device,
    )


def train(steps: int, device: str = "cpu") -> None:
    """Makes a model with prioritized replay, trains it, and deletes it."""
    model = make_model(device)
    model.learn(steps)
    del model
    gc.collect()


def growth_by_models(models: int, steps: int, device: str = "cpu") -> float:
    """Returns the growth in MiB by `models` models that each train for `steps` env steps and are deleted."""
    for _ in range(WARM_UP):
        train(steps, device)
    before = resident_bytes()
    for _ in range(models):
        train(steps, device)
    return (resident_bytes() - before) / MIB


def growth_by_steps(steps: int, device: str = "cpu") -> float:
    """Returns the growth in MiB by `steps` further env steps of a model that has trained for as many as a tenth."""
    model = make_model(device)
    model.learn(max(steps // 10, 300))
    gc.collect()
    before = resident_bytes()
    model.learn(steps, reset_num_timesteps=False)
    gc.collect()
    return (resident_bytes() - before) / MIB


def main() -> None:
    """Prints both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--steps", type=int, default=300, help="env steps of each model")
    parser.add_argument("--further", type=int, default=80_000, help="further env steps of one model; 0: none")
    parser.add_argument("--device", default="cpu", help="the figures are of host memory")
    parser.add_argument("--mode", choices=("traced", "eager"), default="traced", help="how updates run")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    from sb_dqn.accelerate import forced_mode

    with forced_mode(chosen.mode):
        print(
            f"{chosen.models} models: {growth_by_models(chosen.models, chosen.steps, chosen.device):+.1f} MiB",
            flush=True,
        )
        if chosen.further:
            print(
                f"{chosen.further:,} further steps: {growth_by_steps(chosen.further, chosen.device):+.1f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
