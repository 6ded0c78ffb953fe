"""This library under Stable-Baselines3's names: `stable_baselines3` and `sb3_contrib` become `sb_dqn.sb3` in the imports of a program.

DQN, QRDQN, PPO, A2C, SAC, RecurrentPPO and MaskablePPO are the algorithms of this library with their signatures and
conventions. Everything else (vector environments, wrappers, callbacks, evaluation, noise, algorithms that this library does
not have) is imported from Stable-Baselines3 and its contrib package, by the same module paths.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sb_dqn.sb3.modules import install, submodule, their_module

if TYPE_CHECKING:
    from sb_dqn.sb3.algorithms import A2C as A2C
    from sb_dqn.sb3.algorithms import DQN as DQN
    from sb_dqn.sb3.algorithms import PPO as PPO
    from sb_dqn.sb3.algorithms import QRDQN as QRDQN
    from sb_dqn.sb3.algorithms import SAC as SAC
    from sb_dqn.sb3.algorithms import MaskablePPO as MaskablePPO
    from sb_dqn.sb3.algorithms import RecurrentPPO as RecurrentPPO
    from sb_dqn.sb3.workers import SubprocVecEnv as SubprocVecEnv

ALGORITHMS = ("A2C", "DQN", "PPO", "QRDQN", "SAC", "MaskablePPO", "RecurrentPPO")
"""Names of algorithms that are classes of this library."""

REPLACED = {**dict.fromkeys(ALGORITHMS, "algorithms"), "SubprocVecEnv": "workers"}
"""Name of each class that takes the place of its namesake to the module of this package that has it."""

__all__ = [*ALGORITHMS, "ARS", "DDPG", "TD3", "TQC", "TRPO", "CrossQ", "HerReplayBuffer", "get_system_info"]  # noqa: PLE0604

their_module("stable_baselines3")  # raises here if it is not installed
import_module("ale_py")  # registers its ids
install()


def __getattr__(name: str) -> Any:
    if name in REPLACED:
        return getattr(import_module(f"sb_dqn.sb3.{REPLACED[name]}"), name)
    for package in ("stable_baselines3", "sb3_contrib"):
        found = getattr(their_module(package), name, None)
        if found is not None and not isinstance(found, ModuleType):
            return found
    return submodule("sb_dqn.sb3", name)


def __dir__() -> list[str]:
    return sorted(__all__)
