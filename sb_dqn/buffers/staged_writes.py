"""Staged writes: rows of a ring that the CPU cannot address are sent to its device as one packet per tick."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.buffers.ring_layout import ColumnSpec, human_bytes
from sb_dqn.devices import ALIGNMENT, HostStage, aligned, numpy_dtype, torch_dtype
from sb_dqn.errors import MemoryBudgetError
from sb_dqn.types import Array, IntArray

WRITES = 2
"""Writes to a column per packet: one for the row that departs, one for the row that arrives. Observations only arrive."""

Where = int | tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""Index into `[T, B, ...]`: one row of all lanes, or the rows and lanes of single cells."""


@dataclass
class ColumnGroup:
    """Columns of one dtype and shape of cells, one after another in one tensor, so that one scatter writes all of them."""

    storage: Tensor
    """Cells of all columns, `[cells, *shape]`."""
    first: dict[str, int] = field(default_factory=dict)
    """First cell of each column."""


def allocate_groups(
    columns: Mapping[str, ColumnSpec], rows: int, num_lanes: int, device: torch.device
) -> tuple[dict[str, Tensor], list[ColumnGroup]]:
    """Allocates zeros `[rows * num_lanes (+ 1), *shape]` for each column, in groups of the same dtype and shape.

    Raises:
        MemoryBudgetError: the device has too little memory, although the check before the allocation found enough: other
            processes take memory too, and it may be fragmented.
    """
    cells = {name: column.cells(rows, num_lanes) for name, column in columns.items()}
    try:
        groups = _groups(columns, cells, device)
    except torch.cuda.OutOfMemoryError as error:
        needed = human_bytes(sum(column.nbytes * cells[name] for name, column in columns.items()))
        free = (
            human_bytes(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else "an unknown number of bytes"
        )
        raise MemoryBudgetError(
            f"the replay buffer must fit on {device}, got one of {needed} while {free} are free. Reduce buffer_size, or set "
            f"buffer_device='cpu' to store the rows in host memory."
        ) from error
    tensors = {}
    for group in groups:
        for name, first in group.first.items():
            tensors[name] = group.storage[first : first + cells[name]]
    return {name: tensors[name] for name in columns}, groups


def _groups(columns: Mapping[str, ColumnSpec], cells: Mapping[str, int], device: torch.device) -> list[ColumnGroup]:
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, column in columns.items():
        alike.setdefault((column.dtype.str, *column.shape), []).append(name)
    groups = []
    for names in alike.values():
        spec = columns[names[0]]
        step = ALIGNMENT // math.gcd(ALIGNMENT, max(spec.nbytes, 1))  # cells from one aligned cell to the next
        first, count = {}, 0
        for name in names:
            first[name] = count
            count += -(-cells[name] // step) * step
        dtype = torch_dtype(spec.dtype)
        groups.append(ColumnGroup(torch.zeros((count, *spec.shape), dtype=dtype, device=device), first))
    return groups


class _GroupPacket:
    """The part of a packet that belongs to one group: cells and their values."""

    def __init__(self, group: ColumnGroup, capacity: int, offset: int) -> None:
        self.group = group
        self.capacity = capacity
        self.used = 0
        self.shape = group.storage.shape[1:]
        self.cell_bytes = math.prod(self.shape) * group.storage.element_size()
        self.index_at = offset
        self.values_at = aligned(offset + capacity * 8)
        self.end = aligned(self.values_at + capacity * self.cell_bytes)
        self.index: list[IntArray] = []
        self.values: list[Array] = []

    def attach(self, buffer: Array) -> None:
        """Adds the views of one of the two buffers of the stage."""
        dtype = numpy_dtype(self.group.storage.dtype)
        self.index.append(buffer[self.index_at : self.index_at + self.capacity * 8].view(np.int64))
        values = buffer[self.values_at : self.values_at + self.capacity * self.cell_bytes].view(dtype)
        self.values.append(values.reshape(self.capacity, *self.shape))

    def scatter(self, packet: Tensor) -> None:
        """Writes what the packet contains into the columns."""
        if not self.used:
            return
        cells = packet[self.index_at : self.index_at + self.used * 8].view(torch.int64)
        values = packet[self.values_at : self.values_at + self.used * self.cell_bytes].view(self.group.storage.dtype)
        self.group.storage.index_copy_(0, cells, values.view(self.used, *self.shape))
        self.used = 0


class StagedRows:
    """Writer of the columns of a ring: collects what is assigned to them, and sends it with `flush`.

    A flush is one copy and one scatter for each group. Assignments that no longer fit, or that would write a cell twice,
    flush what came before them.

    Args:
        groups: groups of columns, see `allocate_groups`.
        num_lanes: number of lanes B.
        device: device of the columns.
    """

    def __init__(self, groups: list[ColumnGroup], num_lanes: int, device: torch.device) -> None:
        self.num_lanes = num_lanes
        self._lanes: IntArray = np.arange(num_lanes)
        self._packets: list[_GroupPacket] = []
        self._of: dict[str, tuple[_GroupPacket, int]] = {}
        offset = 0
        for group in groups:
            writes = sum(1 if name.startswith("obs/") else WRITES for name in group.first)
            packet = _GroupPacket(group, writes * num_lanes, offset)
            offset = packet.end
            self._packets.append(packet)
            self._of |= {name: (packet, first) for name, first in group.first.items()}
        self._stage = HostStage((offset,), torch.uint8, device)
        for buffer in self._stage.arrays:
            for packet in self._packets:
                packet.attach(buffer)
        self._staged: dict[str, list[Where]] = {}

    def columns(self) -> dict[str, StagedColumn]:
        """Returns an object for each column, indexed like `[T, B, ...]`, to assign rows to."""
        return {name: StagedColumn(self, name) for name in self._of}

    def put(self, name: str, where: Where, values: object) -> None:
        """Stages an assignment to a column."""
        before = self._staged.get(name)
        if before and (len(before) == (1 if name.startswith("obs/") else WRITES) or _overlap(before[-1], where)):
            self.flush()
        self._staged.setdefault(name, []).append(where)
        packet, first = self._of[name]
        rows, lanes = where if isinstance(where, tuple) else (where, self._lanes)
        start, turn = packet.used, self._stage.turn
        packet.used = end = start + len(lanes)
        packet.index[turn][start:end] = rows * self.num_lanes + lanes + first
        packet.values[turn][start:end] = values

    def flush(self) -> None:
        """Writes what is staged into the columns."""
        if not self._staged:
            return
        self._staged.clear()
        packed = self._stage.send()
        for packet in self._packets:
            packet.scatter(packed)


class StagedColumn:
    """A column to assign rows to; see `StagedRows`."""

    def __init__(self, rows: StagedRows, name: str) -> None:
        self.rows = rows
        self.name = name

    def __setitem__(self, where: Where, values: object) -> None:
        self.rows.put(self.name, where, values)


def _overlap(first: Where, second: Where) -> bool:
    """Returns True if two assignments may write the same cell."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        width = 1 + max(int(part.max(initial=0)) for part in (first[1], second[1]))
        return bool(np.isin(second[0] * width + second[1], first[0] * width + first[1]).any())
    if isinstance(first, tuple) or isinstance(second, tuple):
        rows = first[0] if isinstance(first, tuple) else second[0]  # type: ignore[index]
        row = second if isinstance(first, tuple) else first
        return bool((rows == row).any())
    return first == second
