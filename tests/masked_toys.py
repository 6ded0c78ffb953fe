"""The toy games with legal actions and with actions of several branches, and the naive truth of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.types import Rows
from tests.toys import ACTIONS, KINDS, START, Episode, ToyGame

ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(5, start=-1),
    "uneven": spaces.MultiDiscrete([2, 5, 3], start=[1, 0, -2]),
    "even": spaces.MultiDiscrete([3, 3]),
    "one": spaces.MultiDiscrete([4]),
    "binary": spaces.MultiBinary(3),
}
BRANCHES = {"discrete": [5], "uneven": [2, 5, 3], "even": [3, 3], "one": [4], "binary": [2, 2, 2]}
STARTS = {"discrete": [-1], "uneven": [1, 0, -2], "even": [0, 0], "one": [0], "binary": [0, 0, 0]}
FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "flat": np.concatenate,
    "ints": lambda parts: np.concatenate(parts).astype(np.int8),
    "list": lambda parts: np.concatenate(parts).tolist(),
    "tuple": tuple,
    "lists": lambda parts: [part.tolist() for part in parts],
}
"""How the mask of one state is told; the last two are for branches."""
ENDS = "given", "empty", "absent"


def padded(parts: list[Any], space: str) -> Any:
    """Masks by branch, each as long as the longest: `[D, A]`, or `[A]` of a Discrete."""
    if space == "discrete":
        return np.array(parts[0], bool)
    width = max(BRANCHES[space])
    return np.array([[*part, *[False] * (width - len(part))] for part in parts], bool)


class MaskedGame(gymnasium.Env[Any, Any]):
    """A ToyGame that allows some actions only and takes actions of any discrete space.

    Its terminal rows have a mask, an empty one or none by turns.
    """

    def __init__(self, lane: int = 0, space: str = "discrete", where: str = "info", form: str = "flat") -> None:
        self.game = ToyGame(lane, seed=5)
        self.space, self.where, self.form = space, where, form
        self.action_space = ACTION_SPACES[space]
        self.observation_space: spaces.Space[Any] = self.game.observation_space
        if where == "legal":
            parts = [[1] * count for count in BRANCHES[space]]
            shape = sum(BRANCHES[space]) if form == "flat" else padded(parts, space).shape
            self.observation_space = spaces.Dict(
                {"legal": spaces.MultiBinary(shape), "place": self.game.observation_space}
            )
        self.wanted: dict[Any, Any] = {}
        """Frame to padded mask: what the stream has to say."""
        self.told: list[str] = []
        self.given: list[Any] = []
        """Actions as they came."""
        self.played: dict[Any, list[int]] = {}
        """Frame to the 0-based action that left it."""

    def _answer(self, observation: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        episode, frame = self.game.log[-1], self.game.log[-1].steps[-1].frame
        rng = np.random.default_rng(frame)
        parts = [rng.random(n) < 0.4 for n in BRANCHES[self.space]]
        for part in parts:
            part[rng.integers(len(part))] = True
        everything = [np.ones_like(part) for part in parts]
        how = ENDS[sum(frame) % 3] if episode.steps[-1].terminated else "given"
        self.told.append(how)
        self.wanted[frame] = padded(parts if how == "given" else everything, self.space)
        parts = parts if how == "given" else [np.zeros_like(part) for part in parts]
        if self.where == "legal":
            mask = np.concatenate(parts) if self.form == "flat" else padded(parts, self.space)
            return {"legal": mask.astype(np.int8), "place": observation}, info
        if how != "absent":
            info["action_mask"] = FORMS[self.form](parts)
        return observation, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As ToyGame does."""
        observation, info = self.game.reset()
        return self._answer(observation, info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; the action must be of the space, and legal."""
        assert self.action_space.contains(action), (action, type(action))
        frame = self.game.log[-1].steps[-1].frame
        played = (np.array(action).reshape(-1) - STARTS[self.space]).tolist()
        legal = self.wanted[frame].reshape(len(played), -1)
        assert all(legal[branch, choice] for branch, choice in enumerate(played)), (frame, played)
        self.given.append(action)
        self.played[frame] = played
        observation, reward, terminated, truncated, info = self.game.step(START + sum(played) % ACTIONS)
        observation, info = self._answer(observation, info)
        if self.space != "discrete":
            action[:] = STARTS[self.space]  # what it was given is its own, to do with as it likes
        return observation, reward, terminated, truncated, info


def masked_stream(
    kind: str, lanes: int, space: str, where: str, form: str, life_loss: bool = False, masks: bool = True
) -> tuple[list[MaskedGame], Stream]:
    """The games and the stream in which they are delivered."""
    games = [MaskedGame(lane, space, where, form) for lane in range(lanes)]
    makes: list[Callable[[], MaskedGame]] = [lambda game=game: game for game in games]  # type: ignore[misc]
    env = KINDS[kind](makes)  # type: ignore[arg-type]  # it is made for ToyGames, and asks no more of them than of these
    options = StreamOptions(terminal_on_life_loss=life_loss)
    return games, open_stream(env, options=options, action_mask=where if masks else None)


def legal_actions(rows: Rows, rng: np.random.Generator) -> Any:
    """Any of the actions that the open rows allow."""
    mask: Any = rows.slots[-1].mask
    return (rng.random(mask.shape) * mask).argmax(-1)


def frames_of(game: MaskedGame) -> list[tuple[Episode, int]]:
    """The rows of a lane, counted off the log."""
    return [(episode, t) for episode in game.game.log for t in range(len(episode.steps))]
