"""Ring storage: allocation of a ring's columns (memory, memory-mapped file), the memory check before it, and row writers."""

from __future__ import annotations

import math
import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.ring_layout import ColumnSpec, Layout, StartRule, human_bytes
from sb_dqn.buffers.staged_writes import Where
from sb_dqn.devices import ALIGNMENT, aligned
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.types import Array, BoolArray, IntArray, Slot

MAGIC = b"sb_dqn replay buffer: scratch\n\0\0"
CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")

Extras = Mapping[str, Array]
"""Extra outputs of the policy for the rows that it acts on, `[B, ...]` by name."""


# -- allocation guard


def check_allocation(layout: Layout) -> None:
    """Checks that a ring fits where it is to be stored; nothing is allocated.

    Raises:
        ConfigurationError: the file cannot be created, or belongs to something else.
        MemoryBudgetError: the ring needs more bytes than are available.
    """
    if layout.path is not None:
        check_buffer_path(layout.path)
    name = f"a replay buffer of {layout.capacity:,} rows of {layout.bytes_per_row:,} bytes"
    check_budget(layout.nbytes, layout.device, layout.path, name)


def check_buffer_path(path: Path) -> None:
    """Checks that the file of a memory-mapped ring can be created or replaced.

    Raises:
        ConfigurationError: the path is a folder, its folder does not exist, or the file is not a replay buffer.
    """
    if path.is_dir() or not path.parent.is_dir():
        example = (path if path.is_dir() else Path.cwd()) / "replay.bin"
        raise ConfigurationError(
            f"buffer_path must be a file in an existing folder, got {path}. Use a path such as {example}."
        )
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ConfigurationError(
                    f"buffer_path must be a new file or an old replay buffer, got {path}, which is neither. Use another path, "
                    f"or delete the file."
                )


def check_budget(needed: int, device: torch.device, path: Path | None, name: str) -> None:
    """Checks an allocation against the available memory.

    Args:
        needed: bytes.
        device: device of the tensors.
        path: file to map them from, or None.
        name: description of the allocation for the message.

    Raises:
        MemoryBudgetError: `needed` is more than what is available.
    """
    available, where = available_memory(device, path)
    if available is not None and needed > available:
        on_disk = "" if path is not None else ", set buffer_path='file' to use a memory-mapped file on disk"
        if device.type != "cpu":
            on_disk = ", set buffer_device='cpu' to store the rows in host memory"
        raise MemoryBudgetError(
            f"{name} needs {human_bytes(needed)}, but only {human_bytes(available)} are available {where}. "
            f"Reduce buffer_size to at most {available / needed:.0%} of its value{on_disk}, "
            f"or set frame_stack so that each frame is stored once."
        )


def available_memory(device: torch.device, path: Path | None = None) -> tuple[int | None, str]:
    """Returns the bytes available for a buffer, or None if they are unknown, and a description of the location."""
    if path is not None:
        return shutil.disk_usage(path.parent).free, f"on the disk of {path}"
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0], f"on {device}"
    return available_host_memory(), "in host memory"


def available_host_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int | None:
    """Returns the available bytes of host memory, limited by the container if there is one; None if unknown."""
    known = [amount for amount in (_machine_memory(meminfo), _container_memory(cgroup)) if amount is not None]
    return min(known) if known else None


def _machine_memory(meminfo: Path) -> int | None:
    """Returns MemAvailable on Linux, elsewhere the physical memory; None if unknown."""
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf; some systems lack the names
        return None


def _container_memory(cgroup: Path) -> int | None:
    """Returns limit minus usage of the control group (v2, then v1); reclaimable file cache counts as free."""
    for limit, use, cache in (
        (cgroup / "memory.max", cgroup / "memory.current", "inactive_file"),
        (cgroup / "memory/memory.limit_in_bytes", cgroup / "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        if not (limit.is_file() and use.is_file()):
            continue
        text = limit.read_text().strip()
        if text == "max":
            return None
        stat = limit.parent / "memory.stat"
        pairs = (line.split() for line in stat.read_text().splitlines()) if stat.is_file() else iter(())
        reclaimable = {name: int(value) for name, value in pairs}.get(cache, 0)
        return int(text) - int(use.read_text()) + reclaimable
    return None


# -- allocation


def allocate(columns: Mapping[str, ColumnSpec], rows: int, num_lanes: int, path: Path | None) -> dict[str, Tensor]:
    """Allocates zeros `[rows * num_lanes (+ 1), *shape]` for each column that the CPU can address; pages are taken when they
    are first written."""
    shapes = {name: (column.cells(rows, num_lanes), *column.shape) for name, column in columns.items()}
    if path is not None:
        return _map_file(columns, shapes, path)
    return {name: torch.from_numpy(_map_memory(shapes[name], column.dtype)) for name, column in columns.items()}


def _map_memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns zeros in new memory pages; `np.zeros` would touch them all where the C library reuses freed blocks."""
    count = math.prod(shape)
    return np.frombuffer(mmap.mmap(-1, max(1, count * dtype.itemsize)), dtype, count).reshape(shape)


def _map_file(
    columns: Mapping[str, ColumnSpec], shapes: Mapping[str, tuple[int, ...]], path: Path
) -> dict[str, Tensor]:
    """Maps all columns from one sparse file. An older file is unlinked first; processes that have it open keep theirs."""
    path.unlink(missing_ok=True)
    path.write_bytes(MAGIC)
    offset = ALIGNMENT
    tensors = {}
    for name, column in columns.items():
        tensors[name] = torch.from_numpy(np.memmap(path, column.dtype, "r+", offset, shapes[name]))
        offset += aligned(math.prod(shapes[name]) * column.dtype.itemsize)
    return tensors


# -- writing rows


def array_writer(tensor: Tensor, rows: int, num_lanes: int) -> Array:
    """Returns a NumPy view `[T, B, ...]` of the memory of a column; assigning to it is 5 times cheaper than with torch."""
    array: Array = tensor.numpy()[: rows * num_lanes]
    return array.reshape(rows, num_lanes, *array.shape[1:])


def masks_of(slot: Slot) -> BoolArray:
    """Returns the action masks `[n, (D,) A]` of the valid lanes of a slot.

    Raises:
        ConfigurationError: the slot has none.
    """
    if slot.mask is None:
        raise ConfigurationError(
            "every row must have an action mask in a ring with masks=True, got None. Open the stream with "
            "action_mask='info' or the key of an observation, or create the ring with masks=False."
        )
    return slot.mask if slot.full else slot.mask[slot.valid]


class StartRuleColumns:
    """Writer of the columns of a `StartRule`; counts the rows of each episode for it.

    Args:
        rule: the start rule.
        rows: number T of rows per lane.
        num_lanes: number of lanes B.
        writers: objects to which rows are assigned, by column.
    """

    def __init__(self, rule: StartRule, rows: int, num_lanes: int, writers: Mapping[str, Any]) -> None:
        self.rule = rule
        self.rows = rows
        self.writers = writers
        self.age: IntArray = np.full(num_lanes, -1)
        """Index of the open row within its episode, `[B]`."""

    def count_rows(self, slot: Slot, after_last: BoolArray) -> None:
        """Counts arriving rows; `after_last` `[B]` is True where the preceding row was `last`."""
        self.age = np.where(slot.valid, np.where(after_last, 0, self.age + 1), self.age)

    def arrive(self, where: Where, lanes: IntArray | slice, last: BoolArray) -> None:
        """Clears the departing half of rows that have arrived."""
        for name, column in self.rule.extras.items():
            if column.every == 1:
                self.writers[name][where] = 0
        self.block(where, lanes, last)

    def block(self, where: Where, lanes: IntArray | slice, last: BoolArray) -> None:
        """Marks the open rows that may never start."""
        if self.rule.every > 1:
            self.writers["blocked"][where] = last | (self.age[lanes] % self.rule.every != 0)

    def depart(self, where: Where, cursor: IntArray, extras: Extras | None, lanes: IntArray | None = None) -> None:
        """Writes the extra outputs of the policy for the open rows, of all lanes or of `lanes`."""
        for name, column in self.rule.extras.items():
            values = (extras or {})[name]
            if column.every == 1:
                self.writers[name][where] = values if lanes is None else values[lanes]
                continue
            due = np.flatnonzero((self.age % column.every == 0) & (self.age > 0))
            if lanes is not None:
                due = np.intersect1d(due, lanes)
            if len(due):
                place = (cursor[due] - 1) // column.every % column.slots(self.rows)
                self.writers[name][place, due] = values[due]

    def state_dict(self) -> dict[str, Tensor]:
        return {"age": torch.from_numpy(self.age.copy())}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.age[:] = state["age"].cpu().numpy()
