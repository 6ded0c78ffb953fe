"""Actor: steps the environments of some lanes by the actions that a policy selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sb_dqn.acting.action_selection import (
    ActingConfig,
    ActionSelector,
    Observe,
    QActionSelector,
    SampledActionSelector,
)
from sb_dqn.acting.tick_state import tick_of, tick_state
from sb_dqn.buffers import FrameStack
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.exploration import Exploration
from sb_dqn.spaces import flatten_space
from sb_dqn.types import ActionArray, Rows


class Actor:
    """Environments of B lanes, with all that acting in them needs: selector, frame stacks, and the latest rows.

    Args:
        stream: the environments.
        selector: selects the actions.
        frames: stacks the frames; None: observations come stacked, from the environment or from a buffer.
    """

    def __init__(self, stream: Stream, selector: ActionSelector, frames: FrameStack | None = None) -> None:
        self.stream = stream
        self.selector = selector
        self.frames = frames
        self.rows: Rows | None = None
        """The latest tick, until actions are selected for its open rows; None from then until the environments have stepped."""
        self.observe: Observe = self._newest if frames is None else frames.stacked
        """Returns the observations of the open rows; a buffer that has them on the networks' device may stand in."""
        self.leader: Exploration | None = None
        """Exploration whose rate the selector's own one takes over before each step; None: the rate is set elsewhere."""
        self._open: Any = None  # the rows whose actions are selected

    @classmethod
    def of(
        cls,
        config: ActingConfig,
        stream: Stream,
        rng: np.random.Generator,
        noise: torch.Generator | None = None,
        *,
        exploration: Exploration | None = None,
        first_lane: int = 0,
    ) -> Actor:
        """Returns the actor of the lanes of a stream.

        Args:
            config: what it shares with the model's other actors.
            stream: the environments.
            rng: generator of exploration and samples.
            noise: generator of the networks' noise; None: they have none.
            exploration: exploration of all lanes of a model; None: these lanes have one of their own.
            first_lane: number of its first lane within the model.
        """
        lanes = stream.num_envs
        selector: ActionSelector
        if config.exploration is None:
            selector = SampledActionSelector(config, lanes, rng)
        else:
            if exploration is None:
                own = config.exploration.for_lanes(first_lane, config.num_envs, config.learner)
                exploration = own.build(config.policy.actions, lanes, rng)
            selector = QActionSelector(config, exploration, lanes, noise)
        stack = config.frame_stack
        spaces = flatten_space(stream.observation_space)
        return cls(stream, selector, FrameStack(stack, lanes, spaces) if stack > 1 else None)

    def begin(self, seed: int | None) -> Rows:
        """Resets the environments and returns their first rows."""
        self.rows = None
        self.rows = self.stream.begin(seed)
        return self.rows

    def step(self, uniform: bool = False) -> Rows:
        """Selects actions for the open rows and returns the rows that follow, with what is stored with the actions.

        Args:
            uniform: draw the actions uniformly.
        """
        return self.play(self.select(uniform))

    def select(self, uniform: bool = False) -> ActionArray:
        """Returns actions `[B, ...]` for the open rows; the first half of `step`."""
        rows, self.rows = self.rows, None
        assert rows is not None  # `begin` comes first
        self._open = rows
        if self.leader is not None and self.selector.exploration is not None:
            self.selector.exploration.load_state_dict(self.leader.state_dict())
        if self.frames is not None:
            self.frames.extend(rows)
        return self.selector.select(rows, self.observe, uniform)

    def play(self, action: ActionArray) -> Rows:
        """Steps the environments by these actions; the second half of `step`, which may run in another thread."""
        rows = self.stream.step(action)
        rows.extra = self.selector.extras
        self.rows = rows
        return rows

    def _newest(self) -> Any:
        return self._open.slots[-1].obs

    def parts(self) -> dict[str, Any]:
        """Returns the parts whose state a full checkpoint holds, by name, besides generators and `state`."""
        parts = dict(self.selector.parts)
        if self.frames is not None:
            parts["frames"] = self.frames.ring
        return parts

    def state(self, trust: bool) -> dict[str, Any]:
        """Returns the latest rows and the state of the environments between two steps.

        Args:
            trust: pickle an environment that has no `state_dict()`.

        Raises:
            NoEnvState: the environments have no state of their own, or a step is under way.
        """
        if self.rows is None:
            raise NoEnvState("the environment stopped in the middle of a step")
        return {"stream": self.stream.state_dict(trust), "tick": tick_state(self.rows)}

    def load_state(self, state: Mapping[str, Any], trust: bool) -> Rows:
        """Restores a `state`; returns its rows."""
        self.stream.load_state_dict(state["stream"], trust)
        self.rows = tick_of(state["tick"], self.stream)
        return self.rows
