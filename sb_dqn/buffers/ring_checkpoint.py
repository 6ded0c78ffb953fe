"""What a ring writes to checkpoints and takes back: the newest rows, or a refusal before any row has changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.ring_storage import Column
from sb_dqn.buffers.start_rule import StartRule
from sb_dqn.errors import CheckpointError

CHUNK = 4096
ALWAYS = ("cursor", "first", "rows", "span")
FOR_PRIORITIES = frozenset({"q_taken", "q_best"})
"""Columns of which only the priorities of new sequences are made: who does without these has no use for them."""
OF_MEMORY = frozenset({"state", "blocked", "age"})
SPACES = "both must be of the same spaces"
OLDER = "older versions kept one value for all branches; give sequences input_priorities=False, or begin with an empty replay"


def check_state(
    state: Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
    kinds: Mapping[str, Column],
    span: StartRule,
    num_lanes: int,
    others: Collection[str] = (),
    num_actions: int = 0,
) -> None:
    """Refuses the state of a ring of other columns, lanes or intervals, and actions that there are not.

    Args:
        state: what `Ring.state_dict` gave.
        columns: `[rows * B (+ 1), *shape]` by name, of the ring that is to take it.
        kinds: what they hold.
        span: of that ring.
        num_lanes: B.
        others: further names that it asks for.
        num_actions: A, or 0 where there is nothing to count.

    Raises:
        CheckpointError: they differ.
    """
    differing = {*columns, *others, *ALWAYS} ^ {*state, "span"} - (FOR_PRIORITIES - set(columns))
    if differing:
        raise CheckpointError(f"replay state and replay buffer differ in {sorted(differing)}; {_way_out(differing)}")
    cursor, rows = state["cursor"].cpu().numpy(), int(state["rows"])
    if len(cursor) != num_lanes:
        raise CheckpointError(f"replay state has {len(cursor)} lanes, the buffer {num_lanes}; use as many environments")
    if "span" in state and int(state["span"][1]) != span.every:
        raise CheckpointError(_intervals(f"{int(state['span'][1])}", span.every))
    for name, kind in kinds.items():
        found, wanted = state[name], columns[name]
        if found.shape[2:] != wanted.shape[1:] or found.dtype != wanted.dtype:
            raise CheckpointError(
                f"replay state {name!r} holds {found.dtype} of shape {tuple(found.shape[2:])}, the buffer "
                f"{wanted.dtype} of shape {tuple(wanted.shape[1:])}; {OLDER if name in FOR_PRIORITIES else SPACES}"
            )
        held = kind.held(rows, cursor.max()), num_lanes
        if found.shape[:2] != held and kind.every > 1:  # a file that does not say its interval
            raise CheckpointError(_intervals("another", kind.every))
        if found.shape[:2] != held:
            raise CheckpointError(
                f"replay state {name!r} has cells {tuple(found.shape[:2])}, its cursors say {held}; the file is damaged"
            )
    actions = state["action"]
    if num_actions and bool(((actions < 0) | (actions >= num_actions)).any()):
        raise CheckpointError(f"replay state holds actions outside of 0 to {num_actions - 1}; the file is damaged")


def _intervals(given: str, wanted: int) -> str:
    return (
        f"the rows were stored with store_rnn_state_interval={given}, this replay has {wanted}: states would lie at other rows; "
        f"give the same, or begin with an empty replay"
    )


def _way_out(differing: Collection[str]) -> str:
    if OF_MEMORY & set(differing):
        return "give sequences the same store_rnn_state_interval, or begin with an empty replay"
    if FOR_PRIORITIES & set(differing):
        return "the rows were stored without priorities of their own; give sequences input_priorities=False"
    return f"{SPACES}, and both with action masks or both without"


def first_to_start(state: Mapping[str, Tensor], behind: int, cursor: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """`[B]` first row of each lane that has `behind` rows before it, or the beginning of its stream."""
    first = state["first"].cpu().numpy().astype(np.int64)
    if "span" in state:
        return np.where(first > 0, first - int(state["span"][0]) + behind, 0)
    gone = cursor - int(state["rows"])  # a file that does not say how many rows were asked for
    return np.where(gone > 0, np.maximum(first, gone + behind), first)


def held_rows(
    columns: Mapping[str, Tensor], kinds: Mapping[str, Column], rows: int, newest: int, num_lanes: int
) -> dict[str, Tensor]:
    """The rows held, as views `[S, B, *shape]` of live memory.

    Args:
        columns: `[rows * B (+ 1), *shape]` by name.
        kinds: what they hold.
        rows: kept of each lane.
        newest: rows ever arrived in the lane that has most.
        num_lanes: B.
    """
    found = {}
    for name, kind in kinds.items():
        held = kind.held(rows, newest)
        found[name] = columns[name][: held * num_lanes].view(held, num_lanes, *kind.shape)
    return found


def restore_rows(
    state: Mapping[str, Tensor],
    columns: Mapping[str, Tensor],
    kinds: Mapping[str, Column],
    rows: int,
    newest: int,
    cursor: npt.NDArray[np.int64],
) -> None:
    """Copies back what `held_rows` gave: all of it, or the newest rows that fit.

    Args:
        state: with the number of `rows` of the ring that was saved.
        columns, kinds, rows: see `held_rows`.
        newest: rows ever arrived in the lane that had most before; what lies beyond has never been written.
        cursor: `[B]` rows ever arrived in the lanes that were saved.
    """
    saved_rows, num_lanes = int(state["rows"]), len(cursor)
    for name, kind in kinds.items():
        column, slots, written = columns[name], kind.slots(rows), kind.held(rows, newest) * num_lanes
        if saved_rows == rows:
            count = state[name].shape[0] * num_lanes
            column[:count] = state[name].flatten(0, 1).to(column)
            column[count:written] = 0  # no further, so that no page is touched in vain
        else:
            column[:written] = 0
            begun = kind.begun(cursor)
            copy_newest(state[name], column, slots, begun, np.minimum(begun, min(kind.slots(saved_rows), slots)))


def copy_newest(
    saved: Tensor, column: Tensor, rows: int, cursor: npt.NDArray[np.int64], keep: npt.NDArray[np.int64]
) -> None:
    """Copies the newest rows of each lane, each to the cell of its row number.

    Args:
        saved: `[S, B, *shape]`, row r of a lane at r % S.
        column: `[rows * B (+ 1), *shape]`, row r of lane b at (r % rows) * B + b.
        rows: rows kept of each lane.
        cursor: `[B]` rows ever arrived.
        keep: `[B]` how many of them to copy, at most the smaller of S and `rows`.
    """
    saved_rows, num_lanes = saved.shape[:2]
    for lane in range(num_lanes):
        newest = np.arange(cursor[lane] - keep[lane], cursor[lane])
        for start in range(0, len(newest), CHUNK):
            numbers = torch.from_numpy(newest[start : start + CHUNK])
            cells = numbers % rows * num_lanes + lane
            column[cells.to(column.device)] = saved[(numbers % saved_rows).to(saved.device), lane].to(column)
