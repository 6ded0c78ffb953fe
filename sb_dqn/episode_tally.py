"""Episodes of an evaluation, counted lane by lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sb_dqn.types import BoolArray, Rows


@dataclass
class Episodes:
    """The evaluated episodes, in the order in which they ended."""

    returns: list[float] = field(default_factory=list)
    """Undiscounted sum of the rewards as the game gave them."""
    lengths: list[int] = field(default_factory=list)
    """In environment steps."""
    infos: list[dict[str, Any]] = field(default_factory=list)
    """Info dict of the final step."""
    cut: int = 0
    """How many of them were cut at `max_steps`."""
    steps: int = 0
    """Env steps over all lanes, those of episodes that did not finish included."""


class Tally:
    """Counts episodes lane by lane, each lane against a target of its own.

    Fixed targets keep the mean fair: whoever takes the first n episodes to end over-represents the short ones.

    Args:
        n_eval_episodes: divided over the lanes as evenly as possible.
        num_envs: lanes, B.
        max_steps: an episode of this many steps is cut, and its lane waits for the next start of the stream.
    """

    def __init__(self, n_eval_episodes: int, num_envs: int, max_steps: int) -> None:
        self.targets = (n_eval_episodes + np.arange(num_envs)) // num_envs  # [B]
        self.counts = np.zeros(num_envs, np.int64)
        self.max_steps = max_steps
        self.episodes = Episodes()
        self.begin()

    def begin(self) -> None:
        """The stream starts: every lane is at its first observation."""
        lanes = len(self.targets)
        self.score = np.zeros(lanes)
        self.length = np.zeros(lanes, np.int64)
        self.waiting = np.zeros(lanes, np.bool_)
        self.last = np.zeros(lanes, np.bool_)
        self.starts = np.ones(lanes, np.bool_)

    @property
    def complete(self) -> bool:
        """Every lane has its episodes."""
        return bool((self.counts >= self.targets).all())

    @property
    def playing(self) -> BoolArray:
        """`[B]` lanes whose running episode is going to count."""
        return (self.counts < self.targets) & ~self.waiting

    def add(self, rows: Rows) -> BoolArray:
        """Add the scores of a tick; `[B]` lanes whose episode ended in it."""
        self.length += rows.stepped
        self.episodes.steps += rows.steps
        ended = np.zeros_like(self.last)
        for slot in rows.slots:
            self.score += np.where(slot.valid, slot.score, 0)
            ended |= slot.valid & slot.last
            self.starts = np.where(slot.valid, self.last, self.starts)  # the row after a last one is a reset row
            self.last = np.where(slot.valid, slot.last, self.last)
        return ended

    def close_episodes(self, ended: BoolArray, rows: Rows) -> None:
        """Write down the episodes that ended, and those that are cut for their length."""
        cut = self.playing & ~ended & (self.length >= self.max_steps)
        done = (self.playing & ended) | cut
        if done.any():
            infos = rows.make_infos()
            for lane in np.flatnonzero(done):
                self.episodes.returns.append(float(self.score[lane]))
                self.episodes.lengths.append(int(self.length[lane]))
                self.episodes.infos.append(infos[lane] if infos else {})
            self.episodes.cut += int(cut.sum())
            self.counts += done
            self.waiting |= cut
        self.score[ended] = 0
        self.length[ended] = 0
