"""The reader of action masks: from infos or observations, whatever their form, to one bool array of all lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sb_dqn.envs.streams.helpers import some
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError, nearest
from sb_dqn.spaces import Actions, ActionShape, BoxActions, Space, leaf_dtype, leaf_shape
from sb_dqn.types import BoolArray, Observation

INFO = "info"
KEY = "action_mask"


def open_masks(where: str | None, leaves: Mapping[str, Space], actions: Actions, lanes: int) -> MaskReader | None:
    """The reader for `StreamOptions.action_mask`; None where no masks are asked for.

    Raises:
        ConfigurationError: `where` is neither None, "info" nor a key of the observation space, or actions are no choices.
        SpaceError: what lies at that key cannot be a mask of these actions.
    """
    if where is None:
        return None
    if isinstance(actions, BoxActions):
        raise ConfigurationError(
            f"action_mask={where!r} names legal choices, but actions are numbers between bounds (a Box); leave it out"
        )
    reader = MaskReader(where, actions, lanes)
    if where == INFO:
        return reader
    if type(where) is not str or where not in leaves or list(leaves) == ["obs"]:
        keys = [] if list(leaves) == ["obs"] else list(leaves)
        found = f", or a key of the observation: {keys}.{nearest(str(where), [INFO, *keys])}" if keys else ""
        raise ConfigurationError(f"action_mask={where!r}; allowed: None, 'info' (info['{KEY}']){found}")
    shape, dtype = leaf_shape(leaves[where]), leaf_dtype(leaves[where])
    if shape not in reader.shapes or dtype.kind not in "biu":
        raise SpaceError(
            f"action_mask={where!r}, but the observation there is {leaves[where]}; allowed: bool, or integers 0 and 1, of "
            f"shape {' or '.join(map(str, sorted(reader.shapes, key=len)))}, as in MultiBinary"
        )
    return reader


class MaskReader:
    """Masks of legal actions `[B, A]`, or `[B, D, A]` for branches, in which the padding of short branches is false.

    A row that terminates an episode needs no mask: none, and one without a legal action, mean that all actions are legal.
    In any other row they are faults, at a time limit too: the target values the actions there.

    Args:
        where: "info", or a key of the flat observation.
        actions: what an action is made of.
        lanes: B.
    """

    def __init__(self, where: str, actions: ActionShape, lanes: int) -> None:
        self.where, self._actions = where, actions
        self._legal = actions.legal
        self._batch = (lanes, *self._legal.shape)
        self.shapes = {self._legal.shape, (sum(actions.branches),)} if actions.branched else {self._legal.shape}
        """Allowed shapes of one mask."""
        self.allowed = f"shape {self._legal.shape}"
        """In words."""
        if actions.branched:
            self.allowed = (
                f"shape ({sum(actions.branches)},), the branches one after the other, or {self._legal.shape}, or a tuple "
                f"of {len(actions.branches)} masks of lengths {actions.branches}"
            )

    def of_batch(self, obs: Observation, info: Mapping[str, Any], final: BoolArray, tick: int) -> BoolArray:
        """Masks of a vector env's answer.

        Args:
            obs: flat, `[B, ...]`.
            info: batched; an entry counts only where its `_action_mask` (if any) is set.
            final: `[B]` rows that need no mask.
            tick: for messages; 0 is the reset.

        Raises:
            EnvironmentFault: a mask is missing, of the wrong shape or dtype, or allows nothing; names lane and step.
        """
        if self.where != INFO:
            return self._dense(obs[self.where], final, tick)
        given, told = info.get(KEY), info.get("_" + KEY)
        if given is None or getattr(given, "dtype", None) == np.dtype(object):
            rows = [None] * len(final) if given is None else list(given)
            return self._by_lane(rows, final, tick)
        if told is None or not some(silent := ~np.asarray(told, np.bool_)):
            return self._dense(np.asarray(given), final, tick)
        if some(silent & ~final):
            raise self._missing(int(np.flatnonzero(silent & ~final)[0]), tick)
        return self._dense(np.asarray(given), final, tick, silent)

    def of_lanes(self, obs: Observation, infos: Sequence[Mapping[str, Any]], final: BoolArray, tick: int) -> BoolArray:
        """The same from one info for each lane."""
        if self.where != INFO:
            return self._dense(obs[self.where], final, tick)
        return self._by_lane([info.get(KEY) for info in infos], final, tick)

    def _by_lane(self, given: Sequence[Any], final: BoolArray, tick: int) -> BoolArray:
        ones = [None if one is None else self._one(one, lane, tick) for lane, one in enumerate(given)]
        kinds = {None if one is None else (one.shape, one.dtype) for one in ones}
        if len(kinds) == 1 and None not in kinds:
            return self._dense(np.array(ones), final, tick)  # all alike: as one array
        rows = np.empty(self._batch, np.bool_)
        for lane, one in enumerate(ones):
            if one is not None:
                self._write(rows[lane : lane + 1], one[None], tick, lane)
            elif final[lane]:
                rows[lane] = self._legal
            else:
                raise self._missing(lane, tick)
        return self._checked(rows, final, tick)

    def _one(self, given: Any, lane: int, tick: int) -> npt.NDArray[Any]:
        """One mask as an array; a tuple of branches is joined."""
        try:
            if self._actions.branched and isinstance(given, (tuple, list)) and np.ndim(given[0]) == 1:
                parts = [np.asarray(part) for part in given]
                if tuple(len(part) for part in parts) == self._actions.branches:
                    return np.concatenate(parts)
            return np.asarray(given)
        except (ValueError, TypeError, IndexError) as error:  # lists of unequal length, or none at all
            raise EnvironmentFault(
                f"the action mask of lane {lane} {_when(tick)} is {given!r}; allowed: {self.allowed}"
            ) from error

    def _dense(
        self, given: npt.NDArray[Any], final: BoolArray, tick: int, silent: BoolArray | None = None
    ) -> BoolArray:
        if given.shape[:1] != self._batch[:1]:
            raise EnvironmentFault(
                f"the action masks {_when(tick)} came with shape {given.shape}; allowed: one for each of {self._batch[0]} lanes"
            )
        rows = np.empty(self._batch, np.bool_)
        self._write(rows, given, tick)
        if silent is not None:
            rows[silent] = self._legal
        return self._checked(rows, final, tick)

    def _write(self, rows: BoolArray, given: npt.NDArray[Any], tick: int, lane: int = 0) -> None:
        """Copies masks `[n, ...]` of any allowed shape into `rows` `[n, (D,) A]`; `lane` is the first of them."""
        where = f"the action mask of lane {lane}" if len(rows) == 1 else "the action masks of all lanes"
        if given.shape[1:] not in self.shapes:
            raise EnvironmentFault(f"{where} {_when(tick)} came with shape {given.shape[1:]}; allowed: {self.allowed}")
        if given.dtype != np.bool_:
            if given.dtype.kind not in "iu":
                raise EnvironmentFault(
                    f"{where} {_when(tick)} came with dtype {given.dtype}; allowed: bool, or integers 0 and 1, as of "
                    f"mask.astype(bool)"
                )
            odd: BoolArray = (given != 0) & (given != 1)
            if some(odd):
                raise EnvironmentFault(
                    f"the action mask of lane {lane + int(np.argwhere(odd)[0, 0])} {_when(tick)} holds numbers other than "
                    f"0 and 1; allowed: {self.allowed}, where 1 means legal"
                )
        if given.shape[1:] != self._legal.shape:
            rows[...] = False
            rows[:, self._legal] = given
        elif self._actions.branched:
            np.logical_and(given, self._legal, out=rows)
        else:
            rows[...] = given

    def _checked(self, rows: BoolArray, final: BoolArray, tick: int) -> BoolArray:
        """The rows, filled where nothing is legal in a final one.

        Raises:
            EnvironmentFault: nothing is legal in a state that is not terminal.
        """
        empty: BoolArray = ~np.logical_or.reduce(rows, -1)
        if not some(empty):
            return rows
        wrong = np.argwhere(empty & ~(final[:, None] if self._actions.branched else final))
        if len(wrong):
            lane, *branch = wrong[0].tolist()
            of = f" of branch {branch[0]}" if branch else ""
            raise EnvironmentFault(
                f"no action{of} is legal in lane {lane} {_when(tick)}, though the state is not terminal; let the mask allow "
                f"one, or terminate the episode there"
            )
        return np.where(empty[..., None], self._legal, rows)

    def _missing(self, lane: int, tick: int) -> EnvironmentFault:
        return EnvironmentFault(
            f"lane {lane} gave no info['{KEY}'] {_when(tick)}; action_mask='info' needs it from every reset and step but "
            f"one that terminates the episode. Put it there, or leave action_mask out"
        )


def _when(tick: int) -> str:
    return "after the reset" if tick == 0 else f"at step {tick}"
