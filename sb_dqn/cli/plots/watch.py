"""Repeated drawing of a plot while its runs go on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from sb_dqn.errors import ConfigurationError
from sb_dqn.runs.folder import CONFIG, read_result
from sb_dqn.runs.folder_lock import LOCK, is_locked


@dataclass(frozen=True)
class Drawn:
    """A picture that was written, and the text to print with it."""

    picture: Path
    lines: Sequence[str] = ()
    notes: Sequence[str] = ()


def watch(draw: Callable[[], Drawn], folders: Iterable[Path], seconds: float) -> Drawn:
    """Draws a plot every `seconds` until no run in the folders goes on; returns the last one.

    While a run goes on, an error of `draw` only delays the first picture: a run has no episodes at its start. Ctrl-C ends the
    program with status 130; the last picture stays.

    Raises:
        ConfigurationError: of `draw`, after the runs have ended.
    """
    folders, last_message = list(folders), ""
    try:
        while True:
            active = any(map(is_active, folders))  # before drawing, so that the last picture has the end of the run
            try:
                drawn = draw()
                if not active:
                    return drawn
                message = f"drawing {drawn.picture} every {seconds:g} s until the run ends; Ctrl-C stops"
            except ConfigurationError as error:
                if not active:
                    raise
                message = f"waiting: {error}"
            if message != last_message:
                click.echo(message)
            last_message = message
            time.sleep(seconds)
    except KeyboardInterrupt:
        click.echo("\nstopped")
        sys.exit(130)


def is_active(folder: Path) -> bool:
    """Returns True if a process trains a run, or works on a comparison, in or below the folder.

    Where locks cannot be read, a run without a final result counts as active.
    """
    locks = [is_locked(path.parent) for path in folder.rglob(LOCK)]
    if None not in locks:
        return any(locks)
    return not all(read_result(path.parent).finished for path in folder.rglob(CONFIG))
