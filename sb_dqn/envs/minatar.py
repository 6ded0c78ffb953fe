"""MinAtar games (Young and Tian 2019, arXiv:1903.03176), by the ids of the package `minatar`.

`MinAtar/Breakout-v1` has the actions that have an effect in the game, `-v0` all six. Observations are 10 x 10 cells with a
boolean channel per kind of object. An action is repeated with probability 0.1; three of the games get harder with time. Of
the five only Freeway has a time limit, of 2,501 steps; the package reports it as a termination, not as a truncation.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from sb_dqn.errors import import_extra
from sb_dqn.types import Env, Kwargs, ResetResult

NAMESPACE = "MinAtar/"
RENDER_FPS = 15
"""Steps per second when rendered."""
CELL_PIXELS = 16
"""Side of a rendered cell."""
_SEEDS = 2**32
"""Number of seeds of its generator, NumPy's legacy RandomState."""


def register_minatar() -> None:
    """Registers the games with gymnasium; the package does not do so when installed."""
    games: Any = import_extra("minatar.gym", "minatar", "for its games")
    if not any(known.startswith(NAMESPACE) for known in gymnasium.registry):
        games.register_envs()


def is_minatar(spec: Any) -> bool:
    """Returns True for a gymnasium spec of the package."""
    return str(spec.entry_point).startswith("minatar.")


class MinAtarGame(gymnasium.Wrapper[Any, Any, Any, Any]):
    """MinAtar game with fully seeded resets and uint8 images.

    The package keeps the last action, which a sticky step repeats, across episodes and seeded resets. Here every episode
    starts with the no-op (0) as last action, like the first. Seeds may have the full range of gymnasium's.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        env.unwrapped.metadata = {**env.metadata, "render_fps": RENDER_FPS}

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> ResetResult:
        inner: Any = self.env.unwrapped
        inner.game.last_action = 0
        return self.env.reset(seed=None if seed is None else seed % _SEEDS, options=options)

    def render(self) -> Any:
        """Returns `[160, 160, 3]` uint8 in mode "rgb_array", where the package returns 10 x 10 pixels as fractions."""
        image: Any = self.env.unwrapped.render()  # without gymnasium's checker, which warns about the fractions
        if self.render_mode != "rgb_array":
            return image
        cells = np.rint(np.asarray(image) * 255).astype(np.uint8)
        return cells.repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)
