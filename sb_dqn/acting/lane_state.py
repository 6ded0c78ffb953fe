"""State of each lane that selection keeps from tick to tick: recurrent states, and random numbers of several ticks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sb_dqn.policies.base import Policy, StochasticPolicy
from sb_dqn.types import ActionArray, Array, FloatArray, IntArray, Rows, State, any_true


class RecurrentState:
    """Recurrent state of B lanes, zeroed where an episode begins.

    Args:
        policy: defines the size of the state and the action before the first one.
        num_lanes: B.
    """

    def __init__(self, policy: Policy, num_lanes: int) -> None:
        self.none = policy.no_action(num_lanes)
        self.state = np.zeros((num_lanes, policy.state_size), np.float32)
        """`[B, P]` after the latest rows that were acted on."""
        self.last = np.ones(num_lanes, np.bool_)
        """`[B]`, True where an episode ended at these rows."""
        self.begins = self.last
        """`[B]`, True where an episode begins at these rows."""

    def inputs(self, rows: Rows) -> tuple[ActionArray, Array, Array]:
        """Returns the inputs for the open rows; stores which episodes begin and end there.

        Returns:
            Previous action `[B, ...]`, previous reward `[B]` float32 and recurrent state `[B, P]` float32; no action and zeros where
            an episode begins.
        """
        begins, self.last = rows.begins(self.last)
        previous = self.none if rows.action is None else rows.action
        action = np.where(begins.reshape(-1, *(1,) * (previous.ndim - 1)), self.none, previous)
        reward = np.where(begins, 0.0, rows.slots[-1].reward).astype(np.float32)
        state = np.where(begins[:, None], 0.0, self.state).astype(np.float32)
        self.begins = begins
        return action, reward, state

    def state_dict(self) -> State:
        return {"state": torch.from_numpy(self.state.copy()), "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: State) -> None:
        self.state = state["state"].numpy().copy()
        self.last = state["last"].numpy().copy()


class ActingMembers:
    """Members of an ensemble that act in B lanes, each drawn at the start of an episode.

    Args:
        members: number of members.
        num_lanes: B.
        rng: generator.
    """

    def __init__(self, members: int, num_lanes: int, rng: np.random.Generator) -> None:
        self.members = members
        self.rng = rng
        self.member = np.zeros(num_lanes, np.int64)
        self.last = np.ones(num_lanes, np.bool_)
        """`[B]`, True where an episode ended at the latest rows."""

    def of(self, rows: Rows) -> IntArray:
        """Returns the members `[B]` of the open rows."""
        begins, self.last = rows.begins(self.last)
        if any_true(begins):
            self.member = np.where(begins, self.rng.integers(self.members, size=len(begins)), self.member)
        return self.member

    def state_dict(self) -> State:
        return {"member": torch.from_numpy(self.member.copy()), "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: State) -> None:
        self.member = state["member"].numpy().copy()
        self.last = state["last"].numpy().copy()


@dataclass(frozen=True)
class Redraws:
    """Ticks at which new random numbers are drawn.

    Args:
        period: at every tick that is a multiple of this; 0: at none.
        within: and this many ticks after the last of these, again and again; 0: never.
        episodes: and in a lane at the first tick of each of its episodes.
    """

    period: int = 1
    within: int = 0
    episodes: bool = False

    def is_due(self, tick: int) -> bool:
        """Returns True if new numbers are drawn in all lanes at a tick, from 0."""
        if not self.period:
            return False
        since = tick % self.period
        return since % self.within == 0 if self.within else since == 0


class HeldNumbers:
    """The latest random numbers of B lanes, and when the next are due.

    Args:
        policy: draws them.
        num_lanes: B.
        rng: generator.
        redraws: when new ones are drawn.
    """

    def __init__(self, policy: StochasticPolicy, num_lanes: int, rng: np.random.Generator, redraws: Redraws) -> None:
        self.policy = policy
        self.num_lanes = num_lanes
        self.rng = rng
        self.redraws = redraws
        self.tick = 0
        self.drawn: FloatArray | None = None
        self.last = np.ones(num_lanes, np.bool_)
        """`[B]`, with `redraws.episodes`: True where an episode ended at the latest rows."""

    def of(self, rows: Rows) -> FloatArray:
        """Returns the numbers `[B, W]` for the open rows, once per tick."""
        if self.drawn is None or self.redraws.is_due(self.tick):
            self.drawn = self.policy.draw(self.rng, self.num_lanes)
        if self.redraws.episodes:
            begins, self.last = rows.begins(self.last)
            if any_true(begins):
                self.drawn = np.where(begins[:, None], self.policy.draw(self.rng, self.num_lanes), self.drawn)
        self.tick += 1
        return self.drawn

    def state_dict(self) -> State:
        drawn = None if self.drawn is None else torch.from_numpy(self.drawn.copy())
        return {"tick": self.tick, "drawn": drawn, "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: State) -> None:
        self.tick = state["tick"]
        self.drawn = None if state["drawn"] is None else state["drawn"].numpy().copy()
        if "last" in state:  # files of older versions do not contain it
            self.last = state["last"].numpy().copy()
