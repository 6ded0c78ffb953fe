"""Faster execution of small networks: traced, compiled and NumPy versions of a function."""

from sb_dqn.accelerate.backends import (
    Function,
    MatmulConvolution,
    Mode,
    accelerate,
    are_small,
    choose_mode,
    keep_freed_memory,
    limit_threads,
    replay_with_numpy,
)

__all__ = [
    "Function",
    "MatmulConvolution",
    "Mode",
    "accelerate",
    "are_small",
    "choose_mode",
    "keep_freed_memory",
    "limit_threads",
    "replay_with_numpy",
]
