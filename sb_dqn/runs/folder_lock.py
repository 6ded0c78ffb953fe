"""File lock that lets one process at a time write to a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import click

LOCK = ".lock"
RETRY = 0.05
"""Seconds before a lock is tried once more."""


@contextmanager
def lock_folder(folder: Path, message: str, with_children: bool = False) -> Iterator[None]:
    """Locks `folder` for this process; the operating system releases the lock when the process ends.

    Without POSIX locks, and on file systems that have none, it does nothing.

    Args:
        folder: folder to write to.
        message: error message if another process holds the lock.
        with_children: True if child processes hold the lock too, as long as they live.

    Raises:
        click.UsageError: another process holds the lock.
        click.ClickException: the folder is not writable.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        yield
        return
    with _open_lock_file(folder / LOCK) as file:
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(RETRY)  # `is_locked` holds a lock for a moment
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.UsageError(message) from None
        except OSError:  # a file system without locks
            yield
            return
        os.set_inheritable(file.fileno(), with_children)
        try:
            yield
        finally:
            if not with_children:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open, too


def is_locked(folder: Path) -> bool | None:
    """Returns True if a process holds the lock of `folder`; None if that cannot be known here."""
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return None
    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released when the file is closed
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except OSError:  # not readable, or a file system without locks
        return None
    return False


def _open_lock_file(path: Path) -> IO[str]:
    try:
        return path.open("w")
    except OSError as error:
        raise click.ClickException(
            f"{path.parent} must be writable, got: {error.strerror}. Change its permissions."
        ) from None
