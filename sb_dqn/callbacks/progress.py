"""A live progress bar: steps, steps per second, mean return."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sb_dqn.callbacks.base import BaseCallback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

REFRESH = 0.1
"""Seconds between two looks of the bar."""
LINES = 10
"""Lines in all where the output is no terminal (a file, a pipe, a CI log)."""


class ProgressBarCallback(BaseCallback):
    """Shows how far `learn` is: a live bar in a terminal, one line for each tenth elsewhere.

    The bar has no thread of its own. It gives the terminal back in `close`, which comes after an error, too.

    Args:
        console: where to write; None for standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self.console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def _on_training_start(self) -> None:
        from rich.console import Console  # imported here, so that whoever shows no bar does not wait for it

        self._where = self.console if self.console is not None else Console()
        self._first, self._total = self.num_timesteps, self.model._total_timesteps
        self._started = time.perf_counter()
        self._next_look = self._started + REFRESH
        self._next_line = self._tenth(1)
        if self._where.is_terminal:
            self._show()

    def _show(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps  {task.fields[speed]}{task.fields[score]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._where,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("learning", total=self._total - self._first, speed="", score="")
        self._bar.start()

    def _on_step(self) -> bool:
        if self._bar is None:
            if self.num_timesteps >= self._next_line:
                self._write_line()
        elif (now := time.perf_counter()) >= self._next_look:
            self._next_look = now + REFRESH
            self._refresh()
        return True

    def _tenth(self, number: int) -> float:
        """`num_timesteps` at which the `number`-th line is due."""
        return self._first + number * (self._total - self._first) / LINES

    def _write_line(self) -> None:
        done, wanted = self.num_timesteps - self._first, max(self._total - self._first, 1)
        self._next_line = self._tenth(done * LINES // wanted + 1)
        percent = min(100 * done // wanted, 100)
        line = f"{self.num_timesteps:,}/{self._total:,} steps ({percent}%)  {self._speed()}{self._score()}"
        self._where.print(line, markup=False, highlight=False, soft_wrap=True)

    def _refresh(self) -> None:
        if self._bar is not None and self._task is not None:
            done = self.num_timesteps - self._first
            self._bar.update(self._task, completed=done, speed=self._speed(), score=self._score(), refresh=True)

    def _speed(self) -> str:
        seconds = max(time.perf_counter() - self._started, 1e-9)
        return f"{(self.num_timesteps - self._first) / seconds:,.0f} steps/s"

    def _score(self) -> str:
        """Mean return of the latest episodes, where there are any."""
        episodes = self.model.ep_info_buffer
        return f"  mean return {sum(one['r'] for one in episodes) / len(episodes):.2f}" if episodes else ""

    def _on_training_end(self) -> None:
        self.num_timesteps = self.model.num_timesteps
        self._refresh()
        self.close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
