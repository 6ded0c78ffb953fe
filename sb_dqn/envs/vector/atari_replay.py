"""Exactly resumable Atari games: each starts from its own seed, so seed and actions determine it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sb_dqn.errors import CheckpointError
from sb_dqn.types import BoolArray, IntArray

SEEDS = 2**30
"""Upper bound of the seeds; ALE accepts 31 bits."""


class SeededGames:
    """Recorder of the seeds and actions of the games under way, which replays them in place of a saved emulator state.

    Args:
        env: ale_py's AtariVectorEnv in NEXT_STEP autoreset.
        num_envs: number of lanes B.
    """

    def __init__(self, env: Any, num_envs: int) -> None:
        self.env = env
        self.num_envs = num_envs
        self.rng: np.random.Generator | None = None
        self.seeds: IntArray = np.zeros(num_envs, np.int64)
        self.actions: list[list[int]] = [[] for _ in range(num_envs)]
        self.ended: BoolArray = np.zeros(num_envs, np.bool_)

    def begin(self, seed: Any) -> tuple[Any, dict[str, Any]]:
        """Resets every lane with a seed drawn from `seed` (an int or one per lane); None continues the generator."""
        if seed is not None or self.rng is None:
            entropy = None if seed is None else [int(one) for one in np.atleast_1d(seed)]
            self.rng = np.random.default_rng(entropy)
        self._start_games(np.ones(self.num_envs, np.bool_))
        result: tuple[Any, dict[str, Any]] = self.env.reset(seed=self.seeds.copy())
        return result

    def record_actions(self, actions: IntArray) -> None:
        """Records the actions, except in lanes whose game is over."""
        for lane, action in enumerate(actions.tolist()):
            if not self.ended[lane]:
                self.actions[lane].append(action)

    def reseed_ended(self, obs: Any, info: dict[str, Any], ended: BoolArray) -> tuple[Any, dict[str, Any]]:
        """Returns the results after starting seeded games in the lanes that the emulators reset without a seed.

        Args:
            obs: `[B, ...]` observations of this step.
            info: batched info of this step.
            ended: `[B]` lanes whose game ended in this step.
        """
        resets, self.ended = self.ended, ended.copy()
        if resets.any():
            self._start_games(resets)
            obs, info = self.env.reset(seed=self.seeds[resets], options={"reset_mask": resets})
        return obs, info

    def _start_games(self, lanes: BoolArray) -> None:
        """Draws new seeds and clears the actions of these lanes."""
        assert self.rng is not None
        self.seeds[lanes] = self.rng.integers(SEEDS, size=int(lanes.sum()))
        for lane in np.flatnonzero(lanes).tolist():
            self.actions[lane] = []
        self.ended = np.where(lanes, False, self.ended)

    def state_dict(self, obs: npt.NDArray[Any]) -> dict[str, Any]:
        """Returns seeds and actions, with the last observations, which verify a replay."""
        assert self.rng is not None
        return {
            "rng": self.rng.bit_generator.state,
            "seeds": self.seeds.copy(),
            "ended": self.ended.copy(),
            "lengths": np.array([len(played) for played in self.actions], np.int64),
            "actions": np.array([action for played in self.actions for action in played], np.int16),
            "obs": np.array(obs),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replays the games in all lanes at once: shorter games start later, so that all end together.

        Raises:
            CheckpointError: another number of lanes, or the replay differs from the saved games.
        """
        lengths = np.asarray(state["lengths"]).tolist()
        if len(lengths) != self.num_envs:
            raise CheckpointError(
                f"the environment must have {len(lengths)} lanes as in the checkpoint, got {self.num_envs}. Use the same number "
                f"of environments."
            )
        pieces = np.split(np.asarray(state["actions"], np.int64), np.cumsum(lengths)[:-1])
        self.actions = [piece.tolist() for piece in pieces]
        self.seeds = np.array(state["seeds"], np.int64)
        self.ended = np.array(state["ended"], np.bool_)
        self.rng = np.random.default_rng(0)
        self.rng.bit_generator.state = state["rng"]
        if not np.array_equal(self._replay(np.array(lengths)), state["obs"]):
            raise CheckpointError(
                "the replayed games must end at the observations of the checkpoint, got others. Make the environment as before "
                "(game, protocol, lanes, env_kwargs) and use the same version of ale-py."
            )

    def _replay(self, lengths: IntArray) -> Any:
        """Plays the recorded games and returns the last observations; `lengths` is `[B]` actions per game."""
        longest = int(lengths.max())
        obs, _ = self.env.reset(seed=self.seeds.copy())
        for tick in range(longest + 1):
            starting = (lengths == longest - tick) & (tick > 0)
            if starting.any():
                obs, _ = self.env.reset(seed=self.seeds[starting], options={"reset_mask": starting})
            if tick == longest:
                break
            starts = longest - lengths
            actions = [
                self.actions[lane][tick - starts[lane]] if tick >= starts[lane] else 0 for lane in range(self.num_envs)
            ]
            self.env.send(np.array(actions, np.int64))
            obs = self.env.recv()[0]
        return obs
