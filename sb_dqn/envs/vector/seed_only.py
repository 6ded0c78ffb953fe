"""Environments whose `reset` accepts a seed but no options."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium

from sb_dqn.types import Env, Kwargs, ResetResult


class SeedOnly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that passes `options` to `reset` only if they are not None; gymnasium's own wrappers always pass them."""

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> ResetResult:
        return self.env.reset(seed=seed, **options_argument(options))


def options_argument(options: Kwargs | None) -> Kwargs:
    """Returns the keyword arguments that pass `options` to `reset`; empty for None."""
    return {} if options is None else {"options": options}


def with_reset_options(env: Env) -> Env:
    """Returns the environment, wrapped in `SeedOnly` if its `reset` does not accept `options`."""
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):  # not written in Python
        return env
    accepts = any(name == "options" or one.kind is one.VAR_KEYWORD for name, one in parameters.items())
    return env if accepts else SeedOnly(env)
