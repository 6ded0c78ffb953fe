"""Ring checkpoints: saving the stored rows, checking a saved state, and restoring all of it or the newest rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.errors import CheckpointError

CHUNK = 4096
ALWAYS = ("cursor", "first", "rows", "span")
PRIORITY_COLUMNS = frozenset({"q_taken", "q_best"})
"""Columns used only for the priorities of new sequences; a ring without input priorities ignores them."""
RECURRENT_COLUMNS = frozenset({"state", "blocked", "age"})
SAME_SPACES = "Use an environment with the same spaces"
OLD_BRANCHES = (
    "Older versions stored one value for all branches: set input_priorities=False in sequences, or start with an empty replay "
    "buffer"
)


def check_state(
    state: Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
    layout: Layout,
    others: Collection[str],
) -> None:
    """Checks a saved state against a ring, before any row is changed.

    Args:
        state: result of `Ring.state_dict`.
        columns: `[rows * B (+ 1), *shape]` by name, of the ring that loads it.
        layout: layout of that ring.
        others: names of other required entries.

    Raises:
        CheckpointError: columns, shapes, lanes or intervals differ, or an action is out of range.
    """
    differing = {*columns, *others, *ALWAYS} ^ {*state, "span"} - (PRIORITY_COLUMNS - set(columns))
    if differing:
        raise CheckpointError(
            f"columns of the replay state must be those of the replay buffer, got a difference in {sorted(differing)}. "
            f"{_fix(differing)}."
        )
    cursor, rows, every = state["cursor"].cpu().numpy(), int(state["rows"]), layout.start_rule.every
    if len(cursor) != layout.num_lanes:
        raise CheckpointError(
            f"replay state must have {layout.num_lanes} lanes, got {len(cursor)}. Use the same number of environments."
        )
    if "span" in state and int(state["span"][1]) != every:
        raise CheckpointError(_wrong_interval(f"{int(state['span'][1])}", every))
    for name, spec in layout.columns.items():
        saved, column = state[name], columns[name]
        if saved.shape[2:] != column.shape[1:] or saved.dtype != column.dtype:
            raise CheckpointError(
                f"replay state {name!r} must be {column.dtype} of shape {tuple(column.shape[1:])}, got {saved.dtype} of shape "
                f"{tuple(saved.shape[2:])}. {OLD_BRANCHES if name in PRIORITY_COLUMNS else SAME_SPACES}."
            )
        held = spec.held(rows, cursor.max()), layout.num_lanes
        if saved.shape[:2] != held and spec.every > 1:  # a file that does not contain its interval
            raise CheckpointError(_wrong_interval("another", spec.every))
        if saved.shape[:2] != held:
            raise CheckpointError(
                f"replay state {name!r} must have cells {held}, as its cursors imply, got {tuple(saved.shape[:2])}. The file "
                f"is damaged."
            )
    actions, num_actions = state["action"], layout.num_actions
    if num_actions and bool(((actions < 0) | (actions >= num_actions)).any()):
        raise CheckpointError(
            f"actions of the replay state must be from 0 to {num_actions - 1}, got {int(actions.min())} to "
            f"{int(actions.max())}. The file is damaged. Load another copy."
        )


def _wrong_interval(saved: str, expected: int) -> str:
    return (
        f"store_rnn_state_interval of the saved rows must be {expected}, got {saved}: their states belong to other rows. Use the "
        f"same interval, or start with an empty replay buffer."
    )


def _fix(differing: Collection[str]) -> str:
    if RECURRENT_COLUMNS & set(differing):
        return "Use the same store_rnn_state_interval in sequences, or start with an empty replay buffer"
    if PRIORITY_COLUMNS & set(differing):
        return "The rows were stored without input priorities: set input_priorities=False in sequences"
    return f"{SAME_SPACES}, and action masks in both or in neither"


def first_to_start(state: Mapping[str, Tensor], behind: int, cursor: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns `[B]` the first row of each lane with `behind` saved rows before it, or the first row of its stream."""
    first = state["first"].cpu().numpy().astype(np.int64)
    if "span" in state:
        return np.where(first > 0, first - int(state["span"][0]) + behind, 0)
    overwritten = cursor - int(state["rows"])  # a file that does not contain `behind`
    return np.where(overwritten > 0, np.maximum(first, overwritten + behind), first)


def held_rows(columns: Mapping[str, Tensor], layout: Layout, newest: int) -> dict[str, Tensor]:
    """Returns the stored rows, as views `[S, B, *shape]` of live memory.

    Args:
        columns: `[rows * B (+ 1), *shape]` by name.
        layout: of the ring.
        newest: rows that have arrived in the lane with the most.
    """
    views = {}
    for name, spec in layout.columns.items():
        held = spec.held(layout.rows, newest)
        views[name] = columns[name][: held * layout.num_lanes].view(held, layout.num_lanes, *spec.shape)
    return views


def restore_rows(
    state: Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
    layout: Layout,
    newest: int,
    cursor: npt.NDArray[np.int64],
) -> None:
    """Copies the result of `held_rows` back: all of it, or the newest rows that fit.

    Args:
        state: saved state, with the number of `rows` of its ring.
        columns, layout: see `held_rows`.
        newest: rows that had arrived in the lane with the most before the restore; later cells were never written.
        cursor: `[B]` rows that have arrived in the saved lanes.
    """
    saved_rows, rows, num_lanes = int(state["rows"]), layout.rows, layout.num_lanes
    for name, spec in layout.columns.items():
        column, slots, written = columns[name], spec.slots(rows), spec.held(rows, newest) * num_lanes
        if saved_rows == rows:
            count = state[name].shape[0] * num_lanes
            column[:count] = state[name].flatten(0, 1).to(column)
            column[count:written] = 0  # no further, so that no untouched page is allocated
        else:
            column[:written] = 0
            started = spec.started(cursor)
            copy_newest(state[name], column, slots, started, np.minimum(started, min(spec.slots(saved_rows), slots)))


def copy_newest(
    saved: Tensor, column: Tensor, rows: int, cursor: npt.NDArray[np.int64], count: npt.NDArray[np.int64]
) -> None:
    """Copies the newest rows of each lane, each to the cell of its row number.

    Args:
        saved: `[S, B, *shape]`, row r of a lane at r % S.
        column: `[rows * B (+ 1), *shape]`, row r of lane b at (r % rows) * B + b.
        rows: rows per lane of `column`.
        cursor: `[B]` rows that have arrived.
        count: `[B]` rows to copy, at most the smaller of S and `rows`.
    """
    saved_rows, num_lanes = saved.shape[:2]
    for lane in range(num_lanes):
        newest = np.arange(cursor[lane] - count[lane], cursor[lane])
        for start in range(0, len(newest), CHUNK):
            numbers = torch.from_numpy(newest[start : start + CHUNK])
            cells = numbers % rows * num_lanes + lane
            column[cells.to(column.device)] = saved[(numbers % saved_rows).to(saved.device), lane].to(column)
