"""Full checkpoints of a run while it trains, and what is done when it is asked to stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.cli.train.result_file import Result, read_result, write_result

CHECKPOINTS = "checkpoints"
"""Folder in the folder of a run."""
SUFFIX = "_steps.zip"
KEPT = 2
PATIENCE = 20
"""A checkpoint that takes s seconds is not repeated for this many times s."""


def checkpoints(folder: Path) -> list[Path]:
    """Full checkpoints of a run, the newest first."""
    found = [path for path in (folder / CHECKPOINTS).glob(f"*{SUFFIX}") if path.name.removesuffix(SUFFIX).isdecimal()]
    return sorted(found, key=lambda path: int(path.name.removesuffix(SUFFIX)), reverse=True)


def remove_checkpoints(folder: Path) -> None:
    """Removes them: the run is done."""
    from sb_dqn.checkpoint.incremental.segments import ROWS, remove_unused_segments

    for path in checkpoints(folder):
        path.unlink()
    remove_unused_segments(folder / CHECKPOINTS)
    with suppress(OSError):
        (folder / CHECKPOINTS / ROWS).rmdir()
    with suppress(OSError):
        (folder / CHECKPOINTS).rmdir()


class Keeper(BaseCallback):
    """Takes a full checkpoint every so many minutes, and one when the run is asked to stop; the last two are kept. It also
    counts the seconds of the run, which `result.yaml` says up to the last checkpoint.

    Args:
        folder: of the run.
        minutes: between two checkpoints; 0: none but the last.
        at_once: take one after the first step already: a run that goes on is to remember how far, even if it is killed.
    """

    def __init__(self, folder: Path, minutes: float, at_once: bool = False) -> None:
        super().__init__()
        self.folder, self.pause = folder, 60 * minutes if minutes else float("inf")
        self.first_pause = 0.0 if at_once and minutes else self.pause
        self.stopping = False
        """Whether the run is to stop when this step is over."""
        self._next = float("inf")
        self._complained = False
        self._writing: tuple[Any, Result] | None = None
        self._earlier, self._began = read_result(folder).seconds, time.monotonic()

    def _on_training_start(self) -> None:
        self._next = time.monotonic() + self.first_pause

    def _on_training_end(self) -> None:
        self._settle()

    def _on_step(self) -> bool:
        if self._writing is not None and self._writing[0].finished:
            self._settle()
        if self.stopping or time.monotonic() >= self._next:
            self.model.after_tick(self.save)
        return not self.stopping

    @property
    def seconds(self) -> float:
        """Of training so far, over all parts of the run."""
        return self._earlier + time.monotonic() - self._began

    @property
    def sound(self) -> bool:
        """Whether no loss or gradient has been NaN or infinite; else the model may hold NaN."""
        model: Any = self.model
        return bool(model.learner.finite)

    def save(self) -> None:
        """Takes a checkpoint of a sound model; where that fails, training goes on and the earlier ones stay."""
        self._settle()
        if not self.sound:
            return
        began = time.monotonic()
        try:
            so_far = Result(self.model.num_timesteps, self.seconds)
            path = self.folder / CHECKPOINTS / f"{so_far.steps}{SUFFIX}"
            self._writing = self.model.save(str(path), full=True, incremental=True, background=True), so_far
        except OSError as error:
            self._complain(error)
        if self.stopping:
            self._settle()
        ended = time.monotonic()
        self._next = ended + max(self.pause, PATIENCE * (ended - began))

    def _settle(self) -> None:
        """Waits for the checkpoint that a thread is writing; then the oldest may go."""
        from sb_dqn.checkpoint.incremental.segments import remove_unused_segments

        if self._writing is None:
            return
        (writing, so_far), self._writing = self._writing, None
        try:
            writing.wait()
            write_result(self.folder, so_far)
            for old in checkpoints(self.folder)[KEPT:]:
                old.unlink()
            remove_unused_segments(self.folder / CHECKPOINTS)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            click.echo(f"no checkpoint: {error}", err=True)
        self._complained = True


@contextmanager
def stopping_in_order(keeper: Keeper) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop the run when its step is over, with a checkpoint; the second one stops it at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        if keeper.stopping:
            raise KeyboardInterrupt
        keeper.stopping = True

    before: dict[signal.Signals, Any] = {kind: signal.signal(kind, ask) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
