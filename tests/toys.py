"""Toy games that log their own truth, the same games as every kind of vector env, and naive readings of the log.

A frame names its lane, episode and step, so nothing can be mixed up unseen. Games have lives, sudden deaths, time limits
(that may fall on a death or a lost life), and episodes of one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.types import Observation, Rows

ACTIONS, START = 4, 2
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "frames": spaces.Box(0, 255, (1, 3, 1), np.uint8),
    "flat": spaces.Dict({"place": spaces.Box(-np.inf, np.inf, (3,), np.float32), "parity": spaces.Discrete(2)}),
    "dict": spaces.Dict(
        {
            "camera": spaces.Dict({"left": spaces.Box(0, 255, (3,), np.uint8)}),
            "place": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "parity": spaces.Discrete(2),
        }
    ),
}


@dataclass(frozen=True)
class Step:
    """An arrival in a game's log."""

    frame: tuple[int, int, int]
    reward: float
    terminated: bool
    truncated: bool
    lives: int


@dataclass
class Episode:
    """`steps[0]` is the reset; `actions[t]` (0-based) was taken at `steps[t]`."""

    steps: list[Step] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)


class ToyGame(gymnasium.Env[Any, Any]):
    """One lane's game, a function of (seed, lane) and of the actions alone."""

    def __init__(self, lane: int = 0, seed: int = 0, kind: str = "vector") -> None:
        self.kind, self.lane, self.rng = kind, lane, np.random.default_rng((seed, lane))
        self.observation_space = OBSERVATIONS[kind]
        self.action_space = spaces.Discrete(ACTIONS, start=START)
        self.log: list[Episode] = []
        self.cuts = 0

    def observe(self, frame: tuple[int, int, int]) -> Any:
        """The observation that shows a frame."""
        place, picture = np.array(frame, np.float64), np.array(frame, np.int64).astype(np.uint8)
        if self.kind == "vector":
            return place.astype(np.float32)
        if self.kind == "frames":
            return picture.reshape(1, 3, 1)
        if self.kind == "flat":
            return {"place": place.astype(np.float32), "parity": np.int64(frame[2] % 2)}
        return {"camera": {"left": picture}, "place": place, "parity": np.int64(frame[2] % 2)}

    def _arrive(
        self, reward: float, terminated: bool, truncated: bool
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        frame = (self.lane + 1, len(self.log), self.t + 1)
        self.log[-1].steps.append(Step(frame, reward, terminated, truncated, self.lives))
        return self.observe(frame), reward, terminated, truncated, {"lives": self.lives, "t": self.t}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; one that is left in the middle has its newest row marked as the last."""
        if self.log and not is_last(self.log[-1], -1):
            self.cuts += 1
            self.log[-1].steps[-1] = replace(self.log[-1].steps[-1], truncated=True)
        self.t = 0
        self.lives = int(self.rng.choice([1, 3, 4]))
        self.limit = int(self.rng.choice([1, 2, 6, 15, 40]))
        self.log.append(Episode())
        observation, *_, info = self._arrive(0.0, False, False)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; the action must be legal."""
        assert self.action_space.contains(action), action
        noise, life, death = self.rng.normal(), self.rng.random() < 0.2, self.rng.random() < 0.05
        self.t, self.lives = self.t + 1, self.lives - int(life)
        self.log[-1].actions.append(int(action) - START)
        reward = float(np.float32(noise + int(action) % 4))
        return self._arrive(reward, bool(self.lives == 0 or death), bool(self.t >= self.limit))


class VecEnv:
    """Stands in for Stable-Baselines3's class of this name: same-step resets, `infos`, `reset_infos`."""

    def __init__(self, env_fns: list[Callable[[], ToyGame]]) -> None:
        self.envs = [make() for make in env_fns]
        self.num_envs = len(self.envs)
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.reset_infos: list[dict[str, Any]] = [{} for _ in self.envs]
        self.seeds: list[int | None] = []

    def seed(self, seed: int | None = None) -> None:
        """Kept, so that a test can see it."""
        self.seeds.append(seed)

    def reset(self) -> Any:
        """Resets all lanes."""
        results = [env.reset() for env in self.envs]
        self.reset_infos = [info for _, info in results]
        return batched([observation for observation, _ in results])

    def step(self, actions: Any) -> tuple[Any, Any, Any, tuple[dict[str, Any], ...]]:
        """As SubprocVecEnv does: `infos` is a tuple."""
        observations, rewards, dones, infos = [], [], [], []
        for lane, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            observation, reward, terminated, truncated, info = env.step(action)
            info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                info["terminal_observation"] = observation
                observation, self.reset_infos[lane] = env.reset()
            observations.append(observation)
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(info)
        return batched(observations), np.array(rewards, np.float32), np.array(dones), tuple(infos)

    def close(self) -> None:
        """Nothing to close."""


class DuckVecEnv(VecEnv):
    """Recognized by the name of its base."""


def batched(observations: list[Any]) -> Any:
    """Observations of single lanes as one."""
    if isinstance(observations[0], dict):
        return {key: batched([one[key] for one in observations]) for key in observations[0]}
    return np.stack(observations)


def _sb3(makes: list[Callable[[], ToyGame]]) -> Any:
    reason = "the real VecEnv is a peer, installed by the bench extra"
    return pytest.importorskip("stable_baselines3.common.vec_env", reason=reason).DummyVecEnv(makes)


KINDS: dict[str, Callable[[list[Callable[[], ToyGame]]], Any]] = {
    "lanes": Lanes,
    "next_step": SyncVectorEnv,
    "same_step": lambda makes: SyncVectorEnv(makes, autoreset_mode=AutoresetMode.SAME_STEP),
    "duck": DuckVecEnv,
    "sb3": _sb3,
}
"""The same games as every kind of vector env; "sb3" needs that package."""


def toy_stream(
    kind: str, lanes: int = 1, seed: int = 0, observation: str = "vector", options: StreamOptions | None = None
) -> tuple[list[ToyGame], Stream]:
    """The games, with their logs, and the stream in which they are delivered."""
    games = [ToyGame(lane, seed, observation) for lane in range(lanes)]
    makes: list[Callable[[], ToyGame]] = [lambda game=game: game for game in games]  # type: ignore[misc]
    return games, open_stream(KINDS[kind](makes), options=options or StreamOptions())


def toy_policy(rows: Rows) -> Any:
    """0-based actions that are a function of the open rows alone."""
    obs = rows.slots[-1].obs
    frame = obs["place"] if "place" in obs else obs["obs"]
    return (frame.reshape(len(frame), 3) @ np.array([3, 5, 7])).astype(np.int64) % ACTIONS


@dataclass
class Row:
    """A row as a tape keeps it."""

    obs: Observation
    reward: float
    score: float
    terminal: bool
    last: bool
    action: int = 0


class Tape:
    """The rows of each lane in plain lists: what a ring of endless length would hold."""

    def __init__(self, lanes: int) -> None:
        self.lanes: list[list[Row]] = [[] for _ in range(lanes)]

    def write(self, rows: Rows) -> None:
        """Departures of the open rows, or their cut, and then the arrivals."""
        for lane, written in enumerate(self.lanes):
            if written and rows.action is None:
                written[-1].last = True
            elif written and rows.action is not None and not written[-1].last:
                written[-1].action = int(rows.action[lane])
        for slot in rows.slots:
            for lane in np.flatnonzero(slot.valid).tolist():
                obs = {key: array[lane].copy() for key, array in slot.obs.items()}
                marks = bool(slot.terminal[lane]), bool(slot.last[lane])
                self.lanes[lane].append(Row(obs, float(slot.reward[lane]), float(slot.score[lane]), *marks))


# ---- naive readings of a log
def is_last(episode: Episode, t: int) -> bool:
    """The stream ends at steps[t]."""
    return episode.steps[t].terminated or episode.steps[t].truncated


def terminal_at(episode: Episode, t: int, life_loss: bool = True) -> bool:
    """No value beyond steps[t]: game over, or (if so configured) a life lost while some are left."""
    steps = episode.steps
    return steps[t].terminated or (life_loss and t > 0 and 0 < steps[t].lives < steps[t - 1].lives)


def naive_rows(log: list[Episode]) -> list[tuple[Episode, int]]:
    """The rows of one lane, counted off its log: row r is (episode, t)."""
    return [(episode, t) for episode in log for t in range(len(episode.steps))]


def stack_at(episode: Episode, t: int, frames: int) -> Any:
    """The frames of the last K steps, zeros before the first: `[K, 3]`."""
    seen = [step.frame for step in episode.steps[max(0, t - frames + 1) : t + 1]]
    return np.array([(0, 0, 0)] * (frames - len(seen)) + seen)


def naive_transition(
    episode: Episode, t: int, n: int, frames: int, gamma: float, life_loss: bool = True
) -> tuple[Any, int, float, float, Any]:
    """The n-step transition from (episode, t): stack, action, return, discount, stack at its end."""
    total, discount, s = 0.0, 1.0, t
    for _ in range(n):
        s += 1
        total, discount = total + discount * episode.steps[s].reward, discount * gamma
        if is_last(episode, s) or terminal_at(episode, s, life_loss):
            break
    if terminal_at(episode, s, life_loss):
        discount = 0.0
    return stack_at(episode, t, frames), episode.actions[t], total, discount, stack_at(episode, s, frames)
