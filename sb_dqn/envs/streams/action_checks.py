"""The door for actions: dtype, shape and range are looked at before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.envs.streams.helpers import FEW
from sb_dqn.errors import SpaceError
from sb_dqn.spaces import Actions, ActionShape, BoxActions
from sb_dqn.types import ActionArray, FloatArray, IntArray

INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)


def open_door(space: spaces.Space[Any], actions: Actions, num_envs: int) -> ActionCheck | BoxActionCheck:
    """The door of an action space; `actions` is what `actions_of` says of it."""
    if isinstance(actions, BoxActions):
        return BoxActionCheck(actions, num_envs)
    return ActionCheck(space, actions, num_envs)


class ActionCheck:
    """Checks 0-based actions and numbers them as the env does.

    Args:
        space: of one lane.
        shape: what `ActionShape.of` says of it.
        num_envs: B.
    """

    def __init__(self, space: spaces.Space[Any], shape: ActionShape, num_envs: int) -> None:
        self._space, self._shape = space, (num_envs, *shape.shape)
        self._dtype = np.dtype(space.dtype)
        self._branched, self._start, self._count = shape.branched, shape.start, shape.num_actions
        self._counts = np.array(shape.branches, np.uint64)
        self._shifted = bool(self._start.any())

    def admit(self, action: ActionArray) -> IntArray:
        """The actions as int64, `[B]` or `[B, D]`, after a look at dtype, shape and range (ALE would hang for ever).

        Raises:
            SpaceError: one of these does not fit.
        """
        given = np.asarray(action)
        if given.dtype != INT64:
            if given.dtype.kind not in "iu":
                raise SpaceError(
                    f"actions have dtype {given.dtype}; allowed: integers, as in np.array([...], dtype=np.int64)"
                )
            given = given.astype(np.int64)
        if given.shape != self._shape:
            each = "one for each lane" if not self._branched else "one row for each lane, one column for each branch"
            raise SpaceError(f"actions have shape {given.shape}; allowed: {self._shape}, {each}")
        if self._branched:
            fits = bool((given.view(np.uint64) < self._counts).all())  # a negative number is a huge unsigned one
        elif len(given) <= FEW:
            listed = given.tolist()
            fits = min(listed) >= 0 and max(listed) < self._count
        else:
            fits = int(given.view(np.uint64).max()) < self._count
        if not fits:
            raise self._out_of_range(given)
        return given

    def outgoing(self, action: IntArray) -> npt.NDArray[Any]:
        """0-based actions as the env numbers them; rows of branches are copies, which the env may keep or change."""
        if self._branched:
            numbered: npt.NDArray[Any] = action + self._start
            return numbered.astype(self._dtype, copy=False)
        return action + self._start if self._shifted else action

    def _out_of_range(self, action: IntArray) -> SpaceError:
        wrong = np.argwhere(action.view(np.uint64) >= self._counts)[0].tolist()
        branch = f" of branch {wrong[1]}" if self._branched else ""
        count = int(self._counts[wrong[1] if self._branched else 0])
        return SpaceError(
            f"action {int(action[tuple(wrong)])}{branch} in lane {wrong[0]} is out of range; allowed: 0 to {count - 1} "
            f"(the action space is {self._space}; its start is added by the stream)"
        )


class BoxActionCheck:
    """Checks numbers that must lie within bounds.

    Args:
        actions: what `BoxActions.of` says of the space of one lane.
        num_envs: B.
    """

    def __init__(self, actions: BoxActions, num_envs: int) -> None:
        self._actions, self._space, self._shape = actions, actions.space, (num_envs, *actions.shape)
        bounds = (np.broadcast_to(bound, self._shape).ravel().tolist() for bound in (actions.low, actions.high))
        self._pairs = list(zip(*bounds, strict=True))

    def admit(self, action: ActionArray) -> FloatArray:
        """The actions as float32 `[B, *shape]`, after a look at dtype, shape and range; NaN lies nowhere.

        Raises:
            SpaceError: one of these does not fit.
        """
        given = np.asarray(action)
        if given.dtype != FLOAT32:
            if given.dtype.kind not in "fiu":
                raise SpaceError(f"actions have dtype {given.dtype}; allowed: numbers, as in np.array(..., np.float32)")
            given = given.astype(np.float32)
        if given.shape != self._shape:
            raise SpaceError(f"actions have shape {given.shape}; allowed: {self._shape}, one row for each lane")
        if len(self._pairs) <= FEW:
            listed = zip(given.ravel().tolist(), self._pairs, strict=True)
            fits = all(low <= number <= high for number, (low, high) in listed)
        else:
            fits = bool(((given >= self._actions.low) & (given <= self._actions.high)).all())
        if not fits:
            raise self._out_of_range(given)
        return given

    def outgoing(self, action: ActionArray) -> npt.NDArray[Any]:
        """Copies, which the env may keep or change, in the env's own dtype."""
        if self._space.dtype == FLOAT32:
            return np.array(action)
        # float32 may have rounded past a bound of float64
        bounded: npt.NDArray[Any] = np.clip(action.astype(self._space.dtype), self._space.low, self._space.high)
        return bounded

    def _out_of_range(self, action: FloatArray) -> SpaceError:
        fits = (action >= self._actions.low) & (action <= self._actions.high)
        where = tuple(np.argwhere(~fits)[0].tolist())
        place = where[1:]
        low, high = self._actions.low[place], self._actions.high[place]
        return SpaceError(
            f"action {action[where]}{f' at {place}' if place else ''} in lane {where[0]} is out of range; allowed: {low} to {high} "
            f"(the action space is {self._space}); clip it first"
        )
