"""Action masks: converts the masks in infos or observations to one bool array for all lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError, nearest
from sb_dqn.spaces import Actions, ActionShape, BoxActions, Space, leaf_dtype, leaf_shape
from sb_dqn.types import Array, BoolArray, Info, Observation, any_true

INFO = "info"
KEY = "action_mask"


def make_mask_reader(
    source: str | None, leaves: Mapping[str, Space], actions: Actions, num_envs: int
) -> MaskReader | None:
    """Returns the reader for `StreamOptions.action_mask`, or None without masks.

    Args:
        source: None, "info" or a key of the observation space.
        leaves: flat observation space of one lane.
        actions: kind and shape of one action.
        num_envs: number of lanes B.

    Raises:
        ConfigurationError: `source` is none of these, or the actions are continuous.
        SpaceError: the observation at that key cannot be a mask of these actions.
    """
    if source is None:
        return None
    if isinstance(actions, BoxActions):
        raise ConfigurationError(
            f"action_mask must be None for continuous actions (a Box), got {source!r}. Leave it out."
        )
    reader = MaskReader(source, actions, num_envs)
    if source == INFO:
        return reader
    if type(source) is not str or source not in leaves or list(leaves) == ["obs"]:
        keys = [] if list(leaves) == ["obs"] else list(leaves)
        or_key = f" or an observation key of {keys}" if keys else ""
        raise ConfigurationError(
            f"action_mask must be None, 'info' (info['{KEY}']){or_key}, got {source!r}. Use one of them."
            f"{nearest(str(source), [INFO, *keys]) if keys else ''}"
        )
    shape, dtype = leaf_shape(leaves[source]), leaf_dtype(leaves[source])
    if shape not in reader.shapes or dtype.kind not in "biu":
        raise SpaceError(
            f"the observation at action_mask={source!r} must be bool, or integers 0 and 1, of shape "
            f"{' or '.join(map(str, sorted(reader.shapes, key=len)))}, got {leaves[source]}. Use MultiBinary, for example."
        )
    return reader


class MaskReader:
    """Reads masks of legal actions: `[B, A]`, or `[B, D, A]` for branches, with False as padding of short branches.

    A row that terminates an episode needs no mask: a missing one, or one without a legal action, becomes a mask that
    allows all actions. In any other row both are errors, also at a time limit, where the target uses the values there.

    Args:
        source: "info", or a key of the flat observation.
        actions: shape of one action.
        num_envs: number of lanes B.
    """

    def __init__(self, source: str, actions: ActionShape, num_envs: int) -> None:
        self.source = source
        self.first_lane = 0
        """Number of the first lane in messages."""
        self._actions = actions
        self._legal = actions.legal
        self._batch_shape = (num_envs, *self._legal.shape)
        self.shapes = {self._legal.shape, (sum(actions.branches),)} if actions.branched else {self._legal.shape}
        """Allowed shapes of one mask."""
        self.allowed = f"of shape {self._legal.shape}"
        """Description of the allowed shapes, for error messages."""
        if actions.branched:
            self.allowed = (
                f"of shape ({sum(actions.branches)},), the branches one after the other, or {self._legal.shape}, or a tuple "
                f"of {len(actions.branches)} masks of lengths {actions.branches}"
            )

    def from_batch(self, obs: Observation, info: Info, final: BoolArray, tick: int) -> BoolArray:
        """Returns the masks of a vector env's batched observation or info.

        Args:
            obs: flat observation, `[B, ...]`.
            info: batched info; an entry counts only where its `_action_mask` (if any) is set.
            final: `[B]` rows that need no mask.
            tick: step number for messages; 0 is the reset.

        Raises:
            EnvironmentFault: a mask is missing, has the wrong shape or dtype, or allows nothing; names lane and step.
        """
        if self.source != INFO:
            return self._from_array(obs[self.source], final, tick)
        masks, present = info.get(KEY), info.get("_" + KEY)
        if masks is None or getattr(masks, "dtype", None) == np.dtype(object):
            return self._from_lanes([None] * len(final) if masks is None else list(masks), final, tick)
        if present is None or not any_true(missing := ~np.asarray(present, np.bool_)):
            return self._from_array(np.asarray(masks), final, tick)
        if any_true(missing & ~final):
            raise self._missing(int(np.flatnonzero(missing & ~final)[0]), tick)
        return self._from_array(np.asarray(masks), final, tick, missing)

    def from_infos(self, obs: Observation, infos: Sequence[Info], final: BoolArray, tick: int) -> BoolArray:
        """Returns the masks like `from_batch`, with one info per lane."""
        if self.source != INFO:
            return self._from_array(obs[self.source], final, tick)
        return self._from_lanes([info.get(KEY) for info in infos], final, tick)

    def _from_lanes(self, masks: Sequence[Any], final: BoolArray, tick: int) -> BoolArray:
        arrays = [None if mask is None else self._lane_mask(mask, lane, tick) for lane, mask in enumerate(masks)]
        kinds = {None if array is None else (array.shape, array.dtype) for array in arrays}
        if len(kinds) == 1 and None not in kinds:
            return self._from_array(np.array(arrays), final, tick)  # same shape and dtype: convert them together
        rows = np.empty(self._batch_shape, np.bool_)
        for lane, array in enumerate(arrays):
            if array is not None:
                self._write(rows[lane : lane + 1], array[None], tick, lane)
            elif final[lane]:
                rows[lane] = self._legal
            else:
                raise self._missing(lane, tick)
        return self._check_any_legal(rows, final, tick)

    def _lane_mask(self, mask: object, lane: int, tick: int) -> Array:
        """Returns one mask as an array; concatenates a tuple of branches."""
        try:
            if self._actions.branched and isinstance(mask, (tuple, list)) and np.ndim(mask[0]) == 1:
                parts = [np.asarray(part) for part in mask]
                if tuple(len(part) for part in parts) == self._actions.branches:
                    return np.concatenate(parts)
            return np.asarray(mask)
        except (ValueError, TypeError, IndexError) as error:  # lists of unequal length, or empty ones
            raise EnvironmentFault(
                f"the action mask of lane {self.first_lane + lane} {_when(tick)} must be {self.allowed}, got {mask!r}. Fix "
                f"the environment."
            ) from error

    def _from_array(self, masks: Array, final: BoolArray, tick: int, missing: BoolArray | None = None) -> BoolArray:
        if masks.shape[:1] != self._batch_shape[:1]:
            raise EnvironmentFault(
                f"the action masks {_when(tick)} must be one for each of {self._batch_shape[0]} lanes, got shape "
                f"{masks.shape}. Fix the environment."
            )
        rows = np.empty(self._batch_shape, np.bool_)
        self._write(rows, masks, tick)
        if missing is not None:
            rows[missing] = self._legal
        return self._check_any_legal(rows, final, tick)

    def _write(self, rows: BoolArray, masks: Array, tick: int, lane: int = 0) -> None:
        """Copies masks `[n, ...]` of any allowed shape into `rows` `[n, (D,) A]`; `lane` is the first of them."""
        name = (
            f"the action mask of lane {self.first_lane + lane}" if len(rows) == 1 else "the action masks of all lanes"
        )
        if masks.shape[1:] not in self.shapes:
            raise EnvironmentFault(
                f"{name} {_when(tick)} must be {self.allowed}, got shape {masks.shape[1:]}. Fix the environment."
            )
        if masks.dtype != np.bool_:
            if masks.dtype.kind not in "iu":
                raise EnvironmentFault(
                    f"{name} {_when(tick)} must be bool, or integers 0 and 1, got dtype {masks.dtype}. Convert with "
                    f"mask.astype(bool)."
                )
            invalid: BoolArray = (masks != 0) & (masks != 1)
            if any_true(invalid):
                place = tuple(np.argwhere(invalid)[0].tolist())
                raise EnvironmentFault(
                    f"the action mask of lane {self.first_lane + lane + place[0]} {_when(tick)} must hold only 0 and 1 (legal), got "
                    f"{masks[place]}. Fix the environment."
                )
        if masks.shape[1:] != self._legal.shape:
            rows[...] = False
            rows[:, self._legal] = masks
        elif self._actions.branched:
            np.logical_and(masks, self._legal, out=rows)
        else:
            rows[...] = masks

    def _check_any_legal(self, rows: BoolArray, final: BoolArray, tick: int) -> BoolArray:
        """Returns the masks; those of final rows without a legal action allow all actions."""
        empty: BoolArray = ~np.logical_or.reduce(rows, -1)
        if not any_true(empty):
            return rows
        wrong = np.argwhere(empty & ~(final[:, None] if self._actions.branched else final))
        if len(wrong):
            lane, *branch = wrong[0].tolist()
            of_branch = f" of branch {branch[0]}" if branch else ""
            raise EnvironmentFault(
                f"the action mask of lane {self.first_lane + lane} {_when(tick)} must allow an action{of_branch} in a state that "
                f"is not terminal, got none. Allow one, or terminate the episode there."
            )
        return np.where(empty[..., None], self._legal, rows)

    def _missing(self, lane: int, tick: int) -> EnvironmentFault:
        return EnvironmentFault(
            f"info of lane {self.first_lane + lane} {_when(tick)} must contain '{KEY}' with action_mask='info', got none. Return it "
            f"from every reset and step except one that terminates the episode, or leave action_mask out."
        )


def _when(tick: int) -> str:
    return "after the reset" if tick == 0 else f"at step {tick}"
