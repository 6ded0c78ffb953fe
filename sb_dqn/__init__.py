"""Value-based deep reinforcement learning with the interface of Stable-Baselines3.

Names are imported on first use, so that `import sb_dqn` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sb_dqn.algorithms.registry import MODULES
from sb_dqn.version import __version__

if TYPE_CHECKING:
    from sb_dqn.algorithms.registry import *  # noqa: F403
    from sb_dqn.diagnosis.env_check import check_env as check_env
    from sb_dqn.envs import Monitor as Monitor
    from sb_dqn.envs import make_atari_env as make_atari_env
    from sb_dqn.envs import make_vec_env as make_vec_env
    from sb_dqn.evaluation import evaluate_policy as evaluate_policy

_HOMES = {
    **MODULES,
    "Monitor": "sb_dqn.envs.monitor",
    "check_env": "sb_dqn.diagnosis.env_check",
    "evaluate_policy": "sb_dqn.evaluation",
    "make_atari_env": "sb_dqn.envs.atari",
    "make_vec_env": "sb_dqn.envs.make",
}

_MODULES = ("callbacks", "envs", "errors", "hub", "logger", "plotting", "policies", "presets", "schedules")
"""Modules that need no import of their own, as in `sb_dqn.presets.list()`."""

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"sb_dqn.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'sb_dqn' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES])
