"""`AtariLanes`: ale_py's C++ vector env with checked actions, monitor files and exactly resumable games."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from sb_dqn.envs.action_checks import ActionCheck
from sb_dqn.envs.monitor import ResultsWriter
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError, EnvironmentFault
from sb_dqn.spaces import ActionShape
from sb_dqn.types import Array, BoolArray, EnvLike, Info, IntArray, Kwargs, ResetResult, State, VectorStep, any_true


class LaneMonitor:
    """Writer of monitor files for the lanes of a NEXT_STEP vector env.

    Args:
        filenames: one per lane.
        env_id: env id in the files' headers.
    """

    def __init__(self, filenames: Sequence[str], env_id: str) -> None:
        self._start_time = time.time()
        header: dict[str, float | str] = {"t_start": self._start_time, "env_id": env_id}
        self._writers = [ResultsWriter(name, header) for name in filenames]
        self._returns = np.zeros(len(filenames))
        self._lengths = np.zeros(len(filenames), np.int64)
        self._resets = np.zeros(len(filenames), np.bool_)

    def begin(self) -> None:
        """Starts a new episode in every lane."""
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self._resets = np.zeros_like(self._resets)

    def add_step(self, reward: Array, ended: BoolArray) -> None:
        """Counts one step and writes the episodes that ended with it."""
        self._returns += reward
        self._lengths += ~self._resets
        self._resets = ended
        if not any_true(ended):
            return
        elapsed = round(time.time() - self._start_time, 6)
        for lane in np.flatnonzero(ended).tolist():
            self._writers[lane].write_row(
                {"r": float(self._returns[lane]), "l": int(self._lengths[lane]), "t": elapsed}
            )
            self._returns[lane] = self._lengths[lane] = 0

    def state_dict(self) -> State:
        """Returns the state of the episodes under way."""
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy(), "resets": self._resets.copy()}

    def load_state_dict(self, state: State) -> None:
        """Restores the episodes under way."""
        self._returns[:] = state["returns"]
        self._lengths[:] = state["lengths"]
        self._resets = np.array(state["resets"], np.bool_)

    def close(self) -> None:
        """Closes the files."""
        for writer in self._writers:
            writer.close()


class AtariLanes(VectorEnv[Any, Any, Any]):
    """ale_py's AtariVectorEnv with checked actions: its emulators never return from an illegal one.

    Args:
        env: the C++ vector env.
        stream_options: stream options.
        actions: names of the actions, by index.
        seed: seed of the first `reset` without a seed.
        exact_resume: start each game from its own seed, so that full checkpoints can hold the games under way.
    """

    def __init__(
        self,
        env: EnvLike,
        stream_options: StreamOptions,
        actions: list[str],
        seed: int | None = None,
        exact_resume: bool = False,
    ) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.single_observation_space = env.single_observation_space
        self.single_action_space = env.single_action_space
        self.observation_space = env.observation_space
        self.action_space = env.action_space
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.stream_options = stream_options
        self.first_seed = seed
        self._action_names = actions
        self._check = ActionCheck(env.single_action_space, ActionShape.of(env.single_action_space), self.num_envs)
        self._sent = False
        self._monitor: LaneMonitor | None = None
        self._games = SeededGames(env, self.num_envs) if exact_resume else None
        self._obs: Any = None

    def get_action_meanings(self) -> list[str]:
        """Returns the names of the actions, by index."""
        return list(self._action_names)

    def watch(self, folder: str | Path, env_id: str, start_index: int = 0) -> None:
        """Writes a monitor file per lane into `folder`, named by the lane's number plus `start_index`."""
        self._monitor = LaneMonitor(
            [str(Path(folder) / str(start_index + lane)) for lane in range(self.num_envs)], env_id
        )

    def reset(self, *, seed: object = None, options: Kwargs | None = None) -> ResetResult:
        """Resets the lanes; an int seeds lane b with seed + b, an array holds one seed per lane."""
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        if self._sent:
            self.recv()  # otherwise the pending results would be returned for the next actions
        if self._monitor is not None:
            self._monitor.begin()
        seed = int(seed) if isinstance(seed, np.integer) else seed
        if self._games is not None:
            self._obs, info = self._games.begin(seed)
            return self._obs, info
        result: ResetResult = self.env.reset(seed=seed, options=options)
        return result

    def send(self, actions: npt.NDArray[np.integer[Any]]) -> None:
        """Sends the actions to the emulators, which start at once.

        Raises:
            SpaceError: wrong dtype, shape or range (the emulator would never return).
            EnvironmentFault: the results of the previous `send` were not received.
        """
        if self._sent:
            raise EnvironmentFault("send() must follow recv(), got send() twice. Call recv() for the first results.")
        checked = self._check.check(actions)
        if self._games is not None:
            self._games.add_actions(checked)
        self.env.send(checked)
        self._sent = True

    def recv(self) -> VectorStep:
        """Waits for the results of `send` and returns them.

        Raises:
            EnvironmentFault: no actions were sent.
        """
        if not self._sent:
            raise EnvironmentFault("recv() must follow send(), got recv() alone. Call send(actions) first.")
        obs, reward, terminated, truncated, info = self.env.recv()
        self._sent = False
        if self._games is not None:
            self._obs, info = obs, info = self._games.reseed_ended(obs, info, terminated | truncated)
        if self._monitor is not None:
            self._monitor.add_step(reward, terminated | truncated)
        return obs, reward.astype(np.float32), terminated, truncated, info

    def step(self, actions: Any) -> VectorStep:
        """Calls `send`, then `recv`."""
        self.send(actions)
        return self.recv()

    def state_dict(self) -> State:
        """Returns the games under way, as seeds and actions.

        Raises:
            NoEnvState: made without `exact_resume=True`, or results are pending.
        """
        if self._games is None or self._games.rng is None:
            raise NoEnvState("ale_py's emulators do not expose their state")
        if self._sent:
            raise NoEnvState("the results of the emulators are pending")
        recorder = None if self._monitor is None else self._monitor.state_dict()
        return {"games": self._games.state_dict(self._obs), "recorder": recorder}

    def load_state_dict(self, state: State) -> None:
        """Plays the saved games again up to their saved step.

        Raises:
            CheckpointError: made without `exact_resume=True`, or the games end elsewhere.
        """
        if self._games is None:
            raise CheckpointError(
                "exact_resume must be True as in the checkpoint, whose games are replayed, got False. Make the env with "
                "make_atari_env(..., exact_resume=True)."
            )
        self._games.load_state_dict(state["games"])
        self._obs = np.array(state["games"]["obs"])
        self._sent = False
        self.first_seed = None
        if self._monitor is not None and state["recorder"] is not None:
            self._monitor.load_state_dict(state["recorder"])

    def close_extras(self, **kwargs: object) -> None:
        """Closes emulators and monitor files."""
        self.env.close()
        self.env.ale = None  # ends the emulators; ale_py has no other way
        if self._monitor is not None:
            self._monitor.close()


SEEDS = 2**30
"""Upper bound of the seeds; ALE accepts 31 bits."""


class SeededGames:
    """Seeds and actions of the games under way, which are played again in place of a saved emulator state.

    Args:
        env: ale_py's AtariVectorEnv in NEXT_STEP autoreset.
        num_envs: number of lanes B.
    """

    def __init__(self, env: EnvLike, num_envs: int) -> None:
        self.env = env
        self.num_envs = num_envs
        self.rng: np.random.Generator | None = None
        self.seeds: IntArray = np.zeros(num_envs, np.int64)
        self.actions: list[list[int]] = [[] for _ in range(num_envs)]
        self.ended: BoolArray = np.zeros(num_envs, np.bool_)

    def begin(self, seed: Any) -> ResetResult:
        """Resets every lane with a seed drawn from `seed` (an int or one per lane); None continues the generator."""
        if seed is not None or self.rng is None:
            entropy = None if seed is None else [int(one) for one in np.atleast_1d(seed)]
            self.rng = np.random.default_rng(entropy)
        self._start_games(np.ones(self.num_envs, np.bool_))
        result: ResetResult = self.env.reset(seed=self.seeds.copy())
        return result

    def add_actions(self, actions: IntArray) -> None:
        """Keeps the actions, except in lanes whose game is over."""
        for lane, action in enumerate(actions.tolist()):
            if not self.ended[lane]:
                self.actions[lane].append(action)

    def reseed_ended(self, obs: object, info: Info, ended: BoolArray) -> ResetResult:
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

    def state_dict(self, obs: Array) -> State:
        """Returns seeds and actions, with the last observations, which verify that they are played again."""
        assert self.rng is not None
        return {
            "rng": self.rng.bit_generator.state,
            "seeds": self.seeds.copy(),
            "ended": self.ended.copy(),
            "lengths": np.array([len(played) for played in self.actions], np.int64),
            "actions": np.array([action for played in self.actions for action in played], np.int16),
            "obs": np.array(obs),
        }

    def load_state_dict(self, state: State) -> None:
        """Plays the games again in all lanes at once: shorter games start later, so that all end together.

        Raises:
            CheckpointError: another number of lanes, or the games end elsewhere.
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
        if not np.array_equal(self._play_again(np.array(lengths)), state["obs"]):
            raise CheckpointError(
                "the replayed games must end at the observations of the checkpoint, got others. Make the environment as before "
                "(game, protocol, lanes, env_kwargs) and use the same version of ale-py."
            )

    def _play_again(self, lengths: IntArray) -> Any:
        """Plays the stored games and returns the last observations; `lengths` is `[B]` actions per game."""
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
