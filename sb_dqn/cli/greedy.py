"""Evaluation episodes of the commands: with a bar or lines, and a bound on their env steps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from sb_dqn.envs.stream import Stream
    from sb_dqn.episode_tally import Episodes

FINAL_EPISODES = 20
"""After a training, unless `--final-episodes` says otherwise."""
FEWEST, MOST = 20_000, 100_000
"""Env steps of the episodes after a training, at most: as many as were trained, within these bounds."""
LINE = 10.0
"""Seconds between two lines where there is no bar."""
REFRESH = 0.1
"""Seconds between two looks of the bar."""


@dataclass(frozen=True)
class Played:
    """The episodes of an evaluation, finished or not."""

    episodes: Episodes
    asked: int
    bound: int | None
    """Env steps at which it ends; None: there is no bound."""
    seconds: float

    @property
    def missing(self) -> int:
        """Episodes that had not finished at the bound."""
        return self.asked - len(self.episodes.returns)

    def describe(self, what: str) -> str:
        """Returns mean and spread over the episodes that finished, and how many did not."""
        returns = self.episodes.returns
        if not returns:
            return f"no mean return: none of {self.asked} {what} finished within {self.bound:,} env steps"
        text = f"mean return {fmean(returns):.2f} ± {pstdev(returns):.2f} over "
        if not self.missing:
            return f"{text}{len(returns)} {what}"
        return (
            f"{text}the {len(returns)} of {self.asked} {what} that finished within {self.bound:,} env steps; short episodes "
            f"are over-represented"
        )


def final_bound(chosen: int | None, trained: int) -> int | None:
    """Returns the bound on the env steps after a training of `trained` of them; None where 0 was chosen, for no bound."""
    if chosen is None:
        return min(max(trained, FEWEST), MOST)
    return chosen or None


def play(
    model: Any,
    stream: Stream,
    episodes: int,
    *,
    bar: bool,
    bound: int | None = None,
    deterministic: bool = True,
    seed: int = 0,
) -> Played:
    """Plays full games on an open stream; shows how far it is.

    Args:
        model: as in `play_episodes`.
        stream: of the environment; it stays open.
        episodes: to be played.
        bar: show a live bar where the output is a terminal; else a line every ten seconds.
        bound: env steps after which it ends with the episodes that are finished; None: no bound.
        deterministic: greedy actions.
        seed: of the games.
    """
    from sb_dqn.evaluation import play_episodes

    started = time.monotonic()
    shown = _Shown(episodes, bound, bar)
    try:
        played = play_episodes(
            model, stream, episodes, deterministic, seed=seed, max_total_steps=bound, watch=shown.update
        )
    finally:
        shown.close()
    return Played(played, episodes, bound, time.monotonic() - started)


class _Shown:
    """A bar in a terminal, else a line every ten seconds: of a short evaluation none.

    Args:
        asked: episodes.
        bound: env steps, or None.
        bar: a bar is wanted.
    """

    def __init__(self, asked: int, bound: int | None, bar: bool) -> None:
        self.asked, self.bound = asked, bound
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._pause = REFRESH if bar and self._open() else LINE
        self._next = time.monotonic() + self._pause

    def _open(self) -> bool:
        """Opens the bar; False where the output is no terminal."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console()
        if not console.is_terminal:
            return False
        columns = (
            TextColumn("evaluating"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("episodes{task.fields[more]}"),
        )
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, auto_refresh=False, transient=True)
        self._task = self._bar.add_task("evaluating", total=self.asked, more="")
        self._bar.start()
        return True

    def update(self, played: Episodes) -> None:
        """Shows the episodes so far, if it is time to."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + self._pause
        done = len(played.returns)
        steps = f"{played.steps:,}" + (f" of at most {self.bound:,}" if self.bound else "") + " env steps"
        mean = f", mean return {fmean(played.returns):.2f}" if done else ""
        if self._bar is None or self._task is None:
            click.echo(f"evaluating: {done} of {self.asked} episodes, {steps}{mean}")
        else:
            self._bar.update(self._task, completed=done, more=f", {steps}{mean}", refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
