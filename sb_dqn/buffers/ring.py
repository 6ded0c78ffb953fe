"""The ring: rows of all lanes, one cursor per lane, each row written in two halves (it arrives, it departs)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.ring_checkpoint import check_state, first_to_start, held_rows, restore_rows
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.ring_storage import Where, allocate, masks_of, writer
from sb_dqn.buffers.start_rule import Declared, Marks, StartRule
from sb_dqn.checkpoint.incremental.row_blocks import WrittenBlocks
from sb_dqn.spaces import Space
from sb_dqn.types import ActionArray, IntArray, Slot

FEW = 64
"""Up to this many rows in bounds are looked at one by one for one that may start."""


class Ring:
    """Storage for replay: cell (row % T) * B + lane holds row `row` (absolute, from 0) of lane `lane`.

    A row r of lane b may start a transition iff max(first_b, c_b - T + K - 1) <= r < c_b - n and it is not `last`. Here
    c_b = rows ever arrived in the lane (`cursor`), T = rows kept of each lane, K = frame stack, n = n-step horizon, and
    first_b = 0 (more after loading the rows of a smaller ring). Row c_b - 1 is *open*: it has arrived but not departed.
    A span puts its `behind` and `ahead` in the places of K - 1 and n, and lets each `every`-th row of an episode start alone.
    Every sampler asks `may_start`. The tensors never move, so what is traced on them stays valid.

    Args:
        capacity: rows over all lanes, >= num_lanes * (n_steps + frame_stack).
        num_lanes: B, >= 1.
        spaces: leaf spaces of one lane by key, as the env gives them (single frames `[C, H, W]` if frame_stack > 1).
        num_actions: A (of the largest branch), sets the dtype of actions; 0: they are numbers, float32.
        frame_stack: K >= 1; with K > 1 each leaf of three axes is a frame, stored once, stacked along its first axis.
        n_steps: n >= 1.
        device: where the rows lie.
        path: a file to map them from instead of memory (CPU only); scratch, not a checkpoint.
        action_axes: shape of one action: `()`, `(D,)` of branches, or that of a Box.
        masks: keep the masks of legal actions; every slot must have one.
        span: what sequences need; None: transitions.

    Raises:
        ConfigurationError: a number is out of its range, or one window does not fit into T rows.
        MemoryBudgetError: the ring does not fit; raised before anything is allocated.
    """

    def __init__(
        self,
        capacity: int,
        num_lanes: int,
        spaces: Mapping[str, Space],
        *,
        num_actions: int,
        frame_stack: int = 1,
        n_steps: int = 1,
        device: torch.device | str = "cpu",
        path: Path | None = None,
        action_axes: tuple[int, ...] = (),
        masks: bool = False,
        span: StartRule | None = None,
    ) -> None:
        self.num_lanes, self.frame_stack, self.n_steps = num_lanes, frame_stack, n_steps
        self.device, self.written = torch.device(device), WrittenBlocks()
        layout = self.layout = Layout(
            capacity, num_lanes, spaces, num_actions=num_actions, frame_stack=frame_stack, n_steps=n_steps,
            device=self.device, path=path, action_axes=action_axes, masks=masks, span=span,
        )  # fmt: skip
        layout.check_place()
        self.rows, self.capacity, self.stacked_keys = layout.rows, layout.capacity, layout.stacked_keys
        self.columns = allocate(layout.columns, self.rows, num_lanes, self.device, path)
        self.obs = {key: self.columns[f"obs/{key}"] for key in spaces}
        self.action, self.reward = self.columns["action"], self.columns["reward"]
        self.terminal, self.last = self.columns["terminal"], self.columns["last"]
        self.mask = self.columns.get("mask")
        self.span = layout.span
        self.blocked = self.columns.get("blocked", self.last)
        """`[T * B]` rows that may never start."""
        self._writers = {
            name: writer(self.columns[name], column.slots(self.rows), num_lanes)
            for name, column in layout.columns.items()
        }
        self._obs_writers = [(key, self._writers[f"obs/{key}"]) for key in spaces]
        self._start_empty()

    def _start_empty(self) -> None:
        self.cursor: IntArray = np.zeros(self.num_lanes, np.int64)
        self._first: IntArray = np.zeros(self.num_lanes, np.int64)
        self._level: int | None = 0  # the cursor of every lane, where all are equal
        self._open_last = np.zeros(self.num_lanes, np.bool_)
        self._open_ends = self._open_last.reshape(-1, *(1 for _ in self.layout.action_axes))  # a view, like actions
        self._marks = Marks(self.span, self.rows, self.num_lanes, self._writers)
        self._fresh = True  # the bounds are up to date
        self._ample = False  # more than a FEW rows are in bounds; arrivals never make them fewer
        self._lanes: IntArray = np.arange(self.num_lanes)
        self._host_bounds = torch.zeros((4, self.num_lanes), dtype=torch.int64)
        self._bounds_array: IntArray = self._host_bounds.numpy()
        self._bounds = self._host_bounds.to(self.device)
        # [B] each: rows in bounds are lo <= r < hi; edge = running sum of their counts; counted over all lanes, the
        # u-th row in bounds is row base_b + u of its lane b.
        self.lo, self.hi, self.edge, self.base = self._bounds
        self.total = self.edge[-1:]

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row of one lane, everything included."""
        return self.layout.bytes_per_row

    @property
    def nbytes(self) -> int:
        """Bytes of the whole ring; host memory and files are charged only as rows are written."""
        return self.layout.nbytes

    def describe(self) -> str:
        """One line for people: rows, lanes, size, place."""
        return self.layout.describe()

    def __len__(self) -> int:
        """Rows held, over all lanes."""
        return int(np.minimum(self.cursor, self.rows).sum())

    def arrive(self, slot: Slot) -> None:
        """The environment answered: one row in each valid lane, whose departing half is cleared."""
        self._fresh = False
        self._marks.grow_older(slot, self._open_last)
        where: Where
        lanes: IntArray | slice = slice(None)
        if slot.full and self._level is not None:  # one assignment of a whole row for each column
            where = self._level % self.rows
            for key, column in self._obs_writers:
                column[where] = slot.obs[key]
            reward, terminal, last = slot.reward, slot.terminal, slot.last
            self._open_last[:] = last
            self.cursor += 1
            self._level += 1
        else:
            lanes = self._lanes if slot.full else np.flatnonzero(slot.valid)
            where = self.cursor[lanes] % self.rows, lanes
            for key, column in self._obs_writers:
                column[where] = slot.obs[key][lanes]
            reward, terminal, last = slot.reward[lanes], slot.terminal[lanes], slot.last[lanes]
            self._open_last[lanes] = last
            self.cursor[lanes] += 1
            self._level = self._common_cursor()
        self._writers["reward"][where] = reward
        self._writers["terminal"][where] = terminal
        self._writers["last"][where] = last
        self._writers["action"][where] = 0
        if self.mask is not None:
            self._writers["mask"][where] = masks_of(slot)
        self._marks.arrive(where, lanes, last)

    def depart(self, action: ActionArray, declared: Declared | None = None) -> None:
        """The policy acted on the open rows, and declared of them; a `last` row's action is ignored by the env and kept as 0."""
        self._marks.depart(self.open_rows(), self.cursor, declared)
        ends = np.count_nonzero(self._open_last)
        self._writers["action"][self.open_rows()] = np.where(self._open_ends, 0, action) if ends else action

    def cut(self) -> None:
        """A stream begins anew: each open row becomes `last`, not `terminal`. It has started nothing: this is safe."""
        if self._level == 0:
            return
        self._open_last |= self.cursor > 0
        self._writers["last"][self.open_rows()] = self._open_last
        self._marks.block(self.open_rows(), slice(None), self._open_last)

    def open_rows(self) -> Where:
        """Where the open row of every lane lies, as an index into `[T, B, ...]`."""
        if self._level is not None:
            return (self._level - 1) % self.rows
        return (self.cursor - 1) % self.rows, self._lanes

    def _common_cursor(self) -> int | None:
        first = int(self.cursor[0])
        return first if self.num_lanes == 1 or bool((self.cursor == first).all()) else None

    def intervals(self) -> tuple[IntArray, IntArray]:
        """Per lane, half open: rows whose window lies in the ring; `last` rows are still among them."""
        lo = np.maximum(self._first, self.cursor - (self.rows - self.span.behind))
        return lo, self.cursor - self.span.ahead

    def refresh_bounds(self) -> None:
        """Brings `lo`, `hi`, `edge`, `base`, `total` up to date, in place; call it after arrivals, before sampling."""
        if self._fresh:
            return
        bounds = self._bounds_array
        if self.num_lanes == 1:  # the same in plain numbers: arrays of one cost more than the rest of the sampling
            low = max(int(self._first[0]), int(self.cursor[0]) - self.rows + self.span.behind)
            high = int(self.cursor[0]) - self.span.ahead
            bounds[:, 0] = low, high, max(high - low, 0), low
        else:
            lo, hi = self.intervals()
            room = np.maximum(hi - lo, 0)
            edge = room.cumsum()
            bounds[0], bounds[1], bounds[2], bounds[3] = lo, hi, edge, lo - edge + room
        if self._bounds is not self._host_bounds:
            self._bounds.copy_(self._host_bounds)
        self._fresh = True

    def startable(self) -> int:
        """Rows in bounds over all lanes, `last` ones included."""
        lo, hi = self.intervals()
        return int(np.maximum(hi - lo, 0).sum())

    def can_start(self) -> bool:
        """Whether any row may start. Of many rows in bounds one always may: after a `last` row comes a reset row."""
        if not self._ample:
            self._ample = self.startable() > (FEW if self.span.every == 1 else 2 * self.span.every * self.num_lanes)
        return self._ample or self._any_may_start()

    def _any_may_start(self) -> bool:
        self.refresh_bounds()
        lanes, rows = (torch.from_numpy(found).to(self.device) for found in self.rows_between(*self.intervals()))
        return bool(self.may_start(lanes, rows).any())  # a CPU-GPU sync point, in the first ticks alone

    def rows_between(self, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        """Lane and row `[sum of their counts]` of all rows low <= r < high, bounds `[B]` or, one after another, `[2 B]`."""
        room = np.maximum(high - low, 0)
        which = np.repeat(np.arange(len(room)), room)
        return which % self.num_lanes, np.arange(len(which)) + (low - room.cumsum() + room)[which]

    def cells(self, lane: Tensor, row: Tensor) -> Tensor:
        """Where rows (absolute, int64, any shape) lie in the columns: (row % T) * B + lane."""
        return row % self.rows if self.num_lanes == 1 else row % self.rows * self.num_lanes + lane

    def actions_at(self, cells: Tensor) -> Tensor:
        """The actions `[N, ...]` of cells `[N]`: int64, of a Box float32."""
        found = self.action.index_select(0, cells)
        return found if found.is_floating_point() else found.long()

    def may_start(self, lane: Tensor, row: Tensor) -> Tensor:
        """Which rows may start a transition, as of the last `refresh_bounds`: the one rule of all samplers.

        Args:
            lane: int64, any shape.
            row: int64, the same shape; absolute, any number.

        Returns:
            bool, the same shape.
        """
        lo, hi = (self.lo, self.hi) if self.num_lanes == 1 else (self.lo.take(lane), self.hi.take(lane))
        allowed: Tensor = (row >= lo) & (row < hi) & ~self.blocked.take(self.cells(lane, row))
        return allowed

    def state_dict(self) -> dict[str, Tensor]:
        """Cursors and the rows held, views of live memory: write them out, or clone, before the next arrival."""
        state = held_rows(self.columns, self.layout.columns, self.rows, int(self.cursor.max()), self.num_lanes)
        state["cursor"] = torch.from_numpy(self.cursor.copy())
        state["first"] = torch.from_numpy(np.where(self.cursor > self.rows, self.intervals()[0], self._first))
        state["rows"], state["span"] = torch.tensor(self.rows), torch.tensor([self.span.behind, self.span.every])
        return state | self._marks.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` gave: all of it, or the newest rows that fit into a smaller ring.

        Raises:
            CheckpointError: the columns or the number of lanes differ.
        """
        kinds, marks = self.layout.columns, self._marks.state_dict()
        check_state(state, self.columns, kinds, self.span, self.num_lanes, marks, self.layout.num_actions)
        self.written = WrittenBlocks()  # a new one: who writes may still hold the old
        cursor = state["cursor"].cpu().numpy().astype(np.int64)
        restore_rows(state, self.columns, kinds, self.rows, int(self.cursor.max()), cursor)
        self._first[:] = first_to_start(state, self.span.behind, cursor)
        self._marks.load_state_dict(state)
        self.cursor[:] = cursor
        self._level = self._common_cursor()
        self._fresh = self._ample = False
        open_cells = (cursor - 1) % self.rows * self.num_lanes + self._lanes
        self._open_last[:] = (cursor > 0) & self.last[torch.from_numpy(open_cells).to(self.device)].cpu().numpy()
        self.refresh_bounds()

    def check_valid(self) -> tuple[bool, str]:
        """Whether the ring's invariants hold, and if not, which one does not (slow; for tests)."""
        lo, hi = self.intervals()
        open_cells = torch.from_numpy((self.cursor - 1) % self.rows * self.num_lanes + self._lanes).to(self.device)
        written = torch.from_numpy(self.cursor > 0).to(self.device)
        open_last = torch.from_numpy(self._open_last).to(self.device)
        faults = {
            "a cursor is negative": bool((self.cursor < 0).any() or (self._first < 0).any()),
            "the common cursor is not that of every lane": self._level != self._common_cursor(),
            "rows in bounds are gone or open": bool(((lo < self.cursor - self.rows) | (hi >= self.cursor)).any()),
            "the zero frame was written to": any(bool(self.obs[key][-1].any()) for key in self.stacked_keys),
            "`last` of an open row is not the one remembered": bool(
                (written & (self.last[open_cells] != open_last)).any()
            ),
            "a `last` row has an action": bool(self.action[self.last].any()),
        }
        found = [fault for fault, holds in faults.items() if holds]
        return not found, "; ".join(found) or "valid"
