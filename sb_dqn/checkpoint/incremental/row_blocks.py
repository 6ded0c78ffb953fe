"""Blocks of replay rows for incremental checkpoints.

Rows are numbered from the start of training. A block that every lane has passed never changes again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError
from sb_dqn.types import Settings

BLOCK_BYTES = 16 * 2**20
"""Approximate size of a block. Each checkpoint writes the last block again, the others are written once."""


class Segment(NamedTuple):
    """File of one block."""

    block: int
    name: str
    length: int
    """Size in bytes."""
    sha256: str


class SegmentColumn(NamedTuple):
    """One column of a ring."""

    tensor: Tensor
    """`[slots, B, *shape]` live memory; cell c of a lane, numbered from the start of training, is at c % slots."""
    every: int
    """Number of rows that share a cell."""


class WrittenBlocks(dict[tuple[Path, int], dict[int, Segment]]):
    """Segments of a ring that are on the disk and final, by block number; keyed by (segment folder, rows per block)."""


@dataclass(frozen=True)
class SegmentedRows:
    """The rows of a ring, to be written block by block.

    Args:
        columns: columns by name.
        cursor: `[B]` number of rows that have arrived so far. Row cursor - 1 is open; the rows before it stay unchanged
            until they are overwritten.
        written: segments of this ring on the disk. The writer updates it; the ring replaces it when its rows are replaced.
    """

    columns: Mapping[str, SegmentColumn]
    cursor: npt.NDArray[np.int64]
    written: WrittenBlocks

    @property
    def block_rows(self) -> int:
        """Rows of each lane in a block: a multiple of every column's `every`."""
        unit = math.lcm(*(column.every for column in self.columns.values()))
        return unit * max(1, BLOCK_BYTES // max(self.bytes_of(unit), 1))

    def bytes_of(self, rows: int) -> int:
        """Returns the bytes of some rows of each lane, a multiple of every column's `every`."""
        cells = ((column.tensor[0], rows // column.every) for column in self.columns.values())
        return sum(cell.numel() * cell.element_size() * count for cell, count in cells)

    def blocks(self) -> range:
        """Returns the numbers of the blocks of which any lane has a cell."""
        rows, newest = self.block_rows, int(self.cursor.max())
        oldest = [
            max(0, -(-int(self.cursor.min()) // column.every) - len(column.tensor)) // (rows // column.every)
            for column in self.columns.values()
        ]
        return range(min(oldest), -(-newest // rows))

    def is_final(self, block: int) -> bool:
        """Returns True if all rows of the block have departed in every lane, so that it never changes again."""
        return int(self.cursor.min()) > (block + 1) * self.block_rows

    def gather(self, block: int) -> dict[str, Tensor]:
        """Copies the cells of a block that any lane has started, as `[n, B, *shape]` on the CPU by column."""
        newest, cells_by_name = int(self.cursor.max()), {}
        for name, column in self.columns.items():
            cells = self.block_rows // column.every
            stop = min((block + 1) * cells, -(-newest // column.every))
            slots = torch.arange(block * cells, stop, device=column.tensor.device) % len(column.tensor)
            cells_by_name[name] = column.tensor.index_select(0, slots).cpu()
        return cells_by_name

    def describe(self) -> dict[str, Any]:
        """Returns what an `Assembly` needs in addition to the cursors and the segments."""
        columns = {
            name: {"slots": len(column.tensor), "every": column.every} for name, column in sorted(self.columns.items())
        }
        return {"block_rows": self.block_rows, "columns": columns}


class Assembly:
    """Assembles columns `[S, B, *shape]` from blocks; allocates no more memory than the segments have bytes.

    Args:
        description: result of `SegmentedRows.describe`, from a file.
        cursor: `[B]` from a file.
        limit: size of all segments in bytes.

    Raises:
        CheckpointError: a number is out of range.
    """

    def __init__(self, description: Settings, cursor: Tensor, limit: int) -> None:
        self.block_rows = description["block_rows"]
        self.columns: Mapping[str, Mapping[str, int]] = description["columns"]
        self.cursor = [int(number) for number in cursor.tolist()]
        self.bytes_left = limit
        numbers = [self.block_rows, *(value for column in self.columns.values() for value in column.values())]
        valid = all(type(number) is int and number >= 1 for number in numbers) and min(self.cursor, default=-1) >= 0
        if not valid or any(self.block_rows % column["every"] for column in self.columns.values()):
            raise CheckpointError(
                "the manifest does not describe the segments of the rows. The file is damaged. Load another copy."
            )
        self.tensors: dict[str, Tensor] = {}
        self.placed = dict.fromkeys(self.columns, 0)

    def add(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        """Writes those cells of one block that the ring still has to their slots.

        Raises:
            CheckpointError: the block does not fit this ring.
        """
        if set(tensors) != set(self.columns):
            raise CheckpointError(
                f"block {block} must have the columns {sorted(self.columns)}, got {sorted(tensors)}. Load another copy."
            )
        for name, tensor in tensors.items():
            column = self._column(name, tensor)
            slots, every = self.columns[name]["slots"], self.columns[name]["every"]
            first = block * (self.block_rows // every)
            for lane, cursor in enumerate(self.cursor):
                started = -(-cursor // every)
                low = max(first, started - slots)
                high = min(first + len(tensor), started, first + self.block_rows // every)
                if low < high:
                    target = torch.arange(low, high) % slots
                    column[:, lane].index_copy_(0, target, tensor[low - first : high - first, lane])
                    self.placed[name] += high - low

    def finish(self) -> dict[str, Tensor]:
        """Returns the columns.

        Raises:
            CheckpointError: rows are missing.
        """
        for name, column in self.columns.items():
            expected = sum(min(-(-cursor // column["every"]), column["slots"]) for cursor in self.cursor)
            if self.placed[name] != expected:
                raise CheckpointError(
                    f"{expected - self.placed[name]} cells of {name!r} are in no segment that the manifest lists. Load another "
                    f"checkpoint."
                )
        return self.tensors

    def _column(self, name: str, tensor: Tensor) -> Tensor:
        """Returns the column that the cells belong to; allocates it for the first block."""
        lanes, column = len(self.cursor), self.columns[name]
        if tensor.dim() < 2 or tensor.shape[1] != lanes:
            raise CheckpointError(
                f"{name!r} must have the shape (n, {lanes}, ...), got {tuple(tensor.shape)}. Load another copy."
            )
        if name not in self.tensors:
            cells = min(-(-max(self.cursor) // column["every"]), column["slots"])
            shape = (cells, *tensor.shape[1:])
            self.bytes_left -= math.prod(shape) * tensor.element_size()
            if self.bytes_left < 0:
                raise CheckpointError(
                    f"{name!r} would take more memory than the segments have bytes. Load another copy."
                )
            self.tensors[name] = torch.zeros(shape, dtype=tensor.dtype)
        allocated = self.tensors[name]
        if tensor.shape[1:] != allocated.shape[1:] or tensor.dtype != allocated.dtype:
            raise CheckpointError(
                f"{name!r} must have the same shape and dtype in all segments, got others. Load another copy."
            )
        return allocated
