"""Recurrent state of each lane while learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.policies.base import Policy
from sb_dqn.types import ActionArray, Rows

Values = npt.NDArray[Any]


class RecurrentInputs(NamedTuple):
    """Recurrent inputs of the network for the open rows; zeros (no action) where an episode begins."""

    action: ActionArray
    """`[B, ...]`, the previous action."""
    reward: Values
    """`[B]` float32, the previous reward."""
    state: Values
    """`[B, P]` float32, the recurrent state."""


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

    def inputs(self, rows: Rows) -> RecurrentInputs:
        """Returns the inputs for the open rows; records which episodes begin and end there."""
        begins, self.last = rows.begins(self.last)
        previous = self.none if rows.action is None else rows.action
        action = np.where(begins.reshape(-1, *(1,) * (previous.ndim - 1)), self.none, previous)
        reward = np.where(begins, 0.0, rows.slots[-1].reward).astype(np.float32)
        state = np.where(begins[:, None], 0.0, self.state).astype(np.float32)
        self.begins = begins
        return RecurrentInputs(action, reward, state)

    def state_dict(self) -> dict[str, Any]:
        return {"state": torch.from_numpy(self.state.copy()), "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state = state["state"].numpy().copy()
        self.last = state["last"].numpy().copy()
