"""Several learners compared with one: env steps per second for the same samples per update, and the difference of the parameters."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.benchmarks.measurements import Benchmark, Measurement
from scripts.benchmarks.table import Comparison

ATARI = "PongNoFrameskip-v4"
LANES, BATCH, UPDATES = 2, 32, 50
"""Over all learners; updates for the difference of the parameters."""


def train(*, learners: int, warm_up: int, steps: int, threads: int) -> dict[str, float]:
    """Returns the env steps per second of all learners together; lanes and batch are divided among them."""
    found = run_learners(learners, {"task": "train", "warm_up": warm_up, "steps": steps, "threads": threads})
    return {"": float(found[0])}


def difference(*, learners: int) -> dict[str, float]:
    """Returns the largest difference between the parameters of one learner and those of several on the same samples."""
    import numpy as np

    (whole,) = run_learners(1, {"task": "parameters"})
    parts = run_learners(learners, {"task": "parameters"})
    return {"": float(max(np.abs(np.subtract(whole, part)).max() for part in parts))}


def run_learners(count: int, task: Mapping[str, Any]) -> list[Any]:
    """Returns what `count` processes of this file print, by rank."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = Path(__file__).resolve().parents[2]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "scripts.benchmarks.learners", json.dumps(dict(task))],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=root,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise RuntimeError(f"a learner failed: {[process.returncode for process in started]}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def _train(warm_up: int, steps: int, threads: int) -> float:
    import time

    import torch

    from sb_dqn import DQN, make_atari_env

    torch.set_num_threads(threads)
    learners = int(os.environ["WORLD_SIZE"])
    model = DQN(
        "CnnPolicy", make_atari_env(ATARI, LANES // learners, protocol="classic"), batch_size=BATCH // learners,
        buffer_size=10_000, learning_starts=warm_up // 2, train_freq=4, seed=0, device="cpu",
    )  # fmt: skip
    model.learn(warm_up)
    before, start = model.num_timesteps, time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    rate: float = (model.num_timesteps - before) / (time.perf_counter() - start)
    return rate


def _parameters() -> list[float]:
    """Makes updates on this learner's share of the same batches."""
    import torch

    from sb_dqn import DQN
    from sb_dqn.types import Batch

    learners, rng = int(os.environ["WORLD_SIZE"]), torch.Generator().manual_seed(0)
    size = BATCH // learners
    model = DQN("MlpPolicy", "CartPole-v1", batch_size=size, seed=0, device="cpu", max_grad_norm=1.0)
    model.learner.set_learning_rate(1e-3)
    rows = slice(model.rank * size, (model.rank + 1) * size)
    with model.learners.connected({}, calls_back=False):
        for _ in range(UPDATES):
            obs, next_obs = torch.randn(2, BATCH, 4, generator=rng)
            return_ = 5 * torch.randn(BATCH, generator=rng)
            action = torch.randint(2, (BATCH,), generator=rng)
            batch = Batch(
                {"obs": obs[rows]}, action[rows], return_[rows], torch.full((size,), 0.9), {"obs": next_obs[rows]},
                torch.ones(size), torch.zeros((2, size), dtype=torch.int64),
            )  # fmt: skip
            gradient, _, update = model.learner.gradient(batch)
            model.learner.apply(model.learner.average(gradient, update)[0])
    parameters: list[float] = model.learner.flat.tolist()
    return parameters


def learner_benchmark(steps: tuple[int, int]) -> Benchmark:
    """Two learners with a lane and a batch of 16 each, and one with both."""
    warm_up, measured = steps
    common = {"warm_up": warm_up, "steps": measured}
    measurements = (
        Measurement("2 learners x 16", "learners.train", {**common, "learners": 2, "threads": 1}),
        Measurement("1 learner x 32, 1 thread", "learners.train", {**common, "learners": 1, "threads": 1}),
        Measurement("1 learner x 32, 2 threads", "learners.train", {**common, "learners": 1, "threads": 2}),
        Measurement("difference of parameters", "learners.difference", {"learners": 2}),
    )
    return Benchmark(
        "learners",
        "env steps/s, Pong on CPUs",
        measurements,
        (
            Comparison("times one learner with a thread", (measurements[0].name,), (measurements[1].name,)),
            Comparison("times one learner with two threads", (measurements[0].name,), (measurements[2].name,)),
            Comparison("check: difference of parameters", (measurements[3].name,), how="value", at_most=1e-6),
        ),
    )


if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    run: Any = {"train": _train, "parameters": _parameters}[chosen.pop("task")]
    print(json.dumps(run(**chosen)), flush=True)
