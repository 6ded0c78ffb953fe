"""Frame stacking: builds stacks from single frames, by the same rule for replay and for acting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.spaces import Space
from sb_dqn.types import IntArray, Observation, Rows


def stack_cells(ring: Ring, cells: Tensor) -> Tensor:
    """Replaces the frames of a window that belong to an earlier episode by the ring's frame of zeros.

    Args:
        ring: with frame stack K > 1.
        cells: `[N, K + m]` int64 cells of rows r - K + 1 .. r + m of one lane each; none of r .. r + m - 1 is `last`.

    Returns:
        `[N, K + m]` int64. The frame at row j < r is used only if no row of j .. r - 1 is `last`. Cells before the first row
        of a lane need no special case: they have never been written and are zero.
    """
    older = cells[:, : ring.frame_stack - 1]
    ended = ring.last.take(older)
    # [N, K - 1]: an episode ended at this row or between it and r
    other_episode = (ended.unsqueeze(1) & ring.not_before).any(-1)
    return torch.cat([torch.where(other_episode, ring.capacity, older), cells[:, ring.frame_stack - 1 :]], dim=1)


def take_frames(frames: Tensor, cells: Tensor) -> Tensor:
    """Concatenates frames `[cells, C, H, W]` at `[N, W]` cells along the channels: `[N, W * C, H, W]`."""
    count, width = cells.shape
    channels, *image = frames.shape[1:]
    return frames.index_select(0, cells.reshape(-1)).view(count, width * channels, *image)


def observations_at(ring: Ring, lane: Tensor, row: Tensor) -> dict[str, Tensor]:
    """Returns the observations by key at rows `[N]` (absolute) of lanes `[N]`, as new tensors: `[N, K * C, H, W]` for stacked
    frames, else `[N, *shape]`."""
    newest = ring.cells(lane, row)
    if not ring.stacked_keys:
        return {key: column.index_select(0, newest) for key, column in ring.obs.items()}
    window = torch.arange(1 - ring.frame_stack, 1, device=row.device)
    frames = stack_cells(ring, ring.cells(lane[:, None], row[:, None] + window))
    return {
        key: take_frames(column, frames) if key in ring.stacked_keys else column.index_select(0, newest)
        for key, column in ring.obs.items()
    }


class RingObservations(Mapping[str, Tensor]):
    """Observations by key at rows of lanes, in a ring that the CPU cannot address; read when they are used.

    A traced network reads them itself, from lanes and rows that are sent in one copy with its other inputs.

    Args:
        ring: the ring.
        lanes, rows: `[N]`, absolute rows.
    """

    def __init__(self, ring: Ring, lanes: IntArray, rows: IntArray) -> None:
        self.ring = ring
        self.lanes = lanes
        self.rows = rows

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The observations on the device."""
        places = (torch.from_numpy(each).to(self.ring.device) for each in (self.lanes, self.rows))
        return observations_at(self.ring, *places)

    def __getitem__(self, key: str) -> Tensor:
        return self.tensors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


class FrameStack:
    """The last K frames of each lane, for acting: a ring of K + 1 rows, stacked as in replay but with NumPy, because for a few
    lanes torch's overhead per operation exceeds the time of all of them.

    Args:
        frame_stack: number of frames K >= 1.
        num_lanes: number of lanes B.
        spaces: leaf spaces of one lane, single frames; leaves that are not frames are returned unchanged.
    """

    def __init__(self, frame_stack: int, num_lanes: int, spaces: Mapping[str, Space]) -> None:
        rows = (frame_stack + 1) * num_lanes
        layout = Layout(rows, num_lanes, spaces, num_actions=1, frame_stack=frame_stack)
        self.ring = Ring(layout, host_visible=True)
        self._lanes = np.arange(num_lanes)[:, None]
        self._window = np.arange(-frame_stack, 0)
        self._columns = {key: column.numpy() for key, column in self.ring.obs.items()}  # the same memory
        self._last = self.ring.last.numpy()

    def extend(self, rows: Rows) -> None:
        """Adds the arrivals of a tick of all lanes; the row after a `last` one, and a restart, start a new stack."""
        if rows.action is None:
            self.ring.cut()
        for slot in rows.slots:
            self.ring.arrive(slot)

    def stacked(self) -> Observation:
        """Returns the newest observation of every lane by key, as new arrays: `[B, K * C, H, W]` for frames, else
        `[B, *shape]`."""
        ring = self.ring
        cells = (ring.cursor[:, None] + self._window) % ring.rows * ring.num_lanes + self._lanes  # [B, K]
        ended = self._last[cells[:, -2::-1]]  # from the second newest backwards
        if ended.any():
            cells[:, -2::-1][np.logical_or.accumulate(ended, 1)] = ring.capacity  # the frame of zeros
        obs = {}
        for key, column in self._columns.items():
            taken = column[cells if key in ring.stacked_keys else cells[:, -1]]
            obs[key] = taken.reshape(len(taken), -1, *taken.shape[3:]) if key in ring.stacked_keys else taken
        return obs
