"""File lock that lets one process at a time write to a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

import click

LOCK = ".lock"
RETRY = 0.05
"""Seconds before a lock is tried once more."""


@contextmanager
def lock_folder(folder: Path, message: str, with_children: bool = False) -> Iterator[None]:
    """Locks `folder`, made if missing, for this process; the operating system releases the lock when the process ends.

    On file systems without locks it does nothing.

    Args:
        folder: folder to write to.
        message: error message if another process holds the lock.
        with_children: True if child processes hold the lock too, as long as they live (not on Windows).

    Raises:
        click.UsageError: another process holds the lock, or the folder is not writable.
    """
    from filelock import unlock_descriptor

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise click.UsageError(
            f"{folder} must be writable, got: {error.strerror}. Change its permissions, or choose another folder."
        ) from None
    with lock as file:
        if _acquired(file) is False:
            time.sleep(RETRY)  # `is_locked` holds a lock for a moment
            if _acquired(file) is False:
                raise click.UsageError(message)
        os.set_inheritable(file.fileno(), with_children)
        try:
            yield
        finally:
            if not with_children:
                with suppress(OSError):
                    unlock_descriptor(file.fileno())  # a process forked meanwhile has the file open, too


def lock_output(out: Path, command: str) -> AbstractContextManager[None]:
    """Locks the folder of a command that trains several runs, for this process and its children; see `lock_folder`."""
    user = f"Another `sb-dqn {command}`, or one of its runs,"
    message = f"{user} is using {out}. Wait until it ends, or choose another folder with --out."
    return lock_folder(out, message, with_children=True)


def is_locked(folder: Path) -> bool | None:
    """Returns True if a process holds the lock of `folder`; None if that cannot be known here."""
    try:
        with (folder / LOCK).open("r+") as file:  # closing it releases the lock
            acquired = _acquired(file)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return None if acquired is None else not acquired


def _acquired(file: IO[str]) -> bool | None:
    """Returns True if the lock of a file is acquired, False if another process holds it; None: there are no locks."""
    from filelock import lock_descriptor  # imports asyncio, which takes longer than to show a help text

    try:
        return lock_descriptor(file.fileno(), blocking=False)
    except OSError:
        return None
