"""Checks of single environments, and explanations of errors where one breaks gymnasium's interface."""

from __future__ import annotations

from math import ldexp

from sb_dqn.errors import ConfigurationError
from sb_dqn.types import EnvLike

REQUIRED = ("unwrapped", "reset", "step", "observation_space", "action_space")


API = (
    "gymnasium's reset(*, seed=None, options=None) returns (observation, info), its step five values: observation, reward, "
    "terminated, truncated, info"
)
NO_RESULT = object()
"""Placeholder for the result of a call that raised."""
FIX = ". Fix the environment."
"""End of the message of an error in the environment's own code."""


def with_fix(message: str) -> str:
    """Returns the message of an error in the environment's own code, with the fix and a full stop."""
    return f"{message.rstrip('.')}{FIX}"


class EnvApiError(TypeError):
    """A result of an environment that breaks gymnasium's interface."""


def check_has_spaces(env: EnvLike, lane: int) -> None:
    """Raises on objects that are no environment or have no spaces.

    Raises:
        ConfigurationError: a required attribute is missing.
    """
    missing = [name for name in REQUIRED if getattr(env, name, None) is None]
    if missing:
        raise ConfigurationError(
            f"the environment in lane {lane} must be a gymnasium.Env, or a factory that returns one, got a {type(env).__name__} "
            f"without {', '.join(missing)}. Set observation_space and action_space in the constructor of the environment."
        )


def explain_reset_error(error: Exception, result: object) -> Exception:
    """Returns the error, or an explanation if `reset` has the interface of the old gym, for example."""
    if result is NO_RESULT:
        wrong_signature = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
        return TypeError(f"{error}; {API}") if wrong_signature else error
    if isinstance(error, EnvApiError) or (isinstance(result, (tuple, list)) and len(result) == 2):
        return error
    return EnvApiError(f"the result must be two values, got {type(result).__name__}. {API}")


def explain_step_error(error: Exception, result: object) -> Exception:
    """Returns the error, or an explanation if the latest result of `step` breaks gymnasium's interface."""
    if isinstance(error, ValueError) and isinstance(result, tuple) and len(result) == 4:
        return EnvApiError(f"the result must be five values, got 4. {API}")
    if isinstance(error, TypeError) and result is None:
        return EnvApiError(f"the result must be five values, got None. {API}")
    if not isinstance(error, TypeError) or not isinstance(result, tuple) or len(result) != 5:
        return error
    _, reward, terminated, truncated, _ = result
    try:
        ldexp(reward, 0)
    except TypeError:
        return EnvApiError(f"the reward must be a number, got {reward!r}")
    try:
        _ = terminated | truncated
    except TypeError:
        return EnvApiError(f"terminated and truncated must be True or False, got {terminated!r} and {truncated!r}")
    return error
