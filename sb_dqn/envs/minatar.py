"""MinAtar (Young and Tian 2019, arXiv:1903.03176), by its own ids once the package `minatar` is installed.

`MinAtar/Breakout-v1` has the actions that matter in the game, `-v0` all six. Ten by ten cells, a boolean channel for each
kind of thing; an action is repeated with probability 0.1, and three of the games grow harder with time. Of the five
only Freeway has an end by time, after 2,501 steps; the package reports it as a termination, not as a truncation.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import gymnasium
import numpy as np

from sb_dqn.errors import ConfigurationError

NAMESPACE = "MinAtar/"
RATE, PIXELS = 15, 16
"""Steps a second when it is shown, and the side of a cell."""
_SEEDS = 2**32
"""Of its generator, numpy's old RandomState."""


def register_minatar(env_id: str) -> None:
    """Tell gymnasium of the games if `env_id` is meant to be one of them: it finds no ids of packages by itself.

    Raises:
        ConfigurationError: the package is missing.
    """
    if not env_id.startswith(NAMESPACE) or any(known.startswith(NAMESPACE) for known in gymnasium.registry):
        return
    try:
        games: Any = import_module("minatar.gym")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"environment {env_id!r} needs the package minatar ({error}): pip install 'sb_dqn[minatar]'"
        ) from error
    games.register_envs()


def is_minatar(spec: Any) -> bool:
    """Whether a gymnasium spec is one of the package's."""
    return str(spec.entry_point).startswith("minatar.")


class MinAtarGame(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A game whose `reset(seed=...)` fixes everything that follows, and whose pictures can be shown.

    The package keeps the last action, which a sticky step repeats, over the end of a game and over a seeded reset; here
    a game begins with none (0, the no-op), as the first does. Seeds may be as large as gymnasium's.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        env.unwrapped.metadata = {**env.metadata, "render_fps": RATE}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        inner: Any = self.env.unwrapped
        inner.game.last_action = 0
        return self.env.reset(seed=None if seed is None else seed % _SEEDS, options=options)

    def render(self) -> Any:
        """`[160, 160, 3]` uint8 in the mode "rgb_array", where the package gives ten by ten pixels as fractions."""
        picture: Any = self.env.unwrapped.render()  # past gymnasium's checker, which warns of the fractions
        if self.render_mode != "rgb_array":
            return picture
        whole = np.rint(np.asarray(picture) * 255).astype(np.uint8)
        return whole.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)
