"""Makes the golden files: models as this version writes them, which every later version must read.

Usage: python tests/golden/make.py NAME   (never over a file that is there: a golden file is not made anew)
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that this runs as a file, from anywhere

from sb_dqn.algorithms import A2C, DQN, PPO, PQN, CategoricalDQN
from sb_dqn.envs.make import make_vec_env
from sb_dqn.version import __version__
from tests.tiny import quick

FOLDER = Path(__file__).parent
OBS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
SWITCHES: dict[str, Any] = {"dueling": True, "noisy": True, "prioritized_replay": {"alpha": 0.5}, "n_steps": 3}


class Bits(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes two bits, and pushes to the right where they are equal."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = spaces.MultiBinary(2)

    def action(self, action: Any) -> int:
        return int(action[0] == action[1])


KINDS: dict[str, tuple[Any, bool, dict[str, Any]]] = {
    "dqn": (DQN, False, {"learning_rate": "linear 0.001"}),
    "c51_switches_full": (CategoricalDQN, True, {**SWITCHES, "n_atoms": 5, "buffer_size": 60}),
    "pqn_full": (PQN, True, {"n_steps": 8}),
    "a2c_full": (A2C, True, {}),
    "ppo_bits": (PPO, False, {"n_steps": 8}),
}
"""Class, whether it is a full checkpoint (taken at 60 of 80 steps), arguments."""


def make_env(name: str) -> Any:
    """Two lanes of CartPole, with bits for actions where the name says so."""
    return make_vec_env("CartPole-v1", 2, wrapper_class=Bits if "bits" in name else None)


def make(name: str) -> None:
    path = FOLDER / f"{name}-{__version__}.zip"
    if path.exists():
        raise SystemExit(f"{path} is there already; a golden file is never made anew")
    cls, full, arguments = KINDS[name]
    model = quick(make_env(name), algorithm=cls, **arguments)
    model.learn(80, callback=partial(before, 60 if full else 80))
    model.save(path, full=full)
    seen = {"actions": model.predict(OBS, deterministic=True)[0].tolist(), "timesteps": model.num_timesteps}
    path.with_suffix(".json").write_text(
        json.dumps({"class": cls.__name__, "updates": model._n_updates, **seen}) + "\n"
    )


def before(step: int, locals_: Any, globals_: Any) -> bool:
    return bool(locals_["self"].num_timesteps < step)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        make(wanted)
