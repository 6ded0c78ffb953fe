"""What is remembered of each lane while learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate import Mode
from sb_dqn.core.network_runner import NetworkRunner, See, as_they_are
from sb_dqn.policies.recurrent_q_policy import RecurrentQPolicy
from sb_dqn.policies.remembering import Remembering
from sb_dqn.types import ActionArray, BoolArray, Observation, Rows

Values = npt.NDArray[Any]


class Entered(NamedTuple):
    """With what the open rows are met; where an episode begins, with nothing."""

    action: ActionArray
    """`[B, ...]` that led there."""
    reward: Values
    """`[B]` float32 that came with it."""
    state: Values
    """`[B, P]` float32."""
    begins: BoolArray
    """`[B]`"""


class RecurrentState:
    """The recurrent state of each lane that is learned from, zeroed where an episode begins.

    Args:
        policy: the nets.
        num_lanes: B.
    """

    def __init__(self, policy: Remembering, num_lanes: int) -> None:
        self.none = policy.no_action(num_lanes)
        self.state = np.zeros((num_lanes, policy.state_size), np.float32)
        """`[B, P]` after the last rows that were acted on."""
        self.last = np.ones(num_lanes, np.bool_)
        """`[B]` an episode ended at these rows."""

    def enter(self, rows: Rows) -> Entered:
        """The open rows: an end among them is remembered from now on."""
        begins = np.ones_like(self.last) if rows.action is None else np.zeros_like(self.last)
        for slot in rows.slots:
            begins |= slot.valid & self.last
            self.last = np.where(slot.valid, slot.last, self.last)
        given = self.none if rows.action is None else rows.action
        action = np.where(begins.reshape(-1, *(1,) * (given.ndim - 1)), self.none, given)
        reward = np.where(begins, 0.0, rows.slots[-1].reward).astype(np.float32)
        state = np.where(begins[:, None], 0.0, self.state).astype(np.float32)
        return Entered(action, reward, state, begins)

    def state_dict(self) -> dict[str, Any]:
        return {"state": torch.from_numpy(self.state.copy()), "last": torch.from_numpy(self.last.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.state, self.last = state["state"].numpy().copy(), state["last"].numpy().copy()


class SampledRecurrentState(RecurrentState):
    """Of a policy that draws its actions; it declares all that its nets were told.

    Args:
        policy: the nets.
        num_lanes: B.
    """

    def __init__(self, policy: Remembering, num_lanes: int) -> None:
        super().__init__(policy, num_lanes)
        self.reads = policy.memory
        self.entered = Entered(self.none, np.zeros(0), self.state, self.last)

    def take_in(self, rows: Rows) -> None:
        """The open rows, before they are acted on."""
        self.entered = self.enter(rows)

    def left(self, after: Values) -> dict[str, Values]:
        """What is declared of the open rows, which leave `after` behind."""
        self.state = after
        action, reward, state, begins = self.entered
        found = {"begins": begins, "state": state}
        if self.reads.previous_action:
            found["previous_action"] = action
        if self.reads.previous_reward:
            found["previous_reward"] = reward
        return found


class QRecurrentState(RecurrentState):
    """Of a Q-policy.

    Args:
        policy: the nets.
        num_lanes: B.
        mode, see, generator: see `NetworkRunner`.
    """

    def __init__(
        self, policy: RecurrentQPolicy, num_lanes: int, mode: Mode, generator: torch.Generator, see: See = as_they_are
    ) -> None:
        super().__init__(policy, num_lanes)
        self.step = NetworkRunner(policy, policy.step, mode, see, generator)
        self._declared: dict[str, Values] = {}
        self.values: Values = np.zeros(0)
        """`[B, (D,) A]` of the open rows."""

    def take_in(self, rows: Rows, obs: Observation, mask: BoolArray | None) -> None:
        """The open rows: they are remembered from now on."""
        entered = self.enter(rows)
        self.values, self.state = self.step(obs, mask, entered.action, entered.reward, entered.state)
        self._declared = {"state": entered.state}

    def acted(self, action: ActionArray) -> None:
        """Which actions were chosen."""
        taken = np.take_along_axis(self.values, action[..., None], -1)[..., 0]
        self._declared |= {"q_taken": taken.astype(np.float32), "q_best": self.values.max(-1).astype(np.float32)}

    def declared(self) -> dict[str, Values]:
        """For the replay: the state in which the open rows were met, the value taken and the largest, of each branch."""
        return self._declared
