"""Checks of the actions that a stream takes, and their conversion to those of the environment."""

from __future__ import annotations

import numpy as np

from sb_dqn.errors import SpaceError
from sb_dqn.spaces import Actions, ActionShape, BoxActions, Space
from sb_dqn.types import ActionArray, Array, FloatArray, IntArray

INT64 = np.dtype(np.int64)
FLOAT32 = np.dtype(np.float32)
SMALL_SIZE = 32
"""Array size up to which a Python list is faster than a NumPy reduction."""


def make_action_check(space: Space, actions: Actions, num_envs: int) -> ActionCheck | BoxActionCheck:
    """Returns the check for an action space; `actions` is `actions_of(space)`."""
    if isinstance(actions, BoxActions):
        return BoxActionCheck(actions, num_envs)
    return ActionCheck(space, actions, num_envs)


class ActionCheck:
    """Checks discrete 0-based actions and converts them to the env's numbering.

    Args:
        space: action space of one lane.
        shape: `ActionShape.of` the action space.
        num_envs: number of lanes B.
    """

    def __init__(self, space: Space, shape: ActionShape, num_envs: int) -> None:
        self._space = space
        self._shape = (num_envs, *shape.shape)
        self._dtype = np.dtype(space.dtype)
        self._branched = shape.branched
        self._start = shape.start
        self._count = shape.num_actions
        self._counts = np.array(shape.branches, np.uint64)

    def check(self, action: ActionArray) -> IntArray:
        """Returns the actions as int64, `[B]` or `[B, D]`. (ALE never returns from an illegal action.)

        Raises:
            SpaceError: wrong dtype, shape or range.
        """
        checked = np.asarray(action)
        if checked.dtype != INT64:
            if checked.dtype.kind not in "iu":
                raise SpaceError(
                    f"actions must have an integer dtype, got {checked.dtype}. Convert them: actions.astype(np.int64)."
                )
            checked = checked.astype(np.int64)
        if checked.shape != self._shape:
            per_lane = "one row per lane, one column per branch" if self._branched else "one per lane"
            raise SpaceError(f"actions must have shape {self._shape}, {per_lane}, got {checked.shape}. Reshape them.")
        if self._branched:
            in_range = bool((checked.view(np.uint64) < self._counts).all())  # negative numbers become huge as unsigned
        elif len(checked) <= SMALL_SIZE:
            listed = checked.tolist()
            in_range = min(listed) >= 0 and max(listed) < self._count
        else:
            in_range = int(checked.view(np.uint64).max()) < self._count
        if not in_range:
            raise self._out_of_range(checked)
        return checked

    def to_env(self, action: IntArray) -> Array:
        """Returns a copy in the env's numbering, which the env may keep or change; branches in its dtype."""
        numbered: Array = action + self._start
        return numbered.astype(self._dtype, copy=False) if self._branched else numbered

    def _out_of_range(self, action: IntArray) -> SpaceError:
        wrong = np.argwhere(action.view(np.uint64) >= self._counts)[0].tolist()
        branch = f" of branch {wrong[1]}" if self._branched else ""
        count = int(self._counts[wrong[1] if self._branched else 0])
        return SpaceError(
            f"action{branch} in lane {wrong[0]} must be from 0 to {count - 1}, got {int(action[tuple(wrong)])}. Number actions "
            f"from 0; the start of the action space {self._space} is added by the stream."
        )


class BoxActionCheck:
    """Checks continuous actions against the bounds of a Box.

    Args:
        actions: `BoxActions.of` the action space of one lane.
        num_envs: number of lanes B.
    """

    def __init__(self, actions: BoxActions, num_envs: int) -> None:
        self._actions = actions
        self._space = actions.space
        self._shape = (num_envs, *actions.shape)
        bounds = (np.broadcast_to(bound, self._shape).ravel().tolist() for bound in (actions.low, actions.high))
        self._bound_pairs = list(zip(*bounds, strict=True))

    def check(self, action: ActionArray) -> FloatArray:
        """Returns the actions as float32 `[B, *shape]`. NaN is out of range.

        Raises:
            SpaceError: wrong dtype, shape or range.
        """
        checked = np.asarray(action)
        if checked.dtype != FLOAT32:
            if checked.dtype.kind not in "fiu":
                raise SpaceError(
                    f"actions must have a numeric dtype, got {checked.dtype}. Convert them: actions.astype(np.float32)."
                )
            checked = checked.astype(np.float32)
        if checked.shape != self._shape:
            raise SpaceError(
                f"actions must have shape {self._shape}, one row per lane, got {checked.shape}. Reshape them."
            )
        if len(self._bound_pairs) <= SMALL_SIZE:
            pairs = zip(checked.ravel().tolist(), self._bound_pairs, strict=True)
            in_range = all(low <= number <= high for number, (low, high) in pairs)
        else:
            in_range = bool(((checked >= self._actions.low) & (checked <= self._actions.high)).all())
        if not in_range:
            raise self._out_of_range(checked)
        return checked

    def to_env(self, action: ActionArray) -> Array:
        """Returns a copy in the env's dtype, which the env may keep or change."""
        return self._actions.in_space(action)

    def _out_of_range(self, action: FloatArray) -> SpaceError:
        in_range = (action >= self._actions.low) & (action <= self._actions.high)
        index = tuple(np.argwhere(~in_range)[0].tolist())
        lane, place = index[0], index[1:]
        low, high = self._actions.low[place], self._actions.high[place]
        return SpaceError(
            f"action{f' at {place}' if place else ''} in lane {lane} must be from {low} to {high}, got {action[index]}. "
            f"Clip it to the action space {self._space} first."
        )
