"""Atari games that can be gone on with exactly: each begins from a seed of its own, and is a function of its actions then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sb_dqn.errors import CheckpointError
from sb_dqn.types import BoolArray, IntArray

SEEDS = 2**30
"""ALE takes 31 bits."""


class SeededGames:
    """Seeds and actions of the games under way; the C++ emulators cannot say their state, but they can play it again.

    Args:
        env: ale_py's AtariVectorEnv in NEXT_STEP autoreset.
        num_envs: lanes.
    """

    def __init__(self, env: Any, num_envs: int) -> None:
        self.env, self.num_envs = env, num_envs
        self.rng: np.random.Generator | None = None
        self.seeds: IntArray = np.zeros(num_envs, np.int64)
        self.actions: list[list[int]] = [[] for _ in range(num_envs)]
        self.ended: BoolArray = np.zeros(num_envs, np.bool_)

    def begin(self, seed: Any) -> tuple[Any, dict[str, Any]]:
        """Resets every lane with a seed drawn from `seed` (an int or one for each lane); None goes on drawing."""
        if seed is not None or self.rng is None:
            entropy = None if seed is None else [int(one) for one in np.atleast_1d(seed)]
            self.rng = np.random.default_rng(entropy)
        everywhere = np.ones(self.num_envs, np.bool_)
        self._renew(everywhere)
        answer: tuple[Any, dict[str, Any]] = self.env.reset(seed=self.seeds.copy())
        return answer

    def sent(self, actions: IntArray) -> None:
        """Remembers the actions; that of a lane whose game is over is ignored."""
        for lane, action in enumerate(actions.tolist()):
            if not self.ended[lane]:
                self.actions[lane].append(action)

    def answered(self, obs: Any, info: dict[str, Any], ended: BoolArray) -> tuple[Any, dict[str, Any]]:
        """The answer with new games, from seeds of ours, in the lanes that have just been reset from none."""
        resets, self.ended = self.ended, ended.copy()
        if resets.any():
            self._renew(resets)
            obs, info = self.env.reset(seed=self.seeds[resets], options={"reset_mask": resets})
        return obs, info

    def _renew(self, lanes: BoolArray) -> None:
        assert self.rng is not None
        self.seeds[lanes] = self.rng.integers(SEEDS, size=int(lanes.sum()))
        for lane in np.flatnonzero(lanes).tolist():
            self.actions[lane] = []
        self.ended = np.where(lanes, False, self.ended)

    def state_dict(self, obs: npt.NDArray[Any]) -> dict[str, Any]:
        """Seeds and actions, and what was seen last, by which a replay is known to be the right one."""
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
        """Plays the games again, all lanes side by side: a shorter one begins later, from its seed.

        Raises:
            CheckpointError: other lanes, or the games come out otherwise.
        """
        lengths = np.asarray(state["lengths"]).tolist()
        if len(lengths) != self.num_envs:
            raise CheckpointError(
                f"the checkpoint has {len(lengths)} lanes, the environment {self.num_envs}; make as many"
            )
        pieces = np.split(np.asarray(state["actions"], np.int64), np.cumsum(lengths)[:-1])
        self.actions = [piece.tolist() for piece in pieces]
        self.seeds, self.ended = np.array(state["seeds"], np.int64), np.array(state["ended"], np.bool_)
        self.rng = np.random.default_rng(0)
        self.rng.bit_generator.state = state["rng"]
        if not np.array_equal(self._replayed(np.array(lengths)), state["obs"]):
            raise CheckpointError(
                "the games of the checkpoint come out otherwise here; make the environment as before (game, protocol, lanes, "
                "env_kwargs) and use the same version of ale-py"
            )

    def _replayed(self, lengths: IntArray) -> Any:
        longest = int(lengths.max())
        obs, _ = self.env.reset(seed=self.seeds.copy())
        for tick in range(longest + 1):
            starting = (lengths == longest - tick) & (tick > 0)
            if starting.any():
                obs, _ = self.env.reset(seed=self.seeds[starting], options={"reset_mask": starting})
            if tick == longest:
                break
            begun = longest - lengths
            actions = [
                self.actions[lane][tick - begun[lane]] if tick >= begun[lane] else 0 for lane in range(self.num_envs)
            ]
            self.env.send(np.array(actions, np.int64))
            obs = self.env.recv()[0]
        return obs
