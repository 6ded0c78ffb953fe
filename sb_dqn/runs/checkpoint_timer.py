"""Periodic full checkpoints of a run, and the orderly stop at Ctrl-C or SIGTERM."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.runs.folder import Result, read_result, write_result

CHECKPOINTS = "checkpoints"
"""Subfolder of the run's folder."""
SUFFIX = "_steps.zip"
"""Ending of a checkpoint's file name, after the number of env steps."""
KEEP_LAST = 2
"""Number of checkpoints that are kept."""
STOP = 2
"""Request to save and stop; 1 is a request to save."""
MIN_PAUSE_FACTOR = 20
"""A checkpoint that took s seconds is followed by a pause of at least this many times s."""


def checkpoints(folder: Path, rank: int = 0) -> list[Path]:
    """Returns the full checkpoints of a run, the newest first; of several learners, those of one."""
    paths = [path for path in _part(folder, rank).glob(f"*{SUFFIX}") if path.name.removesuffix(SUFFIX).isdecimal()]
    return sorted(paths, key=lambda path: int(path.name.removesuffix(SUFFIX)), reverse=True)


def _part(folder: Path, rank: int) -> Path:
    """Returns the folder of the full checkpoints of one learner, as `LearnerGroup.own_path` names it."""
    return folder / CHECKPOINTS / f"learner{rank}" if rank else folder / CHECKPOINTS


def remove_checkpoints(folder: Path, rank: int = 0) -> None:
    """Removes all full checkpoints of a finished run; of several learners, those of one."""
    from sb_dqn.checkpoint.incremental.segments import ROWS, remove_unused_segments

    for path in checkpoints(folder, rank):
        path.unlink()
    part = _part(folder, rank)
    remove_unused_segments(part)
    for empty in (part / ROWS, part, folder / CHECKPOINTS):
        with suppress(OSError):
            empty.rmdir()


class CheckpointTimer(BaseCallback):
    """Callback that saves a full checkpoint at a fixed interval and when the run is stopped; keeps the last two.

    It also measures the training time and writes it to `result.yaml` with each checkpoint.

    Args:
        folder: folder of the run.
        minutes: minutes between two checkpoints; 0: only one when the run is stopped.
        at_once: save the first checkpoint after the first step, so that a resumed run keeps its new target number of
            steps even if it is killed.
    """

    def __init__(self, folder: Path, minutes: float, at_once: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self.pause = 60 * minutes if minutes else float("inf")
        self.first_pause = 0.0 if at_once and minutes else self.pause
        self.stopping = False
        """True once the run has to stop after the current step."""
        self._next = float("inf")
        self._writing: tuple[Any, Result] | None = None
        self._earlier = read_result(folder)
        self._started, self._cpu_started = time.monotonic(), time.process_time()

    def _on_training_start(self) -> None:
        self._next = time.monotonic() + self.first_pause

    def _on_training_end(self) -> None:
        self._wait_for_write()

    def _on_step(self) -> bool:
        if self._writing is not None and self._writing[0].finished:
            self._wait_for_write()
        model: Any = self.model
        wanted = STOP if self.stopping else int(time.monotonic() >= self._next)
        agreed = model.learners.maximum(wanted)  # each learner saves its part at the same step
        if agreed:
            self.model.after_tick(self.save)
        self.stopping = agreed == STOP
        return not self.stopping

    @property
    def result(self) -> Result:
        """Steps and training time so far, over all parts of the run."""
        spent, cpu = time.monotonic() - self._started, time.process_time() - self._cpu_started
        return Result(
            self.model.num_timesteps, self._earlier.seconds + spent, cpu_seconds=self._earlier.cpu_seconds + cpu
        )

    @property
    def finite(self) -> bool:
        """True while every loss and gradient has been finite; otherwise the parameters may hold NaN."""
        model: Any = self.model
        return bool(model.learner.finite)

    def save(self) -> None:
        """Saves a checkpoint if the model is finite.

        If writing fails, training continues and the earlier checkpoints stay.
        """
        self._wait_for_write()
        if not self.finite:
            return
        started = time.monotonic()
        with self._training_continues("the checkpoint"):
            result = self.result
            path = self.folder / CHECKPOINTS / f"{result.steps}{SUFFIX}"
            self._writing = self.model.save(str(path), full=True, incremental=True, background=True), result
        if self.stopping:
            self._wait_for_write()
        ended = time.monotonic()
        self._next = ended + max(self.pause, MIN_PAUSE_FACTOR * (ended - started))

    def _wait_for_write(self) -> None:
        """Waits for the checkpoint that a thread is writing, then removes the oldest ones."""
        from sb_dqn.checkpoint.incremental.segments import remove_unused_segments

        if self._writing is None:
            return
        (write, result), self._writing = self._writing, None
        with self._training_continues("the checkpoint"):
            write.wait()
            if self.model.rank == 0:
                write_result(self.folder, result)
            for old in checkpoints(self.folder, self.model.rank)[KEEP_LAST:]:
                old.unlink()
            remove_unused_segments(_part(self.folder, self.model.rank))


@contextmanager
def stop_on_signals(timer: CheckpointTimer) -> Iterator[None]:
    """Stops the run after the current step, with a checkpoint, at Ctrl-C or SIGTERM; a second signal stops it at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        if timer.stopping:
            raise KeyboardInterrupt
        timer.stopping = True

    previous: dict[signal.Signals, Any] = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in previous.items():
            signal.signal(kind, handler)
