"""Incremental checkpoints: only new replay rows are written, at once or in a background thread."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.format.zip_reader import SUFFIX, Target, as_path
from sb_dqn.checkpoint.format.zip_writer import write_archive
from sb_dqn.checkpoint.incremental.row_blocks import Segment, SegmentedRows
from sb_dqn.checkpoint.incremental.segments import ROWS, lock_folder, remove_unused_segments, segment_exists
from sb_dqn.errors import ConfigurationError
from sb_dqn.files import atomic_write
from sb_dqn.types import Settings

MAX_COPIED_BYTES = 2**30
"""Limit on the rows that are copied to be written in the background."""


def write_checkpoint(
    path: Target,
    manifest: Settings,
    members: Mapping[str, Mapping[str, Tensor]],
    rows: SegmentedRows,
    background: bool = False,
) -> Path | BackgroundWrite:
    """Writes a checkpoint like `write_archive`, with `rows` in segments next to the zip; unchanged blocks are not rewritten.

    In the background, a thread writes copies of the data. At most `MAX_COPIED_BYTES` of rows are copied; the blocks beyond
    that are written before this function returns.

    Raises:
        CheckpointError: an entry cannot be saved; the message names it.
        ConfigurationError: `path` is an open file.
        OSError: the folder is not writable, or the disk is full; earlier checkpoints are unchanged.
    """
    target = as_path(path)
    if target is None:
        raise ConfigurationError(
            "path must be a path with incremental=True, which writes files next to the zip, got an open file. Pass a path."
        )
    folder = target.parent.resolve()
    target, segments = folder / target.name, folder / ROWS
    segments.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.callback(remove_unused_segments, folder)
        stack.enter_context(lock_folder(segments, exclusive=False))
        blocks = _BlockWriter(segments, rows, MAX_COPIED_BYTES if background else 0)
        if not background:
            return _finish(target, manifest, members, blocks)
        members, cleanup = copy_members(members), stack.pop_all()

    def write() -> Path:
        with cleanup:
            return _finish(target, manifest, members, blocks)

    return BackgroundWrite(write)


def _finish(
    target: Path, manifest: Settings, members: Mapping[str, Mapping[str, Tensor]], blocks: _BlockWriter
) -> Path:
    """Writes the segments first and the zip that lists them last."""
    path = write_archive(target, {**manifest, "segments": blocks.write()}, members)
    assert path is not None
    return path


class _BlockWriter:
    """Writer of the blocks of a ring that are not on the disk yet.

    Copies the newest of them, up to a limit, for `write`, and writes the others immediately.

    Args:
        folder: folder of the segments.
        rows: rows of the ring.
        max_copied_bytes: limit on the copies.
    """

    def __init__(self, folder: Path, rows: SegmentedRows, max_copied_bytes: int) -> None:
        self.folder = folder
        self.rows = rows
        final = rows.written.get((folder, rows.block_rows), {})
        self.on_disk: dict[int, Segment] = {}
        for block, segment in final.items():
            if block in rows.blocks() and segment_exists(folder, segment):
                self.on_disk[block] = segment
        due = [block for block in rows.blocks() if block not in self.on_disk]
        at_once = max(0, len(due) - max_copied_bytes // max(rows.bytes_of(rows.block_rows), 1))
        for block in due[:at_once]:
            self.on_disk[block] = _write_segment(folder, block, rows.gather(block))
        self.copies = {block: rows.gather(block) for block in due[at_once:]}

    def write(self) -> dict[str, Any]:
        """Writes the copied blocks; returns the entry of the manifest that describes all blocks."""
        for block in list(self.copies):
            self.on_disk[block] = _write_segment(self.folder, block, self.copies.pop(block))
        rows = self.rows
        segments = [self.on_disk[block] for block in sorted(self.on_disk)]
        final = {segment.block: segment for segment in segments if rows.is_final(segment.block)}
        rows.written[self.folder, rows.block_rows] = final
        return {**rows.describe(), "files": [segment._asdict() for segment in segments]}


def _write_segment(folder: Path, block: int, tensors: Mapping[str, Tensor]) -> Segment:
    digest = hashlib.sha256()
    layout = safetensors_stream.plan(f"block {block}", tensors)
    for chunk in safetensors_stream.chunks(layout):
        digest.update(chunk)
    name = f"{block:010d}-{digest.hexdigest()[:32]}{SUFFIX}"
    with atomic_write(folder / name) as file:
        for chunk in safetensors_stream.chunks(layout):
            file.write(chunk)
    return Segment(block, name, layout.length, digest.hexdigest())


class BackgroundWrite:
    """A checkpoint that a thread is writing. The interpreter waits for the thread before it exits.

    Args:
        write: writes the checkpoint and returns its path.
    """

    def __init__(self, write: Callable[[], Path | None]) -> None:
        executor = ThreadPoolExecutor(1, "sb_dqn checkpoint")
        self._future = executor.submit(write)
        executor.shutdown(wait=False)  # the thread ends with the file, and frees the copies

    @property
    def finished(self) -> bool:
        """True once the checkpoint has been written or has failed."""
        return self._future.done()

    def wait(self) -> Path | None:
        """Waits until the checkpoint has been written and returns its path; None for an open file.

        Raises:
            OSError: writing failed; earlier checkpoints are unchanged.
        """
        return self._future.result()


def copy_members(members: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Copies tensors to new memory on the CPU; tied tensors stay tied."""
    return {name: _copy_tensors(tensors) for name, tensors in members.items()}


def _copy_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    copies: dict[Any, Tensor] = {}
    result = {}
    for name, tensor in tensors.items():
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if identity not in copies or not tensor.numel():
            copies[identity] = tensor.detach().clone().cpu()
        result[name] = copies[identity]
    return result
