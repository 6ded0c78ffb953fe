"""Naive ring in NumPy whose values follow from row and lane, and helpers to save and load it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from sb_dqn.checkpoint import (
    SegmentColumn,
    SegmentedRows,
    WrittenBlocks,
    find_checkpoint,
    model_info,
    read_archive,
    read_rows,
    write_checkpoint,
)


class NaiveRing:
    """Ring of T rows and B lanes with two columns: one cell per row, and one cell per three rows (written at the third).

    Args:
        rows: T.
        lanes: B.
        width: number of float64 values in a cell of the first column.
    """

    def __init__(self, rows: int, lanes: int, width: int = 2) -> None:
        self.rows = rows
        self.cursor = np.zeros(lanes, np.int64)
        self.each = np.zeros((rows, lanes, width))
        self.third = np.zeros((-(-rows // 3) + 1, lanes), np.int16)
        self.written = WrittenBlocks()

    def arrive(self, lanes: np.ndarray) -> None:
        """Adds one row to each of these lanes; the rows before them depart."""
        for lane in lanes:
            row = int(self.cursor[lane])
            if row:
                self.each[(row - 1) % self.rows, lane, -1] = row - 1  # the departing half
                if row % 3 == 0:
                    self.third[(row - 1) // 3 % len(self.third), lane] = row - 1
            self.each[row % self.rows, lane] = row * 10 + lane
            self.each[row % self.rows, lane, -1] = -1
            self.cursor[lane] += 1

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the columns as a checkpoint without segments has them."""
        newest = int(self.cursor.max())
        each, third = min(newest, self.rows), min(-(-newest // 3), len(self.third))
        return {"each": torch.from_numpy(self.each[:each].copy()), "third": torch.from_numpy(self.third[:third].copy())}

    def segmented_rows(self) -> SegmentedRows:
        columns = {
            "each": SegmentColumn(torch.from_numpy(self.each), 1),
            "third": SegmentColumn(torch.from_numpy(self.third), 3),
        }
        return SegmentedRows(columns, self.cursor.copy(), self.written)

    def save(self, path: Path) -> None:
        steps = int(self.cursor.sum())
        manifest = {"kind": "model", "full": {}, "state": {"counters": {"lifetime": steps}}}
        write_checkpoint(
            path, manifest, {"experience": {"cursor": torch.from_numpy(self.cursor.copy())}}, self.segmented_rows()
        )


def load(path: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor], WrittenBlocks]:
    """Loads cursors, columns and final segments of a checkpoint, or of the newest one in a folder."""
    checkpoint = find_checkpoint(path)
    cursor = read_archive(checkpoint)[1]["experience"]["cursor"]
    return cursor, *read_rows(checkpoint, model_info(checkpoint), cursor)


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "replay_rows").iterdir())
