"""Scores of float32 and bfloat16 with the same seeds on two tasks; prints a Markdown table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from scripts.benchmarks.catch import Catch
from scripts.benchmarks.suite import ZOO_CARTPOLE


@dataclass(frozen=True)
class Task:
    """What is learned, and with which settings."""

    name: str
    make: Callable[[], Any]
    policy: str
    steps: int
    settings: Mapping[str, Any]


TASKS = (
    Task("CartPole-v1 (Zoo)", lambda: "CartPole-v1", "MlpPolicy", 50_000, ZOO_CARTPOLE),
    Task(
        "Catch, 42 x 42 pixels",
        Catch,
        "CnnPolicy",
        8_000,
        {
            "learning_rate": 5e-4,
            "buffer_size": 20_000,
            "learning_starts": 1_000,
            "gamma": 0.9,
            "n_steps": 3,
            "train_freq": 2,
            "target_update_interval": 250,
            "exploration_fraction": 0.3,
            "policy_kwargs": {
                # the first kernel covers one cell: a net that finishes soon
                "features_extractor_kwargs": {
                    "channels": (16, 32),
                    "kernels": (6, 3),
                    "strides": (6, 1),
                    "features_dim": 128,
                }
            },
        },
    ),
)
PRECISIONS = ("fp32", "bf16")


def run(task: Task, precision: str, seed: int, episodes: int, device: str = "cpu") -> tuple[float, float]:
    """Mean return of greedy episodes after the training, and seconds of training."""
    from sb_dqn import DQN, evaluate_policy

    model = DQN(task.policy, task.make(), seed=seed, device=device, precision=precision, **task.settings)
    start = time.perf_counter()
    model.learn(task.steps)
    seconds = time.perf_counter() - start
    mean, _ = evaluate_policy(model, task.make(), episodes)
    return float(mean), seconds  # type: ignore[arg-type]  # a list only if it is asked for


def row(task: Task, precision: str, results: Sequence[tuple[float, float]]) -> str:
    """One line of the table: over the seeds, mean and sd of the mean return of each."""
    means = [mean for mean, _ in results]
    middle, spread = fmean(means), pstdev(means)
    seconds = fmean(seconds for _, seconds in results)
    each = ", ".join(f"{mean:.1f}" for mean in means)
    return f"| {task.name} | {precision} | {middle:.1f} ± {spread:.1f} | {each} | {seconds:.0f} s |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--episodes", type=int, default=20, help="greedy episodes for each seed")
    parser.add_argument("--task", choices=[task.name for task in TASKS], help="one of them; default: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="env steps, instead of each task's own")
    options = parser.parse_args(arguments)
    lines = [
        f"| task | precision | mean ± sd over {len(options.seeds)} seeds | each seed | training |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        if options.task not in (None, task.name):
            continue
        sized = replace(task, steps=options.steps or task.steps)
        results: dict[str, list[tuple[float, float]]] = {precision: [] for precision in PRECISIONS}
        for seed in options.seeds:  # both precisions in turn, so that a busy minute falls on both
            for precision in PRECISIONS:
                results[precision].append(run(sized, precision, seed, options.episodes, options.device))
                mean, seconds = results[precision][-1]
                print(f"{task.name}, {precision}, seed {seed}: {mean:.1f} ({seconds:.0f} s)", file=sys.stderr)
        lines += [row(sized, precision, results[precision]) for precision in PRECISIONS]
    print(f"Mean return of {options.episodes} greedy episodes after the training.\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
