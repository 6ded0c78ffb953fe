"""Small environments that nobody solves without a memory, registered with gymnasium as `sb_dqn/...`.

`sb_dqn/TMaze-v0` (Bakker 2002): a corridor, at whose beginning a sign says whether to turn up or down at its far end.
`sb_dqn/CartPoleNoVelocity-v0`: CartPole-v1 that shows places and angles, but not how fast they change.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import register

from sb_dqn.errors import ConfigurationError

NAMESPACE = "sb_dqn/"
AHEAD, UP, DOWN = range(3)
"""Actions of the T-maze."""


class TMaze(gymnasium.Env[npt.NDArray[np.float32], int]):
    """A corridor of `corridor` steps and a junction; the sign at the beginning is the only hint.

    An observation holds four numbers: the sign up, the sign down (both 0 but at the first place), whether this is the
    junction, and 1. Walking ahead in the corridor costs nothing, turning there costs 0.1 and leads nowhere; the right turn
    at the junction is worth 4, the wrong one -0.1, and both end the episode, as walking on there does (-0.1). Without a
    memory half of the episodes are won. After 4 * (corridor + 1) steps an episode is cut off.

    Args:
        corridor: steps from the sign to the junction, >= 1.
        render_mode: None or "ansi".
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 10}  # noqa: RUF012  # as gymnasium declares it

    def __init__(self, corridor: int = 20, render_mode: str | None = None) -> None:
        if corridor < 1:
            raise ConfigurationError(f"corridor={corridor} is not allowed; give a whole number from 1 up")
        self.corridor, self.render_mode = corridor, render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space: Any = spaces.Discrete(3)
        self.place = self.steps = 0
        self.sign = UP

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        self.sign = int(self.np_random.integers(UP, DOWN + 1))
        return self._observe(), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.steps += 1
        late = self.steps >= 4 * (self.corridor + 1)
        if self.place == self.corridor:
            right = int(action) == self.sign
            return self._observe(), 4.0 if right else -0.1, True, False, {"is_success": right}
        if action == AHEAD:
            self.place += 1
        cut: dict[str, Any] = {"is_success": False} if late else {}
        return self._observe(), 0.0 if action == AHEAD else -0.1, False, late, cut

    def _observe(self) -> npt.NDArray[np.float32]:
        at_sign = self.place == 0
        seen = (at_sign and self.sign == UP, at_sign and self.sign == DOWN, self.place == self.corridor, True)
        return np.array(seen, np.float32)

    def render(self) -> Any:
        """The corridor as a line of text, the sign before it: `^ ..@....|`."""
        places = ["."] * self.corridor + ["|"]
        places[self.place] = "@"
        return f"{'^' if self.sign == UP else 'v'} {''.join(places)}"


class HiddenVelocities(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows the numbers at `kept` of a vector alone.

    Args:
        env: with a Box of one axis.
        kept: places that stay.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], kept: tuple[int, ...] = (0, 2)) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        self.kept = list(kept)
        self.observation_space = spaces.Box(space.low[self.kept], space.high[self.kept], dtype=space.dtype)

    def observation(self, observation: Any) -> Any:
        return observation[self.kept]


def make_cartpole_without_velocities(**kwargs: Any) -> gymnasium.Env[Any, Any]:
    """CartPole that shows the place of the cart and the angle of the pole."""
    from gymnasium.envs.classic_control import CartPoleEnv

    return HiddenVelocities(CartPoleEnv(**kwargs))


def register_memory() -> None:
    """Tells gymnasium of the ids, once."""
    entries: tuple[tuple[str, Any, int | None], ...] = (
        ("TMaze-v0", TMaze, None),
        ("CartPoleNoVelocity-v0", make_cartpole_without_velocities, 500),
    )
    for name, entry, steps in entries:
        if f"{NAMESPACE}{name}" not in gymnasium.registry:
            register(f"{NAMESPACE}{name}", entry, max_episode_steps=steps)


register_memory()
