"""The layout of a ring: how many rows of what, and what they weigh; checked before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from sb_dqn.buffers.memory import check_budget, human_bytes
from sb_dqn.buffers.ring_storage import Column, action_dtype, check_path, stored_dtype
from sb_dqn.buffers.start_rule import StartRule
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Space, leaf_dtype, leaf_shape


class Layout:
    """T rows for each of B lanes, and the columns of a row.

    Args: those of `Ring`.

    Raises:
        ConfigurationError: a number is out of its range, or one window does not fit into T rows.
    """

    def __init__(
        self,
        capacity: int,
        num_lanes: int,
        spaces: Mapping[str, Space],
        *,
        num_actions: int,
        frame_stack: int,
        n_steps: int,
        device: torch.device,
        path: Path | None,
        action_axes: tuple[int, ...] = (),
        masks: bool = False,
        span: StartRule | None = None,
    ) -> None:
        self.num_lanes, self.frame_stack, self.n_steps = num_lanes, frame_stack, n_steps
        self.num_actions, self.action_axes, self.device, self.path = num_actions, action_axes, device, path
        self.span = span or StartRule(frame_stack - 1, n_steps)
        shapes = {key: leaf_shape(space) for key, space in spaces.items()}
        self.stacked_keys = frozenset(key for key, shape in shapes.items() if frame_stack > 1 and len(shape) == 3)
        self._check_numbers(shapes)
        self.rows = self._checked_rows(capacity)
        self.capacity = self.rows * num_lanes
        observations = {
            f"obs/{key}": Column(shape, stored_dtype(leaf_dtype(spaces[key])), padded=key in self.stacked_keys)
            for key, shape in shapes.items()
        }
        flag = Column((), np.dtype(np.bool_))
        self.columns = observations | {
            "action": Column(action_axes, action_dtype(num_actions)),
            "reward": Column((), np.dtype(np.float32)),
            "terminal": flag,
            "last": flag,
        }
        self.columns |= self.span.columns
        if masks:
            self.columns["mask"] = Column((*action_axes, num_actions), np.dtype(np.bool_))

    def _check_numbers(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        for name, least in (("num_lanes", 1), ("frame_stack", 1), ("n_steps", 1), ("num_actions", 0)):
            value: int = getattr(self, name)
            if value < least:
                raise ConfigurationError(f"{name}={value} is not allowed; give an integer >= {least}")
        if self.frame_stack > 1 and not self.stacked_keys:
            raise ConfigurationError(
                f"frame_stack={self.frame_stack} stacks observations of three axes [channels, height, width]; "
                f"given were {dict(shapes)}. Set frame_stack=1"
            )
        if self.path is not None and self.device.type != "cpu":
            raise ConfigurationError(
                f"buffer_path={self.path} keeps replay in a file mapped by the CPU, but its device is {self.device}; "
                f"drop buffer_path, or put the buffer on 'cpu'"
            )

    def _checked_rows(self, capacity: int) -> int:
        rows, window = capacity // self.num_lanes, self.span.behind + 1 + self.span.ahead
        if rows < window:
            plain = window == self.n_steps + self.frame_stack
            of = "n_steps + frame_stack" if plain else "one whole sequence with its burn-in and bootstrap"
            raise ConfigurationError(
                f"buffer_size={capacity} over {self.num_lanes} lanes is {rows} rows a lane, fewer than "
                f"{of} = {window}; set buffer_size to at least {window * self.num_lanes}"
            )
        return rows

    @property
    def bytes_per_row(self) -> int:
        """Bytes of one row of one lane, everything included."""
        return sum(-(-column.nbytes // column.every) for column in self.columns.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the whole ring."""
        return sum(column.nbytes * column.cells(self.rows, self.num_lanes) for column in self.columns.values())

    def check_place(self) -> None:
        """Refuses a ring that cannot fit where it shall lie.

        Raises:
            ConfigurationError: the file cannot be made, or is not ours to replace.
            MemoryBudgetError: it needs more bytes than are at hand.
        """
        if self.path is not None:
            check_path(self.path)
        what = f"a replay buffer of {self.capacity:,} rows of {self.bytes_per_row:,} bytes"
        check_budget(self.nbytes, self.device, self.path, what)

    def describe(self) -> str:
        """One line for people: rows, lanes, size, place."""
        in_memory = "in memory" if self.device.type == "cpu" else f"on {self.device}"
        place = in_memory if self.path is None else f"in file {self.path}"
        return (
            f"replay of {self.capacity:,} rows ({self.num_lanes} x {self.rows:,}): "
            f"{human_bytes(self.nbytes)} {place}, {self.bytes_per_row:,} bytes a row"
        )
