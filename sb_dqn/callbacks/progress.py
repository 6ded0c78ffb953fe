"""Progress of training and evaluation, and the callback that shows that of `learn`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sb_dqn.callbacks.base import BaseCallback

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

REFRESH = 0.1
"""Seconds between two updates of the bar."""
LINE_INTERVAL = 10.0
"""Seconds between two lines if the output is not a terminal (a file, a pipe, a CI log)."""


class ProgressDisplay:
    """Live bar in a terminal, otherwise a line every ten seconds. The bar uses no thread.

    Args:
        console: rich console to write to.
        total: number of steps or episodes.
        unit: name of the steps or episodes.
        done: number of steps or episodes that are done.
        transient: True removes the bar at the end.
    """

    def __init__(self, console: Console, total: int, unit: str, done: int = 0, transient: bool = False) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._interval = REFRESH if console.is_terminal else LINE_INTERVAL
        self._next = time.perf_counter() + self._interval
        if not console.is_terminal:
            return
        import rich.progress

        self._bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TextColumn(f"{unit}{{task.fields[more]}}"),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left"),
            rich.progress.TimeRemainingColumn(),
            console=console,
            auto_refresh=False,
            transient=transient,
        )
        self._task = self._bar.add_task("", total=total, completed=done, more="")
        self._bar.start()

    def due(self) -> bool:
        """Returns True if it is time to show the progress."""
        if (now := time.perf_counter()) < self._next:
            return False
        self._next = now + self._interval
        return True

    def show(self, done: int, more: str, line: str) -> None:
        """Shows the progress.

        Args:
            done: number of steps or episodes that are done.
            more: text of the bar after them.
            line: line to write where there is no bar.
        """
        if self._bar is not None:
            self._bar.update(self._task, completed=done, more=more, refresh=True)
        else:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Ends the bar, which restores the terminal."""
        if self._bar is not None:
            self._bar.stop()


class ProgressBarCallback(BaseCallback):
    """Shows the progress of `learn`: a live bar in a terminal, otherwise a line every ten seconds and one at the end.

    The bar uses no thread. `close`, which runs after errors too, restores the terminal.

    Args:
        console: rich console to write to. If None, it is `rich.get_console()`, which writes to standard output.
    """

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self.console = console
        self._display: ProgressDisplay | None = None

    def _on_training_start(self) -> None:
        import rich  # imported here, since the import is slow

        console = self.console if self.console is not None else rich.get_console()
        self._first = self.num_timesteps
        self._started = time.perf_counter()
        self._total = self.model._total_timesteps
        self._display = ProgressDisplay(console, self._total, "steps", self._first)

    def _on_step(self) -> bool:
        if self._display is not None and self._display.due():
            self._show(self._display)
        return True

    def _show(self, display: ProgressDisplay) -> None:
        steps, episodes = self.num_timesteps, self.model.ep_info_buffer
        seconds = max(time.perf_counter() - self._started, 1e-9)
        more = f"  {(steps - self._first) / seconds:,.0f} steps/s"
        if episodes:
            more += f"  mean return {sum(episode['r'] for episode in episodes) / len(episodes):.2f}"
        percent = min(100 * steps // max(self._total, 1), 100)
        display.show(steps, more, f"{steps:,}/{self._total:,} steps ({percent}%){more}")

    def _on_training_end(self) -> None:
        self.num_timesteps = self.model.num_timesteps
        if self._display is not None:
            self._show(self._display)
        self.close()

    def _close(self) -> None:
        if self._display is not None:
            self._display.close()
