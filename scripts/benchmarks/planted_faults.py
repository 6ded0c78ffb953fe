"""Learning curves of DQN on CartPole with planted faults, for the page "My agent does not learn".

Usage: python scripts/benchmarks/planted_faults.py [--steps N] [--picture FILE]

Prints what `model.diagnose()` names in each run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import TransformObservation, TransformReward

from sb_dqn.algorithms import DQN
from sb_dqn.callbacks import BaseCallback
from sb_dqn.plotting import new_figure

CARTPOLE = "CartPole-v1"
SANE: dict[str, Any] = {
    "learning_rate": 1e-3,
    "buffer_size": 50_000,
    "learning_starts": 100,
    "target_update_interval": 100,
    "train_freq": 2,
    "exploration_fraction": 0.2,
    "policy_kwargs": {"net_arch": [32, 32]},
    "seed": 0,
    "device": "cpu",
}
"""Settings with which it learns."""


class OneLegalAction(gymnasium.Wrapper):
    """Its masks allow the first action only."""

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        return obs, {**info, "action_mask": np.array([True, False])}

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "action_mask": np.array([True, False])}


def scaled_observations() -> Any:
    space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    return TransformObservation(gymnasium.make(CARTPOLE), lambda obs: obs * np.float32(1e5), space)


def scaled_rewards() -> Any:
    return TransformReward(gymnasium.make(CARTPOLE), lambda reward: 1e4 * float(reward))


def kill_units(model: Any) -> None:
    with torch.no_grad():
        model.policy.q_net.torso.linears[0].bias.fill_(-100.0)


def freeze(model: Any) -> None:
    model.policy.q_net.torso.requires_grad_(False)


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rate too high": ("learning_rate", {"learning_rate": 0.5}),
    "gamma too small": ("horizon", {"gamma": 0.5}),
    "target never copied": ("target_share", {"target_update_interval": 10**6}),
    "replay too small": ("replay_rows", {"buffer_size": 100}),
    "dead ReLUs": ("dormant_units", {"plant": kill_units}),
    "exploration off": ("exploration", {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}),
    "rewards x 10,000": ("reward_scale", {"env": scaled_rewards}),
    "frozen layer": ("frozen_layers", {"plant": freeze}),
    "observations x 100,000": ("observation_scale", {"env": scaled_observations}),
    "wrong action mask": (
        "legal_actions",
        {"env": lambda: OneLegalAction(gymnasium.make(CARTPOLE)), "action_mask": "info"},
    ),
}
"""By name: the measure that names the fault, and what is changed."""


def make(env: Any = CARTPOLE, plant: Callable[[Any], None] | None = None, **settings: Any) -> Any:
    """Returns a model with a fault: of its environment or settings, or planted into it."""
    model = DQN("MlpPolicy", env() if callable(env) else env, **{**SANE, **settings})
    if plant is not None:
        plant(model)
    return model


class Lengths(BaseCallback):
    """Records when each episode ended, and its length, which is the return without planted scales."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, int]] = []

    def _on_step(self) -> bool:
        model: Any = self.model
        self.ends += [(self.num_timesteps, episode.length) for episode in model.statistics.finished]
        return True


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    runs: dict[str, tuple[str, dict[str, Any]]] = {"no fault": ("", {}), **FAULTS}
    curves = {}
    for name, (measure, changes) in runs.items():
        model, lengths = make(**changes), Lengths()
        model.learn(options.steps, callback=lengths)
        findings = [finding.name for finding in model.diagnose().findings]
        curves[name] = np.array(lengths.ends, np.float64).reshape(-1, 2).T
        last = np.mean(curves[name][1][-20:])
        print(
            f"{name:24} last episodes {last:6.1f} steps; planted {measure or '-'}; named {', '.join(findings) or '-'}"
        )
    if options.picture is not None:
        draw(options.picture, curves)


def draw(picture: Path, curves: dict[str, Any]) -> None:
    """Draws the mean of 10 episodes of each run, in one panel each, over that without a fault."""
    figure = new_figure(12, 5)
    panels = figure.subplots(2, 5, sharex=True, sharey=True).flat
    (_, healthy), *sick = curves.items()
    for axes, (name, (steps, length)) in zip(panels, sick, strict=True):
        for at, values, style in ((*healthy, {"color": "0.7"}), (steps, length, {"color": "C3"})):
            means = np.convolve(values, np.ones(10) / 10, "valid")
            axes.plot(at[9:] / 1_000, means, lw=1.2, **style)
        axes.set_title(name, fontsize=9)
        axes.grid(alpha=0.3)
    figure.supxlabel("thousand env steps", fontsize=9)
    figure.supylabel("length of an episode (grey: without a fault)", fontsize=9)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main()
