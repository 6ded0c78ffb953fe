"""Evaluation episodes of the commands, with progress output and a limit on env steps."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from sb_dqn.types import ModelLike

if TYPE_CHECKING:
    from sb_dqn.envs.streams.open import Stream
    from sb_dqn.evaluation import Episodes

FINAL_EPISODES = 20
"""Default number of episodes after training."""
MIN_FINAL_STEPS = 20_000
"""Lower bound of the default step limit of the final episodes."""
MAX_FINAL_STEPS = 100_000
"""Upper bound of the default step limit of the final episodes."""


@dataclass(frozen=True)
class PlayedEpisodes:
    """Finished episodes of an evaluation, and its size and cost."""

    episodes: Episodes
    requested: int
    """Number of requested episodes."""
    max_steps: int | None
    """Maximum env steps over all lanes; None: no limit."""
    seconds: float

    @property
    def missing(self) -> int:
        """Number of requested episodes that had not finished at the step limit."""
        return self.requested - len(self.episodes.returns)

    def describe(self, noun: str) -> str:
        """Returns mean and standard deviation over the finished episodes, and the number of unfinished ones, as text."""
        returns = self.episodes.returns
        if not returns:
            return f"no mean return: none of {self.requested} {noun} finished within {self.max_steps:,} env steps"
        text = f"mean return {fmean(returns):.2f} ± {pstdev(returns):.2f} over "
        if not self.missing:
            return f"{text}{len(returns)} {noun}"
        return (
            f"{text}the {len(returns)} of {self.requested} {noun} that finished within {self.max_steps:,} env steps; short "
            f"episodes are over-represented"
        )


def final_step_limit(chosen: int | None, trained: int) -> int | None:
    """Returns the maximum env steps of the final episodes, or None for no limit.

    Args:
        chosen: limit set by the user; 0: no limit; None: the default.
        trained: env steps of training, the default within `MIN_FINAL_STEPS` and `MAX_FINAL_STEPS`.
    """
    if chosen is None:
        return min(max(trained, MIN_FINAL_STEPS), MAX_FINAL_STEPS)
    return chosen or None


def play(
    model: ModelLike,
    stream: Stream,
    episodes: int,
    *,
    bar: bool,
    max_steps: int | None = None,
    deterministic: bool = True,
    seed: int = 0,
) -> PlayedEpisodes:
    """Plays full games as `play_episodes` does, in at most `max_steps` env steps over all lanes, and shows the progress.

    With `bar` that is a progress bar if the output is a terminal, otherwise a line every ten seconds.
    """
    from rich.console import Console

    from sb_dqn.callbacks.progress import ProgressDisplay
    from sb_dqn.evaluation import play_episodes

    started = time.monotonic()
    display = ProgressDisplay(
        Console(force_terminal=None if bar else False), episodes, "episodes evaluated", transient=True
    )

    def watch(played: Episodes) -> None:
        if not display.due():
            return
        done = len(played.returns)
        more = f", {played.steps:,}{f' of at most {max_steps:,}' if max_steps else ''} env steps"
        more += f", mean return {fmean(played.returns):.2f}" if done else ""
        display.show(done, more, f"evaluating: {done} of {episodes} episodes{more}")

    with closing(display):
        played = play_episodes(
            model, stream, episodes, deterministic, seed=seed, max_total_steps=max_steps, watch=watch
        )
    return PlayedEpisodes(played, episodes, max_steps, time.monotonic() - started)
