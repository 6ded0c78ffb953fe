"""The rows of a ring in blocks by absolute number: a block that every lane has left behind never changes again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError

BLOCK_BYTES = 16 * 2**20
"""About so much lies in a block; the last block is written anew by each checkpoint, the others once."""


class Segment(NamedTuple):
    """The file of one block."""

    block: int
    name: str
    length: int
    sha256: str


class SegmentColumn(NamedTuple):
    """One column of a ring."""

    tensor: Tensor
    """`[slots, B, *shape]` live memory, cell c of a lane (counted for ever) at c % slots."""
    every: int
    """Rows that share a cell."""


class Written(dict[tuple[Path, int], dict[int, Segment]]):
    """By folder of segments and rows per block: those, by block, that hold the very rows of a ring and will never change."""


@dataclass(frozen=True)
class SegmentedRows:
    """The rows that a ring holds, to be written block by block.

    Args:
        columns: by name.
        cursor: `[B]` rows ever arrived; row cursor - 1 is open, the rows before it stay as they are until they are gone.
        written: of the ring, brought up to date by who writes; the ring empties it when its rows are replaced.
    """

    columns: Mapping[str, SegmentColumn]
    cursor: npt.NDArray[np.int64]
    written: Written

    @property
    def block_rows(self) -> int:
        """Rows of each lane in a block: a multiple of every column's `every`."""
        unit = math.lcm(*(strip.every for strip in self.columns.values()))
        return unit * max(1, BLOCK_BYTES // max(self._bytes_of(unit), 1))

    @property
    def block_bytes(self) -> int:
        """Of a block in memory."""
        return self._bytes_of(self.block_rows)

    def _bytes_of(self, rows: int) -> int:
        cells = ((strip.tensor[0], rows // strip.every) for strip in self.columns.values())
        return sum(one.numel() * one.element_size() * count for one, count in cells)

    def blocks(self) -> range:
        """Blocks of which a lane holds a cell."""
        rows, newest = self.block_rows, int(self.cursor.max())
        oldest = [
            max(0, -(-int(self.cursor.min()) // strip.every) - len(strip.tensor)) // (rows // strip.every)
            for strip in self.columns.values()
        ]
        return range(min(oldest), -(-newest // rows))

    def is_full(self, block: int) -> bool:
        """Whether all its rows have departed in every lane: it will not change any more."""
        return int(self.cursor.min()) > (block + 1) * self.block_rows

    def gather(self, block: int) -> dict[str, Tensor]:
        """A copy of the cells of a block that are begun in any lane, `[n, B, *shape]` on the CPU by column."""
        newest, found = int(self.cursor.max()), {}
        for name, strip in self.columns.items():
            cells = self.block_rows // strip.every
            stop = min((block + 1) * cells, -(-newest // strip.every))
            place = torch.arange(block * cells, stop, device=strip.tensor.device) % len(strip.tensor)
            found[name] = strip.tensor.index_select(0, place).cpu()
        return found

    def describe(self) -> dict[str, Any]:
        """What is needed to put the rows together again, beside the cursors and the segments."""
        columns = {
            name: {"slots": len(strip.tensor), "every": strip.every} for name, strip in sorted(self.columns.items())
        }
        return {"block_rows": self.block_rows, "columns": columns}


class Assembly:
    """Puts columns `[S, B, *shape]` together from blocks; nothing is allocated that the blocks do not fill.

    Args:
        described: by `SegmentedRows.describe`, from a file.
        cursor: `[B]` from a file.
        limit: bytes of all segments.

    Raises:
        CheckpointError: a number is out of its range.
    """

    def __init__(self, described: Mapping[str, Any], cursor: Tensor, limit: int) -> None:
        self.block_rows = described["block_rows"]
        self.columns: Mapping[str, Mapping[str, int]] = described["columns"]
        self.cursor = [int(number) for number in cursor.tolist()]
        self.limit = limit
        numbers = [self.block_rows, *(value for column in self.columns.values() for value in column.values())]
        whole = all(type(number) is int and number >= 1 for number in numbers) and min(self.cursor, default=-1) >= 0
        if not whole or any(self.block_rows % column["every"] for column in self.columns.values()):
            raise CheckpointError("the manifest does not say how the rows are cut into segments; the file is damaged")
        self.found: dict[str, Tensor] = {}
        self.placed = dict.fromkeys(self.columns, 0)

    def take(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        """Puts the cells of one block, that are held, where the ring has them.

        Raises:
            CheckpointError: it is not a block of this ring.
        """
        if set(tensors) != set(self.columns):
            raise CheckpointError(f"block {block} has the columns {sorted(tensors)}, not {sorted(self.columns)}")
        for name, tensor in tensors.items():
            column = self._column(name, tensor)
            slots, every = self.columns[name]["slots"], self.columns[name]["every"]
            first = block * (self.block_rows // every)
            for lane, cursor in enumerate(self.cursor):
                begun = -(-cursor // every)
                low, high = max(first, begun - slots), min(first + len(tensor), begun, first + self.block_rows // every)
                if low < high:
                    place = torch.arange(low, high) % slots
                    column[:, lane].index_copy_(0, place, tensor[low - first : high - first, lane])
                    self.placed[name] += high - low

    def whole(self) -> dict[str, Tensor]:
        """The columns.

        Raises:
            CheckpointError: rows are missing.
        """
        for name, column in self.columns.items():
            held = sum(min(-(-cursor // column["every"]), column["slots"]) for cursor in self.cursor)
            if self.placed[name] != held:
                raise CheckpointError(f"{held - self.placed[name]} cells of {name!r} lie in no segment that is named")
        return self.found

    def _column(self, name: str, tensor: Tensor) -> Tensor:
        lanes, column = len(self.cursor), self.columns[name]
        if tensor.dim() < 2 or tensor.shape[1] != lanes:
            raise CheckpointError(f"{name!r} has the shape {tuple(tensor.shape)} for {lanes} lanes")
        if name not in self.found:
            held = min(-(-max(self.cursor) // column["every"]), column["slots"])
            shape = (held, *tensor.shape[1:])
            self.limit -= math.prod(shape) * tensor.element_size()
            if self.limit < 0:
                raise CheckpointError(f"{name!r} would take more memory than the segments have bytes")
            self.found[name] = torch.zeros(shape, dtype=tensor.dtype)
        made = self.found[name]
        if tensor.shape[1:] != made.shape[1:] or tensor.dtype != made.dtype:
            raise CheckpointError(f"{name!r} is of one kind in one segment and of another in the next")
        return made


def assemble(
    described: Mapping[str, Any],
    cursor: Tensor,
    segments: Iterable[Segment],
    read: Callable[[Segment], Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """The columns of a ring from its segments, read one after another.

    Raises:
        CheckpointError: they are not those of one ring, or rows are missing.
    """
    listed = list(segments)
    assembly = Assembly(described, cursor, sum(segment.length for segment in listed))
    for segment in listed:
        assembly.take(segment.block, read(segment))
    return assembly.whole()
