"""Files that are the whole old one or the whole new one, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

STALE_SECONDS = 60.0
"""A temporary file younger than this is never swept: its writer may not hold its lock yet."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the name `path` when the block ends well, and vanishes when it does not.

    The temporary file lies in the folder of `path` (a rename is atomic only inside one file system). It is fsynced
    before the rename and the folder after it, so that a crash leaves the old file or the new one. Parent folders are
    made. What a killed writer left behind is removed by the next write to the same path.

    Raises:
        OSError: the folder cannot be written, or the disk is full; the old file is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        # os.open and not mkstemp: the file gets the rights that the umask gives to any other file
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0), 0o666)
        try:
            with os.fdopen(handle, "w+b") as file:
                _lock(file)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _fsync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        fix = "choose a folder that exists, can be written and has room"
        raise OSError(
            error.errno or 0, f"cannot write {path}: {reason}; what was there before is as it was; {fix}"
        ) from error


def _lock(file: BinaryIO) -> bool:
    """Whether this open file now holds the lock that a living writer holds; never on Windows, which has no `flock`."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(path: Path) -> None:
    """Removes what writers of `path` that no longer live left behind."""
    for stale in path.parent.iterdir():
        if not (stale.name.startswith(f".{path.name}.") and stale.name.endswith(".tmp")):
            continue
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > STALE_SECONDS:
                with stale.open("rb") as file:
                    abandoned = _lock(file)
                if abandoned:
                    stale.unlink()


def _fsync_folder(folder: Path) -> None:
    # Some systems cannot open or sync a folder; the file itself is safe by then.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
