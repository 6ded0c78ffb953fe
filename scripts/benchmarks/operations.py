"""Tensor operations of one update and of one act, for one model of each kind.

    python scripts/benchmarks/operations.py
    python scripts/benchmarks/operations.py BTR "DQN 64-64"

On a GPU each operation launches a kernel, and the launches of small kernels take longer than the kernels. The figures are
numbers of nodes in the graphs that `learn` records, without those that only change the view of a tensor. The optimizer
step, which is one operation or two, is not part of them, and neither are caches that are updated after parameters changed. The
models are made on the CPU: the graphs are the same on each device.
"""

from __future__ import annotations

import argparse
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import gymnasium as gym
import numpy as np
from torch._ops import OpOverload
from torch.fx import Graph, Node

SHAPE = (84, 84, 4)
NO_KERNEL = {"_reshape_alias", "_unsafe_view", "alias", "detach", "empty", "empty_like", "lift_fresh", "new_empty"}
"""Operations without a kernel that torch does not list as views."""


class Noise(gym.Env[Any, Any]):
    """Random observations; episodes end after 20 steps.

    Args:
        observation: space of the observations.
        action: space of the actions.
    """

    def __init__(self, observation: gym.Space[Any], action: gym.Space[Any]) -> None:
        self.observation_space = observation
        self.action_space = action
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Returns the first observation."""
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Returns the next observation."""
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 20, False, {}


def vectors(action: gym.Space[Any]) -> Noise:
    """Returns an environment of vectors."""
    return Noise(gym.spaces.Box(-1.0, 1.0, (4,), np.float32), action)


def pixels() -> Noise:
    """Returns an environment of images, the size of four stacked Atari frames."""
    return Noise(gym.spaces.Box(0, 255, SHAPE, np.uint8), gym.spaces.Discrete(6))


def chooser() -> Noise:
    """Returns an environment of vectors with two actions."""
    return vectors(gym.spaces.Discrete(2))


def mover() -> Noise:
    """Returns an environment of vectors whose actions are vectors."""
    return vectors(gym.spaces.Box(-1.0, 1.0, (2,), np.float32))


@dataclass(frozen=True)
class Kind:
    """A model to measure.

    Args:
        algorithm: name of its class.
        policy: alias of its policy.
        env: makes its environment.
        settings: further arguments.
    """

    algorithm: str
    policy: str
    env: Callable[[], Noise]
    settings: Mapping[str, Any] = field(default_factory=dict)


SMALL = {"batch_size": 8, "buffer_size": 200, "learning_starts": 30, "train_freq": 4, "target_update_interval": 1_000}
"""Settings of value methods; the number of operations does not depend on them."""
KINDS: Mapping[str, Kind] = {
    "DQN 64-64": Kind("DQN", "MlpPolicy", chooser, SMALL),
    "DQN PER, n-step 3": Kind("DQN", "MlpPolicy", chooser, {**SMALL, "prioritized_replay": True, "n_steps": 3}),
    "DQN Nature": Kind("DQN", "CnnPolicy", pixels, SMALL),
    "Rainbow 64-64": Kind("Rainbow", "MlpPolicy", chooser, SMALL),
    "Rainbow pixels": Kind("Rainbow", "CnnPolicy", pixels, SMALL),
    "PPO Nature": Kind("PPO", "CnnPolicy", pixels, {"n_steps": 16, "batch_size": 8, "n_epochs": 1}),
    "SAC 256-256": Kind("SAC", "MlpPolicy", mover, {"batch_size": 8, "buffer_size": 200, "learning_starts": 30}),
    "BTR": Kind("BTR", "CnnPolicy", pixels, {**SMALL, "exploration": {"schedule": 0.1}}),  # its own begins at 1
}


def launches(node: Node) -> bool:
    """Returns True if a node of a traced graph launches a kernel."""
    if node.op != "call_function" or node.target is operator.getitem:
        return False
    target = node.target
    if not isinstance(target, OpOverload):
        return True
    return not target.is_view and target.overloadpacket.__name__ not in NO_KERNEL


def count(graph: Graph) -> int:
    """Returns the number of nodes of a graph that launch a kernel."""
    return sum(launches(node) for node in graph.nodes)


@contextmanager
def traces() -> Iterator[dict[str, Graph]]:
    """Yields a dict that fills with the graphs that `learn` records in the block: "update" and "act".

    Every network is traced from its first update on, and runs without its trace.
    """
    from sb_dqn.accelerate import backends, forced_mode

    found: dict[str, Graph] = {}

    def recorder(name: str) -> Callable[..., Any]:
        def accelerate(
            function: Callable[..., Any], example: tuple[Any, ...], mode: str, **_: Any
        ) -> Callable[..., Any]:
            found[name] = backends._trace(function, example).graph
            return function

        return accelerate

    with (
        forced_mode("traced"),
        patch("sb_dqn.learning.update_runner.accelerate", recorder("update")),
        patch("sb_dqn.acting.network_runner.accelerate", recorder("act")),
    ):
        yield found


def operations(kind: Kind) -> dict[str, int]:
    """Returns the number of operations of one update and of one act of a kind of model."""
    import sb_dqn

    make = getattr(sb_dqn, kind.algorithm)
    with traces() as found, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make(kind.policy, kind.env(), seed=0, device="cpu", **kind.settings).learn(40)
    return {name: count(found[name]) for name in ("update", "act")}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"of {', '.join(KINDS)}; default: all")
    chosen = parser.parse_args().kinds or list(KINDS)
    if unknown := set(chosen) - set(KINDS):
        parser.error(f"kind must be one of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}. Give one of them.")
    print(f"{'':20}{'update':>8}{'act':>8}")
    for name in chosen:
        numbers = operations(KINDS[name])
        print(f"{name:20}{numbers['update']:8,}{numbers['act']:8,}", flush=True)


if __name__ == "__main__":
    main()
