"""Small environments that require memory, registered with gymnasium as `sb_dqn/...`.

`sb_dqn/TMaze-v0` (Bakker 2002): a corridor with a sign at its start that shows the correct turn at its end, up or down.
`sb_dqn/CartPoleNoVelocity-v0`: CartPole-v1 whose observations hold positions and angles without velocities.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.envs.registration import register
from gymnasium.wrappers import TransformObservation

from sb_dqn.checks import check_int
from sb_dqn.types import Env, Info, Kwargs

NAMESPACE = "sb_dqn/"
AHEAD, UP, DOWN = range(3)
"""Actions of the T-maze."""


class TMaze(gymnasium.Env[npt.NDArray[np.float32], int]):
    """Corridor of `corridor` steps with a junction at its end; the sign at the start is the only hint.

    An observation holds four numbers: sign up, sign down (both 0 except at the start), 1 at the junction, and a constant 1.
    In the corridor, AHEAD has reward 0, and a turn has reward -0.1 and does not move. At the junction every action ends the
    episode: the correct turn has reward 4, the wrong one and AHEAD -0.1. An agent without memory wins half of the episodes.
    Episodes are truncated after 4 * (corridor + 1) steps.

    Args:
        corridor: number of steps from the sign to the junction, >= 1.
        render_mode: None or "ansi".
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 10}  # noqa: RUF012  # as gymnasium declares it

    def __init__(self, corridor: int = 20, render_mode: str | None = None) -> None:
        self.corridor = check_int("corridor", corridor, 1)
        self.render_mode = render_mode
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space: Any = spaces.Discrete(3)
        self.place = self.steps = 0
        self.sign = UP

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> tuple[npt.NDArray[np.float32], Info]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        self.sign = int(self.np_random.integers(UP, DOWN + 1))
        return self._observe(), {}

    def step(self, action: int) -> tuple[npt.NDArray[np.float32], float, bool, bool, Info]:
        self.steps += 1
        out_of_time = self.steps >= 4 * (self.corridor + 1)
        if self.place == self.corridor:
            correct = int(action) == self.sign
            return self._observe(), 4.0 if correct else -0.1, True, False, {"is_success": correct}
        if action == AHEAD:
            self.place += 1
        info: Info = {"is_success": False} if out_of_time else {}
        return self._observe(), 0.0 if action == AHEAD else -0.1, False, out_of_time, info

    def _observe(self) -> npt.NDArray[np.float32]:
        at_sign = self.place == 0
        values = (at_sign and self.sign == UP, at_sign and self.sign == DOWN, self.place == self.corridor, True)
        return np.array(values, np.float32)

    def render(self) -> Any:
        """Returns the sign and the corridor as a line of text: `^ ..@....|`."""
        places = ["."] * self.corridor + ["|"]
        places[self.place] = "@"
        return f"{'^' if self.sign == UP else 'v'} {''.join(places)}"


def make_cartpole_without_velocities(**kwargs: Any) -> Env:
    """Makes CartPole that observes the position of the cart and the angle of the pole."""
    from gymnasium.envs.classic_control import CartPoleEnv

    env = CartPoleEnv(**kwargs)
    space: Any = env.observation_space
    observed = [0, 2]
    space = spaces.Box(space.low[observed], space.high[observed], dtype=space.dtype)
    return TransformObservation(env, lambda observation: observation[observed], space)


ENTRIES: tuple[tuple[str, Any, int | None], ...] = (
    ("TMaze-v0", TMaze, None),
    ("CartPoleNoVelocity-v0", make_cartpole_without_velocities, 500),
)
for name, entry, steps in ENTRIES:
    register(f"{NAMESPACE}{name}", entry, max_episode_steps=steps)
