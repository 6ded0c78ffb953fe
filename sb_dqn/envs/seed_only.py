"""Environments whose `reset` takes a seed, but no options."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium

Env = gymnasium.Env[Any, Any]


class SeedOnly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Hands `options` to `reset` only where some are given; gymnasium's wrappers and vector environments always do."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, **options_given(options))


def options_given(options: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the keyword arguments that hand `options` to `reset`; none where there are no options."""
    return {} if options is None else {"options": options}


def taking_options(env: Env) -> Env:
    """Returns the environment, inside `SeedOnly` if its `reset` does not take `options`."""
    try:
        parameters = inspect.signature(env.reset).parameters
    except (TypeError, ValueError):  # it is not written in Python
        return env
    takes = any(name == "options" or one.kind is one.VAR_KEYWORD for name, one in parameters.items())
    return env if takes else SeedOnly(env)
