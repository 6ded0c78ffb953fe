"""Toy games: their rows for the ring, and logs of their episodes for a naive reading.

An observation contains its lane, episode and step, so any mix-up is detected. The events of a lane follow a script that is
repeated: games end, are truncated by a time limit, lose lives, or two of these at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.types import Observation, Rows, Slot

SPACES: dict[str, spaces.Space[Any]] = {
    "camera": spaces.Box(0, 255, (1, 2, 3), np.uint8),
    "joints": spaces.Box(-1e6, 1e6, (3,), np.float32),
    "mode": spaces.Discrete(7),
}
NUM_ACTIONS = 5
# event -> terminal, last
EVENTS = {
    "go": (False, False),
    "lost life": (True, False),
    "terminated": (True, True),
    "truncated": (False, True),
    "terminated and truncated": (True, True),
    "lost life and truncated": (True, True),
}


@dataclass
class Step:
    obs: Observation
    reward: float
    terminal: bool
    last: bool


@dataclass
class Episode:
    """`steps[0]` is the reset; `actions[t]` was chosen at `steps[t]`."""

    steps: list[Step] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)


class Game:
    def __init__(self, lane: int, script: Sequence[str]) -> None:
        self.lane, self.script, self.age = lane, script, 0
        self.episodes: list[Episode] = []

    def reset(self) -> Step:
        if self.episodes:
            self.episodes[-1].steps[-1].last = True  # interrupted: the stream ends at the open row
        self.episodes.append(Episode())
        return self._arrive(0.0, False, False)

    def step(self, action: int) -> Step:
        terminal, last = EVENTS[self.script[self.age % len(self.script)]]
        self.age += 1
        self.episodes[-1].actions.append(action)
        return self._arrive(float(np.float32(np.sin(self.age) + action)), terminal, last)

    def _arrive(self, reward: float, terminal: bool, last: bool) -> Step:
        name = (self.lane + 1, len(self.episodes) % 250 + 1, len(self.episodes[-1].steps) % 250 + 1)
        camera = np.array([name, name[::-1]], np.uint8)[None]
        obs: Observation = {"camera": camera, "joints": np.array(name, np.float32), "mode": np.array(name[2] % 7)}
        self.episodes[-1].steps.append(Step(obs, reward, terminal, last))
        return self.episodes[-1].steps[-1]

    def rows(self) -> list[tuple[Episode, int]]:
        """Returns row r of the lane as (episode, t)."""
        return [(episode, t) for episode in self.episodes for t in range(len(episode.steps))]


def slot_of(steps: Sequence[Step | None]) -> Slot:
    """Returns one slot; lanes that are None contain garbage and are not valid."""
    garbage = Step({key: np.full_like(space.sample(), 3) for key, space in SPACES.items()}, 99.0, True, True)
    valid = np.array([step is not None for step in steps])
    filled = [step or garbage for step in steps]
    obs = {key: np.stack([step.obs[key] for step in filled]) for key in SPACES}
    reward = np.array([step.reward for step in filled], np.float32)
    terminal, last = (np.array([getattr(step, name) for step in filled]) for name in ("terminal", "last"))
    return Slot(obs, reward, reward, terminal, last, valid, bool(valid.all()))


def play(games: Sequence[Game], kind: str, rng: np.random.Generator, restart: int = 0) -> Iterator[Rows]:
    """Yields ticks without end, as NEXT_STEP (one slot) or SAME_STEP (two where a lane ended); restarts every `restart` ticks."""
    tick, lanes = 0, len(games)
    last = np.zeros(lanes, bool)
    while True:
        if tick == 0 or (restart and tick % restart == 0):
            slots, action, stepped = [slot_of([game.reset() for game in games])], None, np.zeros(lanes, bool)
        else:
            action = rng.integers(0, NUM_ACTIONS, lanes)
            if kind == "NEXT_STEP":
                stepped = ~last
                moves = zip(games, action, last, strict=True)
                slots = [slot_of([game.reset() if ended else game.step(int(a)) for game, a, ended in moves])]
            else:
                stepped = np.ones(lanes, bool)
                steps = [game.step(int(a)) for game, a in zip(games, action, strict=True)]
                finals = [step if step.last else None for step in steps]
                returned = [game.reset() if step.last else step for game, step in zip(games, steps, strict=True)]
                slots = [slot_of(finals)] * any(final is not None for final in finals) + [slot_of(returned)]
        last = slots[-1].last
        tick += 1
        yield Rows(action, tuple(slots), stepped, int(stepped.sum()))


def naive_stack(episode: Episode, t: int, key: str, k: int) -> np.ndarray:
    """Returns the policy input at step t: frames of this episode only, zeros before its first."""
    if k == 1 or key != "camera":
        return episode.steps[t].obs[key]
    frames = [step.obs[key] for step in episode.steps[max(0, t - k + 1) : t + 1]]
    return np.concatenate([np.zeros_like(frames[0])] * (k - len(frames)) + frames)


def naive_transition(episode: Episode, t: int, n: int, k: int, gamma: float) -> dict[str, Any]:
    """Returns the n-step transition from step t, summed step by step in float64."""
    return_, discount, end = 0.0, 1.0, t
    for _ in range(n):
        end += 1
        step = episode.steps[end]
        return_ += discount * step.reward
        discount *= gamma
        if step.terminal or step.last:
            break
    return {
        "obs": {key: naive_stack(episode, t, key, k) for key in SPACES},
        "action": episode.actions[t],
        "return_": return_,
        "discount": 0.0 if episode.steps[end].terminal else discount,
        "next_obs": {key: naive_stack(episode, end, key, k) for key in SPACES},
    }


def naive_starts(rows: Sequence[tuple[Episode, int]], held: int, n: int, k: int, every: int = 1) -> set[int]:
    """Returns the start rows: not `last`, with n later rows, and the cells of their K frames not overwritten (including those
    before the first row, which contain zeros); each `every`-th row of an episode."""
    count = len(rows)
    return {
        r
        for r, (episode, t) in enumerate(rows)
        if not episode.steps[t].last
        and t % every == 0
        and r + n <= count - 1
        and all(r - j >= count - held for j in range(k))
    }
