"""Live table of the runs of `sb-dqn compare` in a terminal: steps, recent return, speed and remaining time of each run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb_dqn.runs.folder import read_result
from sb_dqn.runs.jobs import Job

if TYPE_CHECKING:
    from rich.console import Console

REFRESH = 1.0
"""Seconds between two refreshes."""
RECENT = 100
"""Episodes of the recent return."""
WINDOW = 30.0
"""Seconds of training over which the speed is measured."""
FRAME = 8
"""Terminal lines that are not rows of runs."""


class EpisodeTail:
    """Progress of a run by its `monitor.csv`, of which each update reads the new lines only.

    Attributes:
        steps: env steps of the finished episodes.
        returns: the latest `RECENT` returns.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._reset(None)

    def _reset(self, path: Path | None) -> None:
        self._path, self._offset, self.steps = path, 0, 0
        self.returns: deque[float] = deque(maxlen=RECENT)
        self._times: deque[tuple[float, int]] = deque([(0.0, 0)])

    def update(self, path: Path) -> None:
        """Reads the episodes that were added to the file; starts again if it is another file or was truncated."""
        size = path.stat().st_size if path.is_file() else 0
        if path != self._path or size < self._offset:
            self._reset(path)
        if size == self._offset:
            return
        with path.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._offset += len(complete)
        for line in complete.decode("utf-8", errors="replace").splitlines():
            if line[:1].isdigit() or line[:1] in ("-", "."):  # not the two header lines
                return_, length, seconds = (float(cell) for cell in line.split(",")[:3])
                self.steps += int(length)
                self.returns.append(return_)
                self._times.append((seconds, self.steps))
        while len(self._times) > 2 and self._times[1][0] < self._times[-1][0] - WINDOW:
            self._times.popleft()

    @property
    def speed(self) -> float:
        """Env steps per second of training over the last `WINDOW` seconds; 0 before the first episode."""
        (start, first), (end, last) = self._times[0], self._times[-1]
        return (last - first) / (end - start) if end > start else 0.0


class LiveTable:
    """Table with a row for each run of `steps` env steps, the running ones first."""

    def __init__(self, title: str, jobs: Sequence[Job], steps: int) -> None:
        self.title = title
        self.jobs = jobs
        self.steps = steps
        self._tails = {job.label: EpisodeTail() for job in jobs}
        self._begun = set[str]()
        self._done = {job.label for job in jobs if job.finished}

    def render(self, running: Collection[Job], height: int) -> Any:
        """Returns the table as rich shows it.

        Args:
            running: jobs whose process trains.
            height: lines of the terminal; rows that do not fit are counted below the table.
        """
        from rich.table import Table

        labels = {job.label for job in running}
        self._begun |= labels
        self._done |= {
            job.label for job in self.jobs if job.label in self._begun - labels - self._done and job.finished
        }
        order = ["training", "failed", "waiting", "done"]
        states = {job.label: self._state(job.label, labels) for job in self.jobs}
        rows = sorted(self.jobs, key=lambda job: order.index(states[job.label]))
        shown = rows[: max(height - FRAME, len(labels), 1)]
        hidden = len(rows) - len(shown)
        title = f"{self.title}: {len(self._done)} of {len(self.jobs)} runs finished"
        table = Table(title=title, title_justify="left", caption_justify="left")
        table.caption = f"and {hidden} more, waiting or finished" if hidden else None
        table.add_column("run")
        for name in ("steps", "recent return", "steps/s", "left"):
            table.add_column(name, justify="right")
        for job in shown:
            table.add_row(job.label, *self._cells(job, states[job.label]))
        return table

    def _state(self, label: str, running: Collection[str]) -> str:
        if label in running:
            return "training"
        if label in self._done:
            return "done"
        return "failed" if label in self._begun else "waiting"

    def _cells(self, job: Job, state: str) -> tuple[str, str, str, str]:
        """Returns steps, recent return, speed and remaining time as text."""
        folder, tail = job.folder, self._tails[job.label]
        if folder is None or state == "waiting":
            return ("starting" if state == "training" else state), "", "", ""
        if state == "training":
            tail.update(folder / "monitor.csv")
        result = read_result(folder)
        if result.finished:
            return f"{result.steps:,}", "" if result.mean is None else f"{result.mean:.2f} final", "", "done"
        mean_return = f"{sum(tail.returns) / len(tail.returns):.2f}" if tail.returns else ""
        if state != "training":
            return f"{tail.steps:,} of {self.steps:,}", mean_return, "", state
        if result.steps >= self.steps:
            return f"{result.steps:,} of {self.steps:,}", mean_return, "", "final episodes"
        left = _clock((self.steps - tail.steps) / tail.speed) if tail.speed else ""
        return f"{tail.steps:,} of {self.steps:,}", mean_return, f"{tail.speed:,.0f}" if tail.speed else "", left


@contextmanager
def live_table(
    title: str, jobs: Sequence[Job], steps: int, console: Console | None = None
) -> Iterator[Callable[[Collection[Job]], None]]:
    """Shows a `LiveTable` and returns the function that refreshes it from the running jobs, at most once per `REFRESH` seconds.

    Lines printed meanwhile appear above the table. At the end the table is removed.
    """
    from rich.live import Live

    table, latest = LiveTable(title, jobs, steps), -REFRESH
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def refresh(running: Collection[Job]) -> None:
            nonlocal latest
            if time.monotonic() - latest >= REFRESH:
                latest = time.monotonic()
                live.update(table.render(running, live.console.height), refresh=True)

        yield refresh


def _clock(seconds: float) -> str:
    """Returns a duration such as `1:02:03` or `4:05`."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
