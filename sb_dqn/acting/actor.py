"""Actor: steps the environments of some lanes by the actions that a policy selects, and its latest tick as plain data."""

from __future__ import annotations

from dataclasses import fields
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
from sb_dqn.buffers import FrameStack
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError
from sb_dqn.exploration import Exploration
from sb_dqn.spaces import flatten_space
from sb_dqn.types import ActionArray, Rows, Slot, State


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
    def build(
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
        """Selects actions for the open rows and returns the rows that follow, with what is stored with the actions."""
        return self.step_environments(self.select(uniform))

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

    def step_environments(self, action: ActionArray) -> Rows:
        """Steps the environments by these actions; the second half of `step`, which may run in another thread."""
        rows = self.stream.step(action)
        rows.extra = self.selector.extras
        self.rows = rows
        return rows

    def _newest(self) -> Any:
        return self._open.slots[-1].obs

    def saved_parts(self) -> dict[str, Any]:
        """Returns the parts whose state a full checkpoint holds, by name, besides generators and `state`."""
        parts = dict(self.selector.parts)
        if self.frames is not None:
            parts["frames"] = self.frames.ring
        return parts

    def state(self, trust: bool) -> State:
        """Returns the latest rows and the state of the environments between two steps.

        Args:
            trust: pickle an environment that has no `state_dict()`.

        Raises:
            NoEnvState: the environments have no state of their own, or a step is under way.
        """
        if self.rows is None:
            raise NoEnvState("the environment stopped in the middle of a step")
        return {"stream": self.stream.state_dict(trust), "tick": tick_state(self.rows)}

    def load_state(self, state: State, trust: bool) -> Rows:
        """Restores a `state`; returns its rows."""
        self.stream.load_state_dict(state["stream"], trust)
        self.rows = restored_tick(state["tick"], self.stream)
        return self.rows


def tick_state(rows: Rows) -> State:
    """Returns a tick as plain data, without its infos, which callbacks have already read."""
    slots = [{one.name: getattr(slot, one.name) for one in fields(Slot)} for slot in rows.slots]
    return {"action": rows.action, "slots": slots, "stepped": rows.stepped, "steps": rows.steps, "extra": rows.extra}


def restored_tick(state: State, stream: Stream) -> Rows:
    """Returns the tick that `tick_state` turned into plain data.

    Raises:
        CheckpointError: it does not fit the stream.
    """
    slots = tuple(Slot(**slot) for slot in state["slots"])
    if not 1 <= len(slots) <= 2 or state["stepped"].shape != (stream.num_envs,):
        raise CheckpointError(
            f"the last step in the file must have 1 or 2 arrivals of {stream.num_envs} lanes, got {len(slots)} of "
            f"{state['stepped'].shape}. Use the same number of environments."
        )
    for slot in slots:
        _check(slot, stream)
    return Rows(state["action"], slots, state["stepped"], int(state["steps"]), extra=dict(state["extra"]))


def _check(slot: Slot, stream: Stream) -> None:
    saved = {key: (array.shape, array.dtype) for key, array in slot.obs.items()}
    flags = [(array.shape, array.dtype) for array in (slot.terminal, slot.last, slot.valid)]
    lanes = (stream.num_envs,)
    fits = saved == stream.leaves and flags == [(lanes, np.dtype(np.bool_))] * 3
    fits = fits and slot.reward.shape == slot.score.shape == lanes and (slot.mask is not None) is stream.has_masks
    if not fits:
        raise CheckpointError(
            f"the last step in the file must have {stream.leaves}, as the environment, got {saved}. Use an environment with the same "
            f"spaces."
        )
