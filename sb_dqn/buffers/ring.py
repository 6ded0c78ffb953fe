"""Ring buffer of rows for all lanes: one cursor per lane, each row written in two halves (on arrival and on departure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.ring_checkpoint import check_state, first_to_start, held_rows, restore_rows
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.ring_storage import (
    Extras,
    StartRuleColumns,
    allocate,
    array_writer,
    check_allocation,
    masks_of,
)
from sb_dqn.buffers.staged_writes import StagedRows, Where, allocate_groups
from sb_dqn.checkpoint.incremental.row_blocks import WrittenBlocks
from sb_dqn.devices import HostStage, is_host_visible
from sb_dqn.types import ActionArray, BoolArray, IntArray, Slot

SCAN_LIMIT = 64
"""Up to this many rows in bounds are checked one by one for a start row."""


class Ring:
    """Circular storage: cell (row % T) * B + lane holds row `row` (absolute, from 0) of lane `lane`.

    Row r of lane b may start a transition iff max(first_b, c_b - T + K - 1) <= r < c_b - n and it is not `last`, where
    c_b = number of rows that have arrived in the lane (`cursor`), T = rows stored per lane, K = frame stack, n = n-step
    horizon, and first_b = 0 (larger after the rows of a smaller ring were loaded). Row c_b - 1 is *open*: it has arrived but
    not departed. A start rule replaces K - 1 and n by its `behind` and `ahead`, and restricts the start rows to each
    `every`-th row of an episode. All samplers use `may_start`. The tensors never move, so traced code that reads them stays
    valid.

    Args:
        layout: rows, lanes, columns and device.
        host_visible: True if the CPU can address the tensors: rows are then written through NumPy views of them. False stages
            rows in host memory and sends them as one packet per tick, on a CPU too. If None, the device decides.

    Raises:
        ConfigurationError: an unusable path.
        MemoryBudgetError: the ring does not fit; raised before anything is allocated.
    """

    def __init__(self, layout: Layout, host_visible: bool | None = None) -> None:
        self.layout = layout
        self.rows = layout.rows
        self.num_lanes = num_lanes = layout.num_lanes
        self.capacity = layout.capacity
        self.frame_stack = frame_stack = layout.frame_stack
        self.n_steps = layout.n_steps
        self.device = layout.device
        self.stacked_keys = layout.stacked_keys
        self.start_rule = layout.start_rule
        by_default = is_host_visible(self.device) or (layout.path is not None and self.device.type == "cpu")
        self.host_visible = by_default if host_visible is None else host_visible
        self.written = WrittenBlocks()
        check_allocation(layout)
        specs = layout.columns
        self._staged: StagedRows | None = None
        self._writers: dict[str, Any] = {}
        if self.host_visible:
            self.columns = allocate(specs, self.rows, num_lanes, layout.path)
            for name, spec in specs.items():
                self._writers[name] = array_writer(self.columns[name], spec.slots(self.rows), num_lanes)
        else:
            self.columns, groups = allocate_groups(specs, self.rows, num_lanes, self.device)
            self._staged = StagedRows(groups, num_lanes, self.device)
            self._writers |= self._staged.columns()
        self.obs = {key: self.columns[f"obs/{key}"] for key in layout.keys}
        self.action = self.columns["action"]
        self.reward = self.columns["reward"]
        self.terminal = self.columns["terminal"]
        self.last = self.columns["last"]
        self.mask = self.columns.get("mask")
        self.blocked = self.columns.get("blocked", self.last)
        """Rows that may never start, `[T * B]`."""
        self.not_before = torch.ones(frame_stack - 1, frame_stack - 1, dtype=torch.bool, device=self.device).triu()
        """`[K - 1, K - 1]`, True at (i, j) for j >= i."""
        self._obs_writers = [(key, self._writers[f"obs/{key}"]) for key in layout.keys]
        self.cursor: IntArray = np.zeros(self.num_lanes, np.int64)
        self._first: IntArray = np.zeros(self.num_lanes, np.int64)
        self._common_cursor: int | None = 0  # the cursor of every lane, None where they differ
        self._open_last = np.zeros(self.num_lanes, np.bool_)
        self._open_last_axes = self._open_last.reshape(
            -1, *(1 for _ in self.layout.action_axes)
        )  # a view, like actions
        self._rule_columns: StartRuleColumns | None = None  # None: every row may start a sample
        if not self.start_rule.plain:
            self._rule_columns = StartRuleColumns(self.start_rule, self.rows, self.num_lanes, self._writers)
        self.arrivals = 0
        """Changes with each arrival, and where other rows are loaded."""
        self._bounds_at = 0  # of the arrivals that the bounds are up to date with
        self._many_in_bounds = False  # more than SCAN_LIMIT rows are in bounds; arrivals never reduce their number
        self._lanes: IntArray = np.arange(self.num_lanes)
        shape = 4, self.num_lanes
        self._bounds_stage = None if self.host_visible else HostStage(shape, torch.int64, self.device)
        bounds = torch.zeros(shape, dtype=torch.int64) if self._bounds_stage is None else self._bounds_stage.tensor
        self._bounds_array: IntArray = bounds.numpy() if self._bounds_stage is None else self._bounds_stage.array
        # [B] each: rows in bounds are lo <= r < hi; edge = running sum of their counts; counted over all lanes, the
        # u-th row in bounds is row base_b + u of its lane b.
        self.lo, self.hi, self.edge, self.base = bounds
        self.total = self.edge[-1:]

    def __len__(self) -> int:
        """Returns the number of stored rows over all lanes."""
        return int(np.minimum(self.cursor, self.rows).sum())

    def arrive(self, slot: Slot) -> None:
        """Stores the environment's output: one row in each valid lane, with an empty departing half."""
        self.arrivals += 1
        if self._rule_columns is not None:
            self._rule_columns.count_rows(slot, self._open_last)
        where: Where
        lanes: IntArray | slice = slice(None)
        if slot.full and self._common_cursor is not None:  # one assignment of a whole row for each column
            where = self._common_cursor % self.rows
            for key, column in self._obs_writers:
                column[where] = slot.obs[key]
            reward, terminal, last = slot.reward, slot.terminal, slot.last
            self._open_last[:] = last
            self.cursor += 1
            self._common_cursor += 1
        else:
            lanes = self._lanes if slot.full else np.flatnonzero(slot.valid)
            where = self.cursor[lanes] % self.rows, lanes
            for key, column in self._obs_writers:
                column[where] = slot.obs[key][lanes]
            reward, terminal, last = slot.reward[lanes], slot.terminal[lanes], slot.last[lanes]
            self._open_last[lanes] = last
            self.cursor[lanes] += 1
            self._common_cursor = self._find_common_cursor()
        self._writers["reward"][where] = reward
        self._writers["terminal"][where] = terminal
        self._writers["last"][where] = last
        self._writers["action"][where] = 0
        if self.mask is not None:
            self._writers["mask"][where] = masks_of(slot)
        if self._rule_columns is not None:
            self._rule_columns.arrive(where, lanes, last)
        self.flush()

    def depart(self, action: ActionArray, extras: Extras | None = None, departed: BoolArray | None = None) -> None:
        """Stores the policy's actions and extra outputs for the open rows; the action of a `last` row, which the environment
        ignores, is stored as 0.

        Args:
            action: `[B, ...]`.
            extras: arrays `[B, ...]` by name.
            departed: `[B]` lanes to store them for. If None, they are stored for all lanes.
        """
        lanes = None if departed is None else np.flatnonzero(departed)
        where = self.open_rows(lanes)
        if self._rule_columns is not None:
            self._rule_columns.depart(where, self.cursor, extras, lanes)
        if np.count_nonzero(self._open_last):
            action = np.where(self._open_last_axes, 0, action)
        self._writers["action"][where] = action if lanes is None else action[lanes]

    def cut(self, lanes: BoolArray | None = None) -> None:
        """Marks open rows `last`, not `terminal`, because the stream restarts. No sample has started there yet.

        Args:
            lanes: `[B]` lanes that restart. If None, all lanes restart.
        """
        if self._common_cursor == 0:
            return
        cut = self.cursor > 0 if lanes is None else (self.cursor > 0) & lanes
        chosen = np.flatnonzero(cut)
        where = self.open_rows(chosen)
        self._open_last |= cut
        self._writers["last"][where] = True
        if self._rule_columns is not None:
            self._rule_columns.block(where, chosen, self._open_last[chosen])
        self.flush()

    def flush(self) -> None:
        """Writes the rows that are staged for the device into the columns; called by all methods but `depart`."""
        if self._staged is not None:
            self._staged.flush()

    def open_rows(self, lanes: IntArray | None = None) -> Where:
        """Returns the position of the open row of every lane, or of `lanes`, as an index into `[T, B, ...]`."""
        if lanes is not None:
            return (self.cursor[lanes] - 1) % self.rows, lanes
        if self._common_cursor is not None:
            return (self._common_cursor - 1) % self.rows
        return (self.cursor - 1) % self.rows, self._lanes

    def _find_common_cursor(self) -> int | None:
        first = int(self.cursor[0])
        return first if self.num_lanes == 1 or bool((self.cursor == first).all()) else None

    def intervals(self) -> tuple[IntArray, IntArray]:
        """Returns half-open bounds `[B]`, `[B]` of the rows whose window is stored; `last` rows are included."""
        lo = np.maximum(self._first, self.cursor - (self.rows - self.start_rule.behind))
        return lo, self.cursor - self.start_rule.ahead

    def refresh_bounds(self) -> None:
        """Recomputes `lo`, `hi`, `edge`, `base` and `total` in place; must be called between arrivals and sampling."""
        if self._bounds_at == self.arrivals:
            return
        self.flush()
        bounds = self._bounds_array
        if (
            self.num_lanes == 1
        ):  # the same with Python numbers: arrays of length 1 cost more than the rest of the sampling
            low = max(int(self._first[0]), int(self.cursor[0]) - self.rows + self.start_rule.behind)
            high = int(self.cursor[0]) - self.start_rule.ahead
            bounds[:, 0] = low, high, max(high - low, 0), low
        else:
            lo, hi = self.intervals()
            count = np.maximum(hi - lo, 0)
            edge = count.cumsum()
            bounds[0], bounds[1], bounds[2], bounds[3] = lo, hi, edge, lo - edge + count
        if self._bounds_stage is not None:
            self._bounds_stage.send()
            self._bounds_array = self._bounds_stage.array
        self._bounds_at = self.arrivals

    def startable(self) -> int:
        """Returns the number of rows in bounds over all lanes, `last` rows included."""
        lo, hi = self.intervals()
        return int(np.maximum(hi - lo, 0).sum())

    def can_start(self) -> bool:
        """Returns True if any row may start. Among many rows in bounds one always may: a `last` row is followed by a reset
        row."""
        if not self._many_in_bounds:
            every = self.start_rule.every
            self._many_in_bounds = self.startable() > (SCAN_LIMIT if every == 1 else 2 * every * self.num_lanes)
        return self._many_in_bounds or self._any_may_start()

    def _any_may_start(self) -> bool:
        self.refresh_bounds()
        lanes, rows = (torch.from_numpy(part).to(self.device) for part in self.rows_between(*self.intervals()))
        return bool(self.may_start(lanes, rows).any())  # a CPU-GPU synchronization, only in the first ticks

    def rows_between(self, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        """Lists all rows low <= r < high.

        Args:
            low, high: `[B]`, or the concatenation `[2 B]` of two such bounds.

        Returns:
            Lane and row, `[N]` each.
        """
        count = np.maximum(high - low, 0)
        which = np.repeat(np.arange(len(count)), count)
        return which % self.num_lanes, np.arange(len(which)) + (low - count.cumsum() + count)[which]

    def cells(self, lane: Tensor, row: Tensor) -> Tensor:
        """Returns the cells of rows (absolute, int64, any shape) in the columns: (row % T) * B + lane."""
        return row % self.rows if self.num_lanes == 1 else row % self.rows * self.num_lanes + lane

    def actions_at(self, cells: Tensor) -> Tensor:
        """Returns the actions `[N, ...]` of cells `[N]`: int64, float32 for a Box."""
        action = self.action.index_select(0, cells)
        return action if action.is_floating_point() else action.long()

    def may_start(self, lane: Tensor, row: Tensor) -> Tensor:
        """Returns the rows that may start a sample, as of the last `refresh_bounds`; all samplers use this rule.

        Args:
            lane: int64, any shape.
            row: int64, the same shape; absolute, any number.

        Returns:
            bool, the same shape.
        """
        lo, hi = (self.lo, self.hi) if self.num_lanes == 1 else (self.lo.take(lane), self.hi.take(lane))
        # of bools, a > b is "a and not b" in one operation
        return torch.gt((row >= lo) & (row < hi), self.blocked.take(self.cells(lane, row)))

    def state_dict(self) -> dict[str, Tensor]:
        """Returns cursors and stored rows. The rows are views of live memory: write or clone them before the next arrival."""
        self.flush()
        state = held_rows(self.columns, self.layout, int(self.cursor.max()))
        state["cursor"] = torch.from_numpy(self.cursor.copy())
        state["first"] = torch.from_numpy(np.where(self.cursor > self.rows, self.intervals()[0], self._first))
        state["rows"] = torch.tensor(self.rows)
        state["span"] = torch.tensor([self.start_rule.behind, self.start_rule.every])
        return state if self._rule_columns is None else state | self._rule_columns.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Loads the result of `state_dict`: all of it, or the newest rows that fit into a smaller ring.

        Raises:
            CheckpointError: the columns or the number of lanes differ.
        """
        rule_state = {} if self._rule_columns is None else self._rule_columns.state_dict()
        check_state(state, self.columns, self.layout, rule_state)
        self.flush()  # before the columns change
        self.written = WrittenBlocks()  # a new one: a background writer may still hold the old one
        cursor = state["cursor"].cpu().numpy().astype(np.int64)
        restore_rows(state, self.columns, self.layout, int(self.cursor.max()), cursor)
        self._first[:] = first_to_start(state, self.start_rule.behind, cursor)
        if self._rule_columns is not None:
            self._rule_columns.load_state_dict(state)
        self.cursor[:] = cursor
        self._common_cursor = self._find_common_cursor()
        self.arrivals += 1
        self._many_in_bounds = False
        open_cells = (cursor - 1) % self.rows * self.num_lanes + self._lanes
        self._open_last[:] = (cursor > 0) & self.last[torch.from_numpy(open_cells).to(self.device)].cpu().numpy()
        self.refresh_bounds()
