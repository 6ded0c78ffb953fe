"""A folder that one process at a time may write to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import click

LOCK = ".lock"


@contextmanager
def alone_in(folder: Path, refusal: str, with_children: bool = False) -> Iterator[None]:
    """Hold `folder` for this process; whatever ends the process lets go of it.

    Args:
        folder: that is written to.
        refusal: what is said where another process holds it.
        with_children: whether the processes that are started hold it, too, as long as they live.

    Raises:
        click.UsageError: another process holds it.
        click.ClickException: nothing can be written there.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system: the user takes care
        yield
        return
    with _opened(folder / LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.UsageError(refusal) from None
        except OSError:  # a file system without locks: the user takes care here, too
            yield
            return
        os.set_inheritable(file.fileno(), with_children)
        try:
            yield
        finally:
            if not with_children:
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)  # a process forked meanwhile has the file open, too


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("w")
    except OSError as error:
        raise click.ClickException(f"cannot write to {path.parent}: {error.strerror}") from None
