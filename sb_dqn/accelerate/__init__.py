"""One callable, three ways to run it: eagerly, from a record, compiled."""

from sb_dqn.accelerate.backends import (
    AsProducts,
    Function,
    Mode,
    accelerate,
    are_small,
    by_arrays,
    choose_mode,
    few_threads,
    keep_freed_memory,
)

__all__ = [
    "AsProducts", "Function", "Mode", "accelerate", "are_small", "by_arrays", "choose_mode", "few_threads", "keep_freed_memory",
]  # fmt: skip
