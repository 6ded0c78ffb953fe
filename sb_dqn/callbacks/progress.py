"""Progress bar callback: steps, steps per second, mean return."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sb_dqn.callbacks.base import BaseCallback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

REFRESH = 0.1
"""Seconds between two updates of the bar."""
LINE_INTERVAL = 10.0
"""Seconds between two lines if the output is not a terminal (a file, a pipe, a CI log)."""


class ProgressBarCallback(BaseCallback):
    """Shows the progress of `learn`: a live bar in a terminal, otherwise a line every ten seconds and one at the end.

    The bar uses no thread. `close`, which runs after errors too, restores the terminal.

    Args:
        console: rich console to write to; None: `rich.get_console()`, which writes to standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self.console = console
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def _on_training_start(self) -> None:
        import rich  # imported here, since the import is slow

        self._output = self.console if self.console is not None else rich.get_console()
        self._first = self.num_timesteps
        self._total = self.model._total_timesteps
        self._started = time.perf_counter()
        self._interval = REFRESH if self._output.is_terminal else LINE_INTERVAL
        self._next_refresh = self._started + self._interval
        if self._output.is_terminal:
            self._show_bar()

    def _show_bar(self) -> None:
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
            console=self._output,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("learning", total=self._total, completed=self._first, speed="", score="")
        self._bar.start()

    def _on_step(self) -> bool:
        if (now := time.perf_counter()) >= self._next_refresh:
            self._next_refresh = now + self._interval
            self._refresh()
        return True

    def _refresh(self) -> None:
        steps = self.num_timesteps
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=steps, speed=self._speed(), score=self._score(), refresh=True)
        else:
            percent = min(100 * steps // max(self._total, 1), 100)
            line = f"{steps:,}/{self._total:,} steps ({percent}%)  {self._speed()}{self._score()}"
            self._output.print(line, markup=False, highlight=False, soft_wrap=True)

    def _speed(self) -> str:
        seconds = max(time.perf_counter() - self._started, 1e-9)
        return f"{(self.num_timesteps - self._first) / seconds:,.0f} steps/s"

    def _score(self) -> str:
        """Returns the mean return of the latest episodes as text; empty without episodes."""
        episodes = self.model.ep_info_buffer
        return f"  mean return {sum(episode['r'] for episode in episodes) / len(episodes):.2f}" if episodes else ""

    def _on_training_end(self) -> None:
        self.num_timesteps = self.model.num_timesteps
        self._refresh()
        self.close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
