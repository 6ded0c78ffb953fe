"""Learning curves as CSV, and the tables of the documentation."""

from __future__ import annotations

import csv
import statistics
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sb_dqn.callbacks import BaseCallback

COLUMNS = ("env_steps", "seconds", "updates", "episodes", "mean_return", "greedy_mean", "greedy_sd")
WINDOW = 20


class Curve(BaseCallback):
    """Writes one line every `every` env steps, and stops once the training is good enough.

    The columns: env steps over all lanes; seconds of training since `learn` began, evaluations left out; gradient
    steps; finished episodes; mean raw return of the last 20 of them, as played while learning (epsilon included); mean
    and standard deviation of greedy episodes, on the lines where they were played.

    Args:
        path: of the file; each line is on disk at once.
        every: env steps between lines.
        eval_env: for greedy episodes; None plays none.
        eval_every: env steps between evaluations; 0 plays none before the end.
        eval_episodes: played each time.
        stop_at: mean return of the last 20 episodes at which to stop; None goes on.
        stop_at_greedy: the same of the greedy episodes of one evaluation.
        seconds: of training after which to stop; None goes on.
        verbose: 1 prints the lines too.
    """

    def __init__(
        self,
        path: Path,
        every: int,
        eval_env: Any = None,
        eval_every: int = 0,
        eval_episodes: int = 20,
        stop_at: float | None = None,
        stop_at_greedy: float | None = None,
        seconds: float | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.every, self.eval_env, self.eval_every, self.eval_episodes = every, eval_env, eval_every, eval_episodes
        self.stop_at, self.stop_at_greedy, self.limit = stop_at, stop_at_greedy, seconds
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.episodes = 0
        self.began = time.perf_counter()
        self.paused = 0.0
        self.due, self.eval_due = every, eval_every
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._line(COLUMNS)

    def _on_training_start(self) -> None:
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of training so far."""
        return time.perf_counter() - self.began - self.paused

    @property
    def mean_return(self) -> float:
        """Of the last 20 episodes; NaN before the first."""
        return statistics.fmean(self.returns) if self.returns else float("nan")

    def _on_step(self) -> bool:
        model: Any = self.model
        for episode in model.statistics.finished:
            self.returns.append(episode.return_)
            self.episodes += 1
        if self.num_timesteps >= model._total_timesteps:  # `finish` writes the last line
            return True
        evaluates = self.eval_every > 0 and self.num_timesteps >= self.eval_due
        if evaluates:
            self.eval_due = (self.num_timesteps // self.eval_every + 1) * self.eval_every
        if evaluates or self.num_timesteps >= self.due:
            self.due = (self.num_timesteps // self.every + 1) * self.every
            greedy = self.evaluate() if evaluates else None
            self.write(greedy)
            if self.stop_at_greedy is not None and mean_sd(greedy)[0] >= self.stop_at_greedy:
                return False
        good = self.stop_at is not None and len(self.returns) == WINDOW and self.mean_return >= self.stop_at
        return not good and (self.limit is None or self.seconds < self.limit)

    def evaluate(self) -> list[float]:
        """Returns of greedy episodes; the time that they take is not counted."""
        from sb_dqn import evaluate_policy

        start = time.perf_counter()
        returns, _ = evaluate_policy(
            self.model, self.eval_env, self.eval_episodes, return_episode_rewards=True, warn=False
        )
        self.paused += time.perf_counter() - start
        return list(returns) if isinstance(returns, list) else [returns]

    def write(self, greedy: Sequence[float] | None = None) -> None:
        """One line: where the training stands, and the returns of greedy episodes if some were played."""
        model: Any = self.model
        facts = [model.num_timesteps, f"{self.seconds:.1f}", model._n_updates, self.episodes, f"{self.mean_return:.2f}"]
        self._line([*facts, *(f"{value:.2f}" for value in mean_sd(greedy) if greedy)])

    def _line(self, cells: Sequence[Any]) -> None:
        self._writer.writerow([*cells, *[""] * (len(COLUMNS) - len(cells))])
        self._file.flush()
        if self.verbose:
            print("  ".join(f"{cell!s:>12}" for cell in cells), flush=True)

    def finish(self) -> list[float]:
        """The last line, with greedy episodes if there is an env for them; closes the file."""
        greedy = self.evaluate() if self.eval_env is not None else []
        self.write(greedy)
        self._file.close()
        return greedy


def mean_sd(values: Sequence[float] | None) -> tuple[float, float]:
    """Mean and standard deviation (of the whole population); NaN of nothing."""
    if not values:
        return float("nan"), float("nan")
    return statistics.fmean(values), statistics.pstdev(values)
