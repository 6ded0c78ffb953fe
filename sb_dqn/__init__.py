"""Value-based deep reinforcement learning with Stable-Baselines3's verbs.

Names are loaded when they are first asked for, so that `import sb_dqn` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sb_dqn.version import __version__

if TYPE_CHECKING:
    from sb_dqn.algorithms import (
        A2C,
        BTR,
        C51,
        DQN,
        FQF,
        IQN,
        PERDQN,
        PPO,
        PQN,
        QRDQN,
        R2D1,
        R2D2,
        REINFORCE,
        SAC,
        VPG,
        CategoricalDQN,
        DataEfficientRainbow,
        DoubleDQN,
        DuelingDQN,
        MunchausenDQN,
        NoisyDQN,
        NStepDQN,
        Rainbow,
    )  # fmt: skip
    from sb_dqn.envs import Monitor, make_atari_env, make_vec_env
    from sb_dqn.evaluation import evaluate_policy

_ALGORITHMS = (
    "A2C", "BTR", "C51", "DQN", "FQF", "IQN", "PERDQN", "PPO", "PQN", "QRDQN", "R2D1", "R2D2", "REINFORCE", "VPG", "CategoricalDQN",
    "DataEfficientRainbow", "DoubleDQN", "DuelingDQN", "MunchausenDQN", "NStepDQN", "NoisyDQN", "Rainbow", "SAC",
)  # fmt: skip
_HOMES = {
    **dict.fromkeys(_ALGORITHMS, "sb_dqn.algorithms"),
    "Monitor": "sb_dqn.envs",
    "make_atari_env": "sb_dqn.envs",
    "make_vec_env": "sb_dqn.envs",
    "evaluate_policy": "sb_dqn.evaluation",
}

__all__ = [
    "A2C",
    "BTR",
    "C51",
    "DQN",
    "FQF",
    "IQN",
    "PERDQN",
    "PPO",
    "PQN",
    "QRDQN",
    "R2D1",
    "R2D2",
    "REINFORCE",
    "SAC",
    "VPG",
    "CategoricalDQN",
    "DataEfficientRainbow",
    "DoubleDQN",
    "DuelingDQN",
    "Monitor",
    "MunchausenDQN",
    "NStepDQN",
    "NoisyDQN",
    "Rainbow",
    "__version__",
    "evaluate_policy",
    "make_atari_env",
    "make_vec_env",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sb_dqn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
