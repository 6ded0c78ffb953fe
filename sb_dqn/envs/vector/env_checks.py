"""What a single environment must have and answer, and what is said of one that does not."""

from __future__ import annotations

from math import ldexp
from typing import Any

from sb_dqn.errors import ConfigurationError

NEEDED = ("unwrapped", "reset", "step", "observation_space", "action_space")
NO_INFO = "info is None; allowed: a dict"


API = (
    "gymnasium's reset(*, seed=None, options=None) returns (observation, info), its step five values: observation, reward, "
    "terminated, truncated, info"
)
NOTHING = object()
"""Of an environment that has not answered."""


class EnvApiError(TypeError):
    """An environment answered something else than gymnasium's interface promises."""


def check_env(env: Any, lane: int) -> None:
    """Refuses what is no environment, or has no spaces.

    Raises:
        ConfigurationError: something that every environment has is missing.
    """
    lacking = [name for name in NEEDED if getattr(env, name, None) is None]
    if lacking:
        raise ConfigurationError(
            f"the environment in lane {lane} is a {type(env).__name__} without {', '.join(lacking)}; allowed: a "
            f"gymnasium.Env that has its observation_space and action_space once it is made, or a factory that returns one"
        )


def explained_reset(error: Exception, answer: Any) -> Exception:
    """The error itself, or what was wrong with a `reset`, of gym's old interface for example."""
    if answer is NOTHING:
        refused = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
        return TypeError(f"{error}; {API}") if refused else error
    if isinstance(error, EnvApiError) or (isinstance(answer, (tuple, list)) and len(answer) == 2):
        return error
    return EnvApiError(f"{type(answer).__name__} instead of two values; {API}")


def explained(error: Exception, answer: Any) -> Exception:
    """The error itself, or what was wrong with the newest answer of a `step`, if it was that."""
    if isinstance(error, ValueError) and isinstance(answer, tuple) and len(answer) == 4:
        return EnvApiError(f"4 values; {API}")
    if not isinstance(error, TypeError) or not isinstance(answer, tuple) or len(answer) != 5:
        return error
    _, reward, terminated, truncated, _ = answer
    try:
        ldexp(reward, 0)
    except TypeError:
        return EnvApiError(f"the reward is {reward!r}; allowed: a number")
    try:
        _ = terminated | truncated
    except TypeError:
        return EnvApiError(f"terminated is {terminated!r}, truncated is {truncated!r}; allowed: True or False")
    return error
