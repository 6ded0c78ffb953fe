"""Faster execution of small networks: traced, compiled and NumPy versions of a function."""

from sb_dqn.accelerate.backends import Function, accelerate, keep_freed_memory, limit_threads, numpy_version
from sb_dqn.accelerate.modes import (
    MatmulConvolution,
    Mode,
    acting_mode,
    are_small,
    choose_mode,
    forced_mode,
    mode_after,
)

__all__ = [
    "Function",
    "MatmulConvolution",
    "Mode",
    "accelerate",
    "acting_mode",
    "are_small",
    "choose_mode",
    "forced_mode",
    "keep_freed_memory",
    "limit_threads",
    "mode_after",
    "numpy_version",
]
