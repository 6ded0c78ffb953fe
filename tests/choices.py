"""A game for whole algorithms with any kind of observation, action and mask, which insists that actions are legal."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.envs.stream_options import StreamOptions

PLACE = spaces.Box(-1.0, 1.0, (3,), np.float32)
FRAME = spaces.Box(0, 255, (1, 10, 10), np.uint8)
BRANCHES = {"discrete": (4,), "multi discrete": (2, 4, 3)}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(4, start=3),
    "multi discrete": spaces.MultiDiscrete(np.array(BRANCHES["multi discrete"]), start=np.array([0, -1, 2])),
}
OBSERVATIONS: dict[str, spaces.Space[Any]] = {"vector": PLACE, "frames": FRAME}
STACK = 3
"""Frames that are stacked by us where the observation is one."""


class Choices(gymnasium.Env[Any, Any]):
    """Random observations and rewards; in each state about half of the choices are legal, in the last one none.

    Args:
        observation: "vector", "dict", or "frames", of which `STACK` are to be stacked.
        actions: "discrete" or "multi discrete".
        masks: tell what is legal, by info, or of a Dict by its key "legal"; else all is legal.
        length: steps of an episode.
    """

    def __init__(
        self, observation: str = "vector", actions: str = "discrete", masks: bool = False, length: int = 7
    ) -> None:
        self.kind, self.masks, self.length = observation, masks, length
        self.branches, self.action_space = BRANCHES[actions], ACTIONS[actions]
        self.starts = np.atleast_1d(np.asarray(self.action_space.start))  # type: ignore[attr-defined]  # both have one
        if observation == "dict":
            legal = spaces.MultiBinary(sum(self.branches))
            self.observation_space: Any = spaces.Dict({"place": PLACE, "mode": spaces.Discrete(3), "legal": legal})
        else:
            self.observation_space = OBSERVATIONS[observation]
        self.stream_options = StreamOptions(frame_stack=STACK if observation == "frames" else 1)
        self.t = 0

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        """An observation, and the info that tells what is legal."""
        rng = self.np_random
        self.legal: npt.NDArray[Any] = np.ones(sum(self.branches), np.int8)
        if self.masks:
            self.legal = rng.integers(2, size=len(self.legal), dtype=np.int8)
            for first, count in zip(np.cumsum((0, *self.branches)), self.branches, strict=False):
                self.legal[first + rng.integers(count)] = 1
            if self.t == self.length:
                self.legal[:] = 0
        place = rng.uniform(-1, 1, 3).astype(np.float32)
        if self.kind == "dict":
            return {"place": place, "mode": rng.integers(3), "legal": self.legal.copy()}, {}
        info = {"action_mask": self.legal.copy()} if self.masks else {}
        return (place if self.kind == "vector" else rng.integers(256, size=FRAME.shape, dtype=np.uint8)), info

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        chosen = np.atleast_1d(action) - self.starts
        places = np.cumsum((0, *self.branches))[:-1] + chosen
        assert self.legal[places].all(), f"{action} is not legal: {self.legal}"
        self.t += 1
        observation, info = self._observe()
        reward = float(chosen[0] == 0) + self.np_random.normal()
        return observation, reward, self.t == self.length, False, info
