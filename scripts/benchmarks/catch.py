"""Catch in pixels: a small image task that a convolutional net solves in half a minute."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

CELLS, PIXELS, BALLS = 7, 6, 10
Image = npt.NDArray[np.uint8]


class Catch(gymnasium.Env[Image, np.int64]):
    """A ball falls through 7 x 7 cells of 6 x 6 pixels; the paddle of one cell moves left, stays, or moves right.

    +1 for a ball that is caught, -1 for one that is missed; an episode is ten balls of six steps, so a perfect player
    scores 10 and a random one -7.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (1, CELLS * PIXELS, CELLS * PIXELS), np.uint8)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Image, dict[str, Any]]:
        super().reset(seed=seed)
        self.dropped = 0
        self.paddle = CELLS // 2
        self._drop()
        return self._image(), {}

    def step(self, action: np.int64) -> tuple[Image, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), CELLS - 1)
        self.row += 1
        if self.row < CELLS - 1:
            return self._image(), 0.0, False, False, {}
        reward = 1.0 if self.paddle == self.column else -1.0
        ended = self.dropped == BALLS
        if not ended:
            self._drop()
        return self._image(), reward, ended, False, {}

    def _drop(self) -> None:
        self.dropped += 1
        self.row, self.column = 0, int(self.np_random.integers(CELLS))

    def _image(self) -> Image:
        cells = np.zeros((1, CELLS, CELLS), np.uint8)
        cells[0, self.row, self.column] = 255
        cells[0, CELLS - 1, self.paddle] = 255
        return cells.repeat(PIXELS, axis=1).repeat(PIXELS, axis=2)
