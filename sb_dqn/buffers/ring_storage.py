"""The columns of a ring: where their bytes lie (memory, a mapped file, a GPU) and how one row is written into them."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.errors import ConfigurationError
from sb_dqn.types import BoolArray, Slot

MAGIC = b"sb_dqn replay buffer: scratch\n\0\0"
ALIGNMENT = 64
WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
"""Unsigned types in which torch can hardly compute are kept in the next signed one."""

Where = int | tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
"""A row of all lanes, or the rows and lanes of single cells."""


@dataclass(frozen=True)
class Column:
    """What one cell (one row of one lane) holds."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    padded: bool = False
    """One more cell of zeros at the end: what a frame stack reads before the stream's first frame."""
    every: int = 1
    """Rows that share a cell: whoever writes makes sure that at most one of them needs it (`StartRule`)."""

    @property
    def nbytes(self) -> int:
        """Bytes of one cell."""
        return math.prod(self.shape) * self.dtype.itemsize

    def slots(self, rows: int) -> int:
        """Cells of one lane for `rows` rows; one more where rows share them, since the oldest ones may share theirs with
        rows that are gone."""
        return rows if self.every == 1 else -(-rows // self.every) + 1

    def begun(self, rows: Any) -> Any:
        """Cells, counted for ever, that the first `rows` rows of a lane reach into; a number, or an array of them."""
        return -(-rows // self.every)

    def held(self, rows: int, newest: int) -> int:
        """Cells of one lane for `rows` rows that hold something once `newest` rows have arrived in it."""
        return min(int(self.begun(newest)), self.slots(rows))

    def cells(self, rows: int, num_lanes: int) -> int:
        """Cells of all lanes for `rows` rows each."""
        return self.slots(rows) * num_lanes + self.padded


def stored_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype itself, or the one that stands for it in torch."""
    return np.dtype(WIDER.get(np.dtype(dtype).name, dtype))


def action_dtype(num_actions: int) -> np.dtype[Any]:
    """The smallest of uint8, int16 and int64 that holds 0 .. num_actions - 1; float32 where there is nothing to count."""
    if num_actions == 0:
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if num_actions <= 256 else np.int16 if num_actions <= 32768 else np.int64)


class DeviceColumn:
    """Writes into a tensor that numpy cannot see, through a pinned row of memory; indexed like [T, B, ...]."""

    def __init__(self, tensor: Tensor, rows: int, num_lanes: int) -> None:
        self.flat = tensor[: rows * num_lanes]
        self.by_row = self.flat.view(rows, num_lanes, *tensor.shape[1:])
        on_cuda = tensor.device.type == "cuda"
        self.stage = torch.zeros(self.by_row.shape[1:], dtype=tensor.dtype, pin_memory=on_cuda)
        self.stage_array = self.stage.numpy()
        self.copied = torch.cuda.Event() if on_cuda else None  # type: ignore[no-untyped-call]  # untyped in torch

    def __setitem__(self, where: Where, values: Any) -> None:
        if self.copied is not None:
            self.copied.synchronize()  # the copy before this one must have left the stage
        if isinstance(where, tuple):
            rows, lanes = where
            stage = self.stage[: len(rows)]
            self.stage_array[: len(rows)] = values
            cells = torch.from_numpy(rows * len(self.stage) + lanes).to(self.flat.device)
            self.flat.index_copy_(0, cells, stage.to(self.flat.device, non_blocking=True))
        else:
            self.stage_array[:] = values
            self.by_row[where].copy_(self.stage, non_blocking=True)
        if self.copied is not None:
            self.copied.record()


def allocate(
    columns: Mapping[str, Column], rows: int, num_lanes: int, device: torch.device, path: Path | None
) -> dict[str, Tensor]:
    """Zeros `[rows * num_lanes (+ 1), *shape]` for each column; pages of memory or file come when first written."""
    shapes = {name: (column.cells(rows, num_lanes), *column.shape) for name, column in columns.items()}
    if path is not None:
        return _map_file(columns, shapes, path)
    if device.type == "cpu":
        return {name: torch.from_numpy(_mapped(shapes[name], column.dtype)) for name, column in columns.items()}
    return {
        name: torch.zeros(shapes[name], dtype=torch.from_numpy(np.zeros(0, column.dtype)).dtype, device=device)
        for name, column in columns.items()
    }


def _mapped(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Zeros in pages of their own: `np.zeros` would touch all of them where the C library keeps freed blocks."""
    count = math.prod(shape)
    return np.frombuffer(mmap.mmap(-1, max(1, count * dtype.itemsize)), dtype, count).reshape(shape)


def writer(tensor: Tensor, rows: int, num_lanes: int) -> npt.NDArray[Any] | DeviceColumn:
    """What to assign rows to: a numpy view of the same memory (5 times cheaper than torch), or a staged column."""
    if tensor.device.type != "cpu":
        return DeviceColumn(tensor, rows, num_lanes)
    array: npt.NDArray[Any] = tensor.numpy()[: rows * num_lanes]
    return array.reshape(rows, num_lanes, *array.shape[1:])


def check_path(path: Path) -> None:
    """Refuses a path whose file cannot be made, or is not ours to replace.

    Raises:
        ConfigurationError: it is a folder, lies in none, or belongs to something else.
    """
    if path.is_dir() or not path.parent.is_dir():
        example = (path if path.is_dir() else Path.cwd()) / "replay.bin"
        raise ConfigurationError(f"buffer_path={path} must name a file in a folder that exists, such as {example}")
    if path.exists():
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ConfigurationError(
                    f"buffer_path={path} exists and is no replay buffer; name another, or delete it"
                )


def masks_of(slot: Slot) -> BoolArray:
    """The masks `[n, (D,) A]` of the lanes in which a slot is valid.

    Raises:
        ConfigurationError: it has none.
    """
    if slot.mask is None:
        raise ConfigurationError(
            "the ring keeps masks, but what arrived has none; open the stream with action_mask='info' or the key of an "
            "observation, or make the ring with masks=False"
        )
    return slot.mask if slot.full else slot.mask[slot.valid]


def _map_file(columns: Mapping[str, Column], shapes: Mapping[str, tuple[int, ...]], path: Path) -> dict[str, Tensor]:
    """One sparse file behind all columns. What an earlier run left is unlinked; who has it open keeps it."""
    path.unlink(missing_ok=True)
    path.write_bytes(MAGIC)
    offset, tensors = ALIGNMENT, {}
    for name, column in columns.items():
        tensors[name] = torch.from_numpy(np.memmap(path, column.dtype, "r+", offset, shapes[name]))
        offset += -(-math.prod(shapes[name]) * column.dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return tensors
