"""Segment files: the rows of a ring beside the checkpoints that share them, each written once.

`FOLDER/replay_rows/{block}-{digest}.safetensors` holds one block of rows. A checkpoint `FOLDER/*.zip` names its segments
with their lengths and digests; it is written after them, so whoever sees it finds them. What no zip of the folder names is
deleted. Writers hold a shared lock on the folder of rows, from the look at what is there until their zip has its name;
whoever deletes holds it alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.format.zip_archive import model_info
from sb_dqn.checkpoint.format.zip_reader import SUFFIX, Target, as_path
from sb_dqn.checkpoint.incremental.row_blocks import Segment, Written, assemble
from sb_dqn.errors import CheckpointError

if sys.platform != "win32":
    import fcntl

ROWS = "replay_rows"
"""Folder of the segments, beside the zips."""
NAME = re.compile(r"[0-9]{10,18}-[0-9a-f]{32}" + re.escape(SUFFIX))
DIGEST = re.compile(r"[0-9a-f]{64}")


def read_rows(path: Target, manifest: Mapping[str, Any], cursor: Tensor) -> tuple[dict[str, Tensor], Written]:
    """The columns that a checkpoint keeps in segments, and which of these will never change.

    Raises:
        CheckpointError: a segment is missing or altered, or the manifest is not that of one ring.
    """
    place = as_path(path)
    if place is None:
        raise CheckpointError(
            f"the file names segments in the folder {ROWS!r} beside it; give its path, not an open file"
        )
    segments = segments_of(manifest, str(place))
    rows = place.resolve().parent / ROWS
    if not rows.is_dir():
        raise CheckpointError(f"{place} needs the folder {ROWS!r} beside it, which holds its rows; move or copy both")
    with locked(rows, alone=False):
        columns = assemble(manifest["segments"], cursor, segments, partial(_read_segment, rows))
    block_rows, departed = int(manifest["segments"]["block_rows"]), int(cursor.min()) - 1
    full = {one.block: one for one in segments if (one.block + 1) * block_rows <= departed}
    return columns, Written({(rows, block_rows): full})


def segments_of(manifest: Mapping[str, Any], label: str) -> list[Segment]:
    """The segments that a manifest names; none where it holds all of its rows itself.

    Raises:
        CheckpointError: a name is not one that a checkpoint writes, or a number is out of its range.
    """
    if "segments" not in manifest:
        return []
    try:
        found = [Segment(**entry) for entry in manifest["segments"]["files"]]
        fits = all(
            type(one.block) is int and 0 <= one.block < 10**18 and type(one.length) is int and one.length >= 8
            and NAME.fullmatch(one.name) and DIGEST.fullmatch(one.sha256)
            for one in found
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{label} does not name its segments as a checkpoint does ({error!r})") from None
    if not fits or any(one.block >= two.block for one, two in pairwise(found)):
        raise CheckpointError(f"{label} names segments that no checkpoint writes (a path, a size, or twice the same)")
    return found


def _read_segment(rows: Path, segment: Segment) -> dict[str, Tensor]:
    """The cells of one block.

    Raises:
        CheckpointError: the file is missing, no plain file, of another length, or altered.
    """
    digest = hashlib.sha256()
    with _opened(rows / segment.name, segment.length) as file:
        source = safetensors_stream.hashed(file.read, digest)
        try:
            tensors = safetensors_stream.read(segment.name, segment.length, source, {}, {})
        except CheckpointError as error:
            raise CheckpointError(f"{rows}: {error}") from None
    if digest.hexdigest() != segment.sha256:
        raise CheckpointError(f"{rows / segment.name} was altered: its SHA-256 digest is not the manifest's")
    return tensors


def sweep(folder: Path) -> None:
    """Deletes the segments that no checkpoint in `folder` names, unless one cannot be read or somebody is writing."""
    rows = folder / ROWS
    if not rows.is_dir():
        return
    with locked(rows, alone=True) as alone, contextlib.suppress(CheckpointError, OSError):
        if not alone:
            return
        named = {one.name for path in _zips(folder) for one in segments_of(model_info(path), str(path))}
        for path in list(rows.iterdir()):
            # of an unfinished one the writer no longer lives: it would hold the lock
            if _is_unfinished(path) or (NAME.fullmatch(path.name) and path.name not in named):
                path.unlink()


def checkpoint_at(path: Target) -> Target:
    """The path itself, or for a folder the full checkpoint in it whose model has learned longest.

    Raises:
        CheckpointError: there is none.
    """
    folder = as_path(path)
    if folder is None or not folder.is_dir():
        return path
    found: dict[Path, int] = {}
    for path in _zips(folder):
        with contextlib.suppress(CheckpointError, KeyError, TypeError, ValueError):
            manifest = model_info(path)
            if "full" in manifest:
                found[path] = int(manifest["state"]["counters"]["lifetime"])
    if not found:
        raise CheckpointError(f"{folder} is a folder without a full checkpoint; give the .zip file that save() wrote")
    return max(found, key=lambda path: (found[path], path.name))


def _zips(folder: Path) -> list[Path]:
    """Files that begin as a zip does, whatever they are called."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_file() and not _is_unfinished(path):
            with path.open("rb") as file:
                if file.read(2) == b"PK":
                    found.append(path)
    return found


def _is_unfinished(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")


def is_there(rows: Path, segment: Segment) -> bool:
    """Whether its file is, by name and length."""
    try:
        found = os.stat(rows / segment.name, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == segment.length


@contextlib.contextmanager
def _opened(path: Path, length: int) -> Iterator[BinaryIO]:
    # no link is followed, and a pipe in the place of a file makes nobody wait
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise CheckpointError(
            f"the segment {path} cannot be read ({error.strerror}); the zip needs the folder {ROWS!r} beside it, as it was"
        ) from error
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size != length:
            raise CheckpointError(f"the segment {path} has {found.st_size} bytes, the manifest says {length}")
        yield file


@contextlib.contextmanager
def locked(rows: Path, alone: bool) -> Iterator[bool]:
    """Whether the lock was had: a shared one is waited for. Windows has no `flock`: one writer at a time there."""
    if sys.platform == "win32":
        yield True
        return
    handle = os.open(rows, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except OSError:
            yield False
        else:
            yield True
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_UN)  # in so many words: a process forked meanwhile has the file open, too
        os.close(handle)
