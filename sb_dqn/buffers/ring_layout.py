"""Ring layout: the columns of a replay ring, which rows may start a sample, and the size in bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Space, flatten_space, leaf_dtype, leaf_shape

WIDER = {"uint16": np.int32, "uint32": np.int64, "uint64": np.int64}
"""Storage types of the unsigned types that torch hardly supports: the next wider signed one."""


@dataclass(frozen=True)
class ColumnSpec:
    """Contents of one cell (one row of one lane) of a column."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    padded: bool = False
    """Adds one cell of zeros at the end, which a frame stack reads before the first frame of a stream."""
    every: int = 1
    """Number of consecutive rows that share a cell. The writer ensures that at most one of them uses it (`StartRule`)."""

    @property
    def nbytes(self) -> int:
        """Number of bytes of one cell."""
        return math.prod(self.shape) * self.dtype.itemsize

    def slots(self, rows: int) -> int:
        """Returns the cells per lane for `rows` rows; one extra where rows share cells, since the oldest rows held may
        share theirs with overwritten ones."""
        return rows if self.every == 1 else -(-rows // self.every) + 1

    def started(self, rows: Any) -> Any:
        """Returns how many cells the first `rows` rows of a lane touch, ignoring wrap-around; a number or an array."""
        return -(-rows // self.every)

    def held(self, rows: int, newest: int) -> int:
        """Returns the non-empty cells per lane, for `rows` rows per lane of which `newest` have arrived in total."""
        return min(int(self.started(newest)), self.slots(rows))

    def cells(self, rows: int, num_lanes: int) -> int:
        """Returns the number of cells over all lanes for `rows` rows per lane."""
        return self.slots(rows) * num_lanes + self.padded


@dataclass(frozen=True)
class StartRule:
    """Rule for the rows that may start a sample, and the window of rows read around them.

    Args:
        behind: rows read before the start row, >= 0.
        ahead: rows read after it, >= 1.
        every: stride of the start rows within an episode, counted from its first row, >= 1.
        extras: additional columns, written by `Ring.depart`. A column whose `ColumnSpec.every` equals `every` is written only
            at start rows other than the first row of an episode: any two of these are `every` rows apart.
    """

    behind: int
    ahead: int
    every: int = 1
    extras: Mapping[str, ColumnSpec] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """True if every row may start and there are no additional columns."""
        return self.every == 1 and not self.extras

    @property
    def columns(self) -> dict[str, ColumnSpec]:
        """Columns that this rule adds to a ring."""
        blocked = {"blocked": ColumnSpec((), np.dtype(np.bool_))} if self.every > 1 else {}
        return {**self.extras, **blocked}


class Layout:
    """Layout of a ring: T rows for each of B lanes, and the columns of a row.

    Args:
        capacity: rows over all lanes, >= num_lanes * (n_steps + frame_stack).
        num_lanes: B, >= 1.
        spaces: leaf spaces of one lane by key, as in the environment (single frames `[C, H, W]` if frame_stack > 1).
        num_actions: A (of the largest branch), which determines the dtype of actions; 0 for a Box, float32.
        frame_stack: K >= 1; with K > 1 each leaf with three axes is a frame, stored once, stacked along its first axis.
        n_steps: n >= 1.
        device: device of the tensors.
        path: file to map them from instead of memory (CPU only); scratch space, not a checkpoint.
        action_axes: shape of one action: `()`, `(D,)` for branches, or that of a Box.
        masks: True stores action masks; every slot must have one.
        start_rule: rule for sequences. If None, samples are transitions.

    Raises:
        ConfigurationError: nothing to stack, a file on a GPU, or too few rows for one window.
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
        start_rule: StartRule | None = None,
    ) -> None:
        self.num_lanes = num_lanes
        self.frame_stack = frame_stack
        self.n_steps = n_steps
        self.num_actions = num_actions
        self.action_axes = action_axes
        self.device = torch.device(device)
        self.path = path
        self.start_rule = start_rule or StartRule(frame_stack - 1, n_steps)
        self.keys = tuple(spaces)
        shapes = {key: leaf_shape(space) for key, space in spaces.items()}
        self.stacked_keys = frozenset(key for key, shape in shapes.items() if frame_stack > 1 and len(shape) == 3)
        self._check_storage(shapes)
        self.rows = self._checked_rows(capacity)
        self.capacity = self.rows * num_lanes
        observations = {
            f"obs/{key}": ColumnSpec(shape, stored_dtype(leaf_dtype(spaces[key])), padded=key in self.stacked_keys)
            for key, shape in shapes.items()
        }
        flag = ColumnSpec((), np.dtype(np.bool_))
        self.columns = observations | {
            "action": ColumnSpec(action_axes, action_dtype(num_actions)),
            "reward": ColumnSpec((), np.dtype(np.float32)),
            "terminal": flag,
            "last": flag,
        }
        self.columns |= self.start_rule.columns
        if masks:
            self.columns["mask"] = ColumnSpec((*action_axes, num_actions), np.dtype(np.bool_))

    @classmethod
    def for_stream(cls, stream: Any, capacity: int, device: torch.device, **further: Any) -> Layout:
        """Returns the layout for the lanes, spaces and masks of a stream.

        Args:
            stream: the stream.
            capacity: rows over all lanes.
            device: device of the tensors.
            further: `n_steps`, `path` and `start_rule`.
        """
        actions = stream.action_shape
        return cls(
            capacity,
            stream.num_envs,
            flatten_space(stream.observation_space),
            num_actions=actions.num_actions,
            frame_stack=stream.blueprint.frame_stack,
            device=device,
            action_axes=actions.shape,
            masks=stream.has_masks,
            **further,
        )

    def _check_storage(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        if self.frame_stack > 1 and not self.stacked_keys:
            raise ConfigurationError(
                f"frame_stack must be 1 for observations without three axes [channels, height, width], got "
                f"{self.frame_stack} for shapes {dict(shapes)}. Set frame_stack=1."
            )
        if self.path is not None and self.device.type != "cpu":
            raise ConfigurationError(
                f"buffer_path must be None for a buffer on {self.device}, got {self.path}: only the CPU maps files. "
                f"Remove buffer_path, or set buffer_device='cpu'."
            )

    def _checked_rows(self, capacity: int) -> int:
        rows = capacity // self.num_lanes
        window = self.start_rule.behind + 1 + self.start_rule.ahead
        if rows < window:
            plain = window == self.n_steps + self.frame_stack
            whole = "one sequence with its burn-in and bootstrap rows" if self.start_rule.every > 1 else "one sample"
            needed = "n_steps + frame_stack" if plain else whole
            raise ConfigurationError(
                f"buffer_size must be at least {window * self.num_lanes}, got {capacity}: that is {rows} rows for each of "
                f"{self.num_lanes} lanes, and a lane needs {needed} = {window}. Increase buffer_size."
            )
        return rows

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row of one lane, all columns included."""
        return sum(-(-column.nbytes // column.every) for column in self.columns.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the whole ring; host memory and files take up space only as rows are written."""
        return sum(column.nbytes * column.cells(self.rows, self.num_lanes) for column in self.columns.values())

    def describe(self) -> str:
        """Returns one line of text that describes rows, lanes, size and location."""
        in_memory = "in memory" if self.device.type == "cpu" else f"on {self.device}"
        place = in_memory if self.path is None else f"in file {self.path}"
        return (
            f"replay of {self.capacity:,} rows ({self.num_lanes} x {self.rows:,}): "
            f"{human_bytes(self.nbytes)} {place}, {self.bytes_per_row:,} bytes a row"
        )


def stored_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Returns the dtype in which values of `dtype` are stored: the same, or a wider signed one that torch supports."""
    return np.dtype(WIDER.get(np.dtype(dtype).name, dtype))


def action_dtype(num_actions: int) -> np.dtype[Any]:
    """Returns the smallest of uint8, int16 and int64 that holds 0 .. num_actions - 1; float32 if `num_actions` is 0 (Box)."""
    if num_actions == 0:
        return np.dtype(np.float32)
    return np.dtype(np.uint8 if num_actions <= 256 else np.int16 if num_actions <= 32768 else np.int64)


def human_bytes(count: float) -> str:
    """Formats bytes with a binary unit, such as `673.6 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
