"""Segment files: replay rows that the checkpoints of a folder share, each written once.

`FOLDER/replay_rows/{block}-{digest}.safetensors` contains one block of rows. A checkpoint `FOLDER/*.zip` lists its segments
with their lengths and digests. The zip is written after them, so the segments of a complete zip exist. Segments that no zip
of the folder lists are deleted. Writers hold a shared lock on the folder of segments, from the check which segments exist
until the zip is renamed; deletion takes an exclusive lock.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.format.zip_reader import MANIFEST, SUFFIX, Target, as_path, model_info
from sb_dqn.checkpoint.incremental.row_blocks import Assembly, Segment, WrittenBlocks
from sb_dqn.errors import CheckpointError, checkpoint_errors
from sb_dqn.types import Settings

if sys.platform != "win32":
    import fcntl

ROWS = "replay_rows"
"""Folder of the segments, next to the zips."""
NAME = re.compile(r"[0-9]{10,18}-[0-9a-f]{32}" + re.escape(SUFFIX))
DIGEST = re.compile(r"[0-9a-f]{64}")


def read_rows(path: Target, manifest: Settings, cursor: Tensor) -> tuple[dict[str, Tensor], WrittenBlocks]:
    """Reads the columns of a checkpoint from its segments; also returns the segments that will never change.

    Raises:
        CheckpointError: a segment is missing or altered, or the manifest does not describe one ring.
    """
    zip_path = as_path(path)
    if zip_path is None:
        raise CheckpointError(
            f"the file lists segments in the folder {ROWS!r} next to it. Pass its path, not an open file."
        )
    segments = segments_of(manifest, str(zip_path))
    folder = zip_path.resolve().parent / ROWS
    if not folder.is_dir():
        raise CheckpointError(
            f"{zip_path} needs the folder {ROWS!r} next to it, which has its rows. Move or copy both."
        )
    assembly = Assembly(manifest["segments"], cursor, sum(segment.length for segment in segments))
    with lock_folder(folder, exclusive=False):
        for segment in segments:
            assembly.add(segment.block, _read_segment(folder, segment))
    block_rows, departed = int(manifest["segments"]["block_rows"]), int(cursor.min()) - 1
    final = {segment.block: segment for segment in segments if (segment.block + 1) * block_rows <= departed}
    return assembly.finish(), WrittenBlocks({(folder, block_rows): final})


def segments_of(manifest: Settings, label: str) -> list[Segment]:
    """Returns the segments that a manifest lists; none if the file has all of its rows itself.

    Raises:
        CheckpointError: a name has another form than a checkpoint writes, or a number is out of range.
    """
    if "segments" not in manifest:
        return []
    with checkpoint_errors(f"{label} has a malformed list of segments", passed=(CheckpointError,)):
        segments = [Segment(**entry) for entry in manifest["segments"]["files"]]
        valid = all(map(_is_valid, segments))
    if not valid or any(before.block >= after.block for before, after in pairwise(segments)):
        raise CheckpointError(
            f"{label} lists segments that no checkpoint writes (a path, a wrong size, or a repetition). Load another copy."
        )
    return segments


def _is_valid(segment: Segment) -> bool:
    return (
        type(segment.block) is int
        and 0 <= segment.block < 10**18
        and type(segment.length) is int
        and segment.length >= 8
        and NAME.fullmatch(segment.name) is not None
        and DIGEST.fullmatch(segment.sha256) is not None
    )


def _read_segment(folder: Path, segment: Segment) -> dict[str, Tensor]:
    """Reads the cells of one block."""
    with _open_segment(folder / segment.name, segment.length) as file:
        try:
            return safetensors_stream.read(segment.name, segment.length, file.read, {}, {}, segment.sha256)
        except CheckpointError as error:
            raise CheckpointError(f"{folder}: {error}") from None


def remove_unused_segments(folder: Path) -> None:
    """Deletes segments that no checkpoint in `folder` lists; skipped if one is unreadable or a writer has the lock."""
    rows = folder / ROWS
    if not rows.is_dir():
        return
    with lock_folder(rows, exclusive=True) as acquired, contextlib.suppress(CheckpointError, OSError):
        if not acquired:
            return
        models = [path for path in _zips(folder) if _may_be_model(path)]
        used = {segment.name for path in models for segment in segments_of(model_info(path), str(path))}
        for path in list(rows.iterdir()):
            # the writer of an unfinished file no longer runs, since it would hold the lock
            if _is_unfinished(path) or (NAME.fullmatch(path.name) and path.name not in used):
                path.unlink()


def find_checkpoint(path: Target) -> Target:
    """Returns `path`, or, for a folder, the full checkpoint in it with the most training steps.

    Raises:
        CheckpointError: the folder has no full checkpoint.
    """
    folder = as_path(path)
    if folder is None or not folder.is_dir():
        return path
    steps: dict[Path, int] = {}
    for path in _zips(folder):
        with contextlib.suppress(CheckpointError, KeyError, TypeError, ValueError):
            manifest = model_info(path)
            if "full" in manifest:
                steps[path] = int(manifest["state"]["counters"]["lifetime"])
    if not steps:
        raise CheckpointError(
            f"path must be a full checkpoint, got the folder {folder} without one. Pass the .zip file that save() wrote."
        )
    return max(steps, key=lambda path: (steps[path], path.name))


def _zips(folder: Path) -> list[Path]:
    """Returns the files that begin as a zip does, with any name."""
    paths = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and not _is_unfinished(path):
            with path.open("rb") as file:
                if file.read(2) == b"PK":
                    paths.append(path)
    return paths


def _may_be_model(path: Path) -> bool:
    """Returns False for a whole zip of another kind, such as `evaluations.npz`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except zipfile.BadZipFile:
        return True  # damaged


def _is_unfinished(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")


def segment_exists(folder: Path, segment: Segment) -> bool:
    """Returns True if the file exists and has the right length."""
    try:
        status = os.stat(folder / segment.name, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == segment.length


@contextlib.contextmanager
def _open_segment(path: Path, length: int) -> Iterator[BinaryIO]:
    # links are not followed, and opening a pipe does not block
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise CheckpointError(
            f"the segment {path} cannot be read ({error.strerror}). Keep the folder {ROWS!r} next to the zip, "
            f"unchanged."
        ) from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size != length:
            raise CheckpointError(
                f"the segment {path} must have {length} bytes, as in the manifest, got {status.st_size}. Load another copy."
            )
        yield file


@contextlib.contextmanager
def lock_folder(folder: Path, exclusive: bool) -> Iterator[bool]:
    """Locks a folder for the block; yields True if the lock was acquired.

    Waits for a shared lock, but not for an exclusive one. Windows has no `flock`: only one process may write there.
    """
    if sys.platform == "win32":
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except OSError:
            yield False
        else:
            yield True
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # closing alone would not unlock: a forked process has the file open too
        os.close(handle)
