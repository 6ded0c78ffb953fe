"""Writing a checkpoint of which only the new rows are written, at once or by a thread while training goes on."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.format.atomic_write import atomic_write
from sb_dqn.checkpoint.format.zip_archive import write_archive
from sb_dqn.checkpoint.format.zip_reader import SUFFIX, Target, as_path
from sb_dqn.checkpoint.incremental.background_writer import Writing, copied
from sb_dqn.checkpoint.incremental.row_blocks import Segment, SegmentedRows
from sb_dqn.checkpoint.incremental.segments import ROWS, is_there, locked, sweep
from sb_dqn.errors import ConfigurationError

COPIED_BYTES = 2**30
"""Rows that are copied, at most, to be written while training goes on."""


def write_checkpoint(
    path: Target,
    manifest: Mapping[str, Any],
    members: Mapping[str, Mapping[str, Tensor]],
    strips: SegmentedRows,
    background: bool = False,
) -> Path | Writing:
    """`write_archive`, the rows of `strips` in segments beside the zip: only blocks that have changed are written.

    In the background, what is to be written is copied, at most `COPIED_BYTES` of rows (what is beyond them is written at
    once); a thread writes the copies.

    Raises:
        CheckpointError: something cannot be written, by name.
        ConfigurationError: `path` is an open file.
        OSError: the folder or the disk refuses; the old checkpoints are as they were.
    """
    target = as_path(path)
    if target is None:
        raise ConfigurationError("incremental=True writes files beside the zip; give a path, not an open file")
    folder = target.parent.resolve()
    target, rows = folder / target.name, folder / ROWS
    rows.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as end:
        end.callback(sweep, folder)
        end.enter_context(locked(rows, alone=False))
        blocks = _Blocks(rows, strips, COPIED_BYTES if background else 0)
        if not background:
            return _finish(target, manifest, members, blocks)
        members, rest = copied(members), end.pop_all()

    def work() -> Path:
        with rest:
            return _finish(target, manifest, members, blocks)

    return Writing(work)


def _finish(
    target: Path, manifest: Mapping[str, Any], members: Mapping[str, Mapping[str, Tensor]], blocks: _Blocks
) -> Path:
    """Segments first, the zip that names them last."""
    written = write_archive(target, {**manifest, "segments": blocks.write()}, members)
    assert written is not None
    return written


class _Blocks:
    """The blocks of a ring on their way to the disk: those that are there already, and copies of others.

    Args:
        rows: folder of segments.
        strips: the rows.
        room: bytes of copies; of the blocks that are not there yet the newest are copied, the others written at once.
    """

    def __init__(self, rows: Path, strips: SegmentedRows, room: int) -> None:
        self.rows, self.strips = rows, strips
        known = strips.written.get((rows, strips.block_rows), {})
        self.there: dict[int, Segment] = {}
        for block, segment in known.items():
            if block in strips.blocks() and is_there(rows, segment):
                self.there[block] = segment
        due = [block for block in strips.blocks() if block not in self.there]
        at_once = max(0, len(due) - room // max(strips.block_bytes, 1))
        for block in due[:at_once]:
            self.there[block] = _write(rows, block, strips.gather(block))
        self.copies = {block: strips.gather(block) for block in due[at_once:]}

    def write(self) -> dict[str, Any]:
        """Writes what is not there yet, and answers what the manifest says of all of them."""
        for block in list(self.copies):
            self.there[block] = _write(self.rows, block, self.copies.pop(block))
        strips, files = self.strips, [self.there[block] for block in sorted(self.there)]
        strips.written[self.rows, strips.block_rows] = {one.block: one for one in files if strips.is_full(one.block)}
        return {**strips.describe(), "files": [one._asdict() for one in files]}


def _write(rows: Path, block: int, tensors: Mapping[str, Tensor]) -> Segment:
    digest, planned = hashlib.sha256(), safetensors_stream.plan(f"block {block}", tensors)
    for piece in safetensors_stream.chunks(planned):
        digest.update(piece)
    name = f"{block:010d}-{digest.hexdigest()[:32]}{SUFFIX}"
    with atomic_write(rows / name) as file:
        for piece in safetensors_stream.chunks(planned):
            file.write(piece)
    return Segment(block, name, planned.length, digest.hexdigest())
