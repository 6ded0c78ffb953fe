"""Training where most actions are illegal; counts the illegal actions taken, which must be none."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere


class MostlyIllegal(gymnasium.Env[Any, Any]):
    """Three branches; in each state every choice is legal with probability 0.3, at least one always; small choices pay."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.branches = [2, 5, 3]
        self.action_space = gymnasium.spaces.MultiDiscrete(self.branches)
        self.t = 0

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        self.legal = [self.np_random.random(count) < 0.3 for count in self.branches]
        for mask in self.legal:
            mask[self.np_random.integers(len(mask))] = True
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), {"action_mask": np.concatenate(self.legal)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._answer()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not all(mask[choice] for mask, choice in zip(self.legal, action, strict=True)):
            raise ValueError(f"{action} is illegal where {self.legal} is legal")
        self.t += 1
        observation, info = self._answer()
        return observation, -float(np.sum(action)), self.t == 20, False, info


def main(arguments: Sequence[str] | None = None) -> None:
    from sb_dqn import A2C, PPO

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--timesteps", type=int, default=100_000)
    options = parser.parse_args(arguments)
    kinds: tuple[tuple[Any, dict[str, Any]], ...] = ((PPO, {"n_steps": 128}), (A2C, {}))
    for kind, settings in kinds:
        model: Any = kind("MlpPolicy", [MostlyIllegal] * 8, action_mask="info", seed=0, device="cpu", **settings)
        model.learn(options.timesteps)
        print(
            f"{kind.__name__}: {model.num_timesteps:,} steps, no illegal action; return {model.statistics.mean_return:.1f}"
        )


if __name__ == "__main__":
    main()
