"""Errors of Q on a chain of six states with known optimum, for distributional algorithms; prints a Markdown table."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.nn.heads.quantile import CosineEmbedding

STATES, GAMMA = 6, 0.9
OPTIMUM = np.array([[GAMMA ** (STATES - max(s - 1, 0)), GAMMA ** (STATES - 1 - s)] for s in range(STATES)])
"""`[S, A]` optimal Q: one step left and then right to the end, or right to the end."""
DRAWN = ", bias drawn"
"""Ends the name of an algorithm whose embedding begins with the random bias of `nn.Linear` instead of 1."""
ROWS = ("FQF", f"FQF{DRAWN}", "IQN", f"IQN{DRAWN}", "QRDQN", "C51")


class Chain(gymnasium.Env[Any, Any]):
    """Action 1 goes right, action 0 left. Going right from the last state ends the episode with reward 1; all else is 0.

    Episodes start in any state.
    """

    observation_space = spaces.Discrete(STATES)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(STATES))
        return self.state, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if int(action) == 1 and self.state == STATES - 1:
            return self.state, 1.0, True, False, {}
        self.state = self.state + 1 if int(action) == 1 else max(self.state - 1, 0)
        return self.state, 0.0, False, False, {}


def train(row: str, learning_rate: float, net_arch: Sequence[int], seed: int, steps: int, device: str = "cpu") -> Any:
    """Returns a model trained on uniformly random actions; a row of the table names the algorithm."""
    name = {"C51": "CategoricalDQN"}.get(row, row.removesuffix(DRAWN))
    support = {"v_min": 0.0, "v_max": 1.5} if row == "C51" else {}
    algorithm: Any = ALGORITHMS[name]
    model: Any = algorithm(
        "MlpPolicy", Chain(), learning_rate=learning_rate, gamma=GAMMA, buffer_size=20_000, target_update_interval=250,
        exploration_initial_eps=1.0, exploration_final_eps=1.0, policy_kwargs={"net_arch": list(net_arch)}, seed=seed,
        device=device, **support,
    )  # fmt: skip
    if row.endswith(DRAWN):
        draw_bias(model, seed)
    return model.learn(steps)


def draw_bias(model: Any, seed: int) -> None:
    """Replaces the bias of the embedding by that of a fresh `nn.Linear`, in the online and the target net."""
    nets = (model.policy.q_net, model.policy.q_net_target)
    layers = [layer.linear for net in nets for layer in net.modules() if isinstance(layer, CosineEmbedding)]
    bound = layers[0].in_features ** -0.5
    drawn = torch.empty_like(layers[0].bias).uniform_(-bound, bound, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for layer in layers:
            layer.bias.copy_(drawn)


def error(model: Any) -> float:
    """Returns the largest absolute error of Q over all states and actions."""
    with torch.no_grad():
        q = model.policy.q_net({"obs": torch.arange(STATES)}).q
    return float(np.abs(q.numpy() - OPTIMUM).max())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithms", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 0")
    parser.add_argument("--steps", type=int, default=4_000, help="env steps of each run; one update per four")
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64], help="of the hidden layers")
    parser.add_argument("--layers", type=int, default=1, help="hidden layers")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[5e-4, 2e-3, 8e-3])
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    columns = [(width, rate) for width in options.widths for rate in options.learning_rates]
    print(f"Largest error of Q, mean (worst) of {options.seeds} seeds after {options.steps} steps.\n")
    print("| | " + " | ".join(f"{[width] * options.layers}, {rate:g}" for width, rate in columns) + " |")
    print("|---" * (len(columns) + 1) + "|", flush=True)
    for row in options.algorithms:
        cells, began = [], time.perf_counter()
        for width, rate in columns:
            errors = [
                error(train(row, rate, [width] * options.layers, seed, options.steps, options.device))
                for seed in range(options.seeds)
            ]
            cells.append(f"{statistics.fmean(errors):.3f} ({max(errors):.3f})")
        print(f"| {row} | " + " | ".join(cells) + " |", flush=True)
        print(f"{row}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
