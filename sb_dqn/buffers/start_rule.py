"""Spans: which rows of a ring may start, how far around them is read, and what else is kept of a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.ring_storage import Column, Where
from sb_dqn.types import BoolArray, IntArray, Slot

Declared = Mapping[str, npt.NDArray[Any]]
"""What the policy says of the rows that it leaves, `[B, ...]` by name."""


@dataclass(frozen=True)
class StartRule:
    """Which rows may start, and how many around them are read.

    Args:
        behind: rows before one that starts, >= 0.
        ahead: rows after it, >= 1.
        every: rows of an episode that may start: each `every`-th from its first on, >= 1.
        declared: further columns, written by `Ring.depart`. One whose `Column.every` is that of the span is written at rows
            that may start alone, and not at an episode's first: any two of these are `every` rows apart.
    """

    behind: int
    ahead: int
    every: int = 1
    declared: Mapping[str, Column] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Any row may start, and nothing else is kept."""
        return self.every == 1 and not self.declared

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of a ring that come with it."""
        blocked = {"blocked": Column((), np.dtype(np.bool_))} if self.every > 1 else {}
        return {**self.declared, **blocked}


class Marks:
    """Counts the rows of the episodes, and writes a span's columns.

    Args:
        span: see there.
        rows: kept of each lane.
        num_lanes: B.
        writers: what to assign rows to, by column.
    """

    def __init__(self, span: StartRule, rows: int, num_lanes: int, writers: Mapping[str, Any]) -> None:
        self.span, self.rows, self.writers = span, rows, writers
        self.age: IntArray = np.full(num_lanes, -1)
        """`[B]` rows between an open row and the first of its episode."""

    def grow_older(self, slot: Slot, after_last: BoolArray) -> None:
        """Rows arrive; `after_last` `[B]`: the rows before them were `last`."""
        if not self.span.plain:
            self.age = np.where(slot.valid, np.where(after_last, 0, self.age + 1), self.age)

    def arrive(self, where: Where, lanes: IntArray | slice, last: BoolArray) -> None:
        """Clears the departing half of rows that have arrived."""
        for name, column in self.span.declared.items():
            if column.every == 1:
                self.writers[name][where] = 0
        self.block(where, lanes, last)

    def block(self, where: Where, lanes: IntArray | slice, last: BoolArray) -> None:
        """Says whether open rows may ever start."""
        if self.span.every > 1:
            self.writers["blocked"][where] = last | (self.age[lanes] % self.span.every != 0)

    def depart(self, where: Where, cursor: IntArray, declared: Declared | None) -> None:
        """What the policy said of the open rows."""
        for name, column in self.span.declared.items():
            values = (declared or {})[name]
            if column.every == 1:
                self.writers[name][where] = values
            elif len(due := np.flatnonzero((self.age % column.every == 0) & (self.age > 0))):
                place = (cursor[due] - 1) // column.every % column.slots(self.rows)
                self.writers[name][place, due] = values[due]

    def state_dict(self) -> dict[str, Tensor]:
        return {} if self.span.plain else {"age": torch.from_numpy(self.age.copy())}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if not self.span.plain:
            self.age[:] = state["age"].cpu().numpy()
