"""ale_py's C++ vector env behind a door that checks what is sent: it never answers an illegal action."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from sb_dqn.envs.monitor import ResultsWriter
from sb_dqn.envs.streams.helpers import some
from sb_dqn.envs.streams.options import StreamOptions
from sb_dqn.envs.vector.atari_replay import SeededGames
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError, EnvironmentFault, SpaceError
from sb_dqn.types import BoolArray, IntArray


class LaneRecorder:
    """Monitor files of lanes that come as arrays: returns and lengths counted over NEXT_STEP answers.

    Args:
        filenames: one for each lane.
        env_id: for the header.
    """

    def __init__(self, filenames: Sequence[str], env_id: str) -> None:
        self._began = time.time()
        header: dict[str, float | str] = {"t_start": self._began, "env_id": env_id}
        self._writers = [ResultsWriter(name, header) for name in filenames]
        self._returns, self._lengths = np.zeros(len(filenames)), np.zeros(len(filenames), np.int64)
        self._resets = np.zeros(len(filenames), np.bool_)

    def begin(self) -> None:
        """All lanes were reset."""
        self._returns[:], self._lengths[:], self._resets = 0.0, 0, np.zeros_like(self._resets)

    def record(self, reward: npt.NDArray[Any], ended: BoolArray) -> None:
        """Counts one step, and writes the episodes that ended with it."""
        self._returns += reward
        self._lengths += ~self._resets
        self._resets = ended
        if not some(ended):
            return
        elapsed = round(time.time() - self._began, 6)
        for lane in np.flatnonzero(ended).tolist():
            self._writers[lane].write_row(
                {"r": float(self._returns[lane]), "l": int(self._lengths[lane]), "t": elapsed}
            )
            self._returns[lane] = self._lengths[lane] = 0

    def state_dict(self) -> dict[str, Any]:
        """The episodes under way."""
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy(), "resets": self._resets.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on in these episodes."""
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._resets = np.array(state["resets"], np.bool_)

    def close(self) -> None:
        """Closes the files."""
        for writer in self._writers:
            writer.close()


class AtariLanes(VectorEnv[Any, Any, Any]):
    """AtariVectorEnv behind a door: actions are checked before they are sent, and one answer is taken for each sending.

    Args:
        env: the C++ vector env.
        stream_options: how a learner reads it.
        actions: names of the actions, by index.
        seed: used by the first `reset` that is given none.
        exact_resume: begin each game from a seed of its own, so that full checkpoints can hold the games under way.
    """

    def __init__(
        self,
        env: Any,
        stream_options: StreamOptions,
        actions: list[str],
        seed: int | None = None,
        exact_resume: bool = False,
    ) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.single_observation_space, self.single_action_space = env.single_observation_space, env.single_action_space
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.stream_options = stream_options
        self.first_seed = seed
        self._meanings = actions
        self._sent = False
        self._recorder: LaneRecorder | None = None
        self._games = SeededGames(env, self.num_envs) if exact_resume else None
        self._obs: Any = None

    def get_action_meanings(self) -> list[str]:
        """Names of the actions, by index."""
        return list(self._meanings)

    def watch(self, folder: str | Path, env_id: str, start_index: int = 0) -> None:
        """Writes a monitor file for each lane, named by its number."""
        self._recorder = LaneRecorder(
            [str(Path(folder) / str(start_index + lane)) for lane in range(self.num_envs)], env_id
        )

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the lanes; an int seeds lane b with seed + b, an array each lane by itself."""
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        if self._sent:
            self.recv()  # an answer that nobody fetched would be taken for the next one
        if self._recorder is not None:
            self._recorder.begin()
        seed = int(seed) if isinstance(seed, np.integer) else seed
        if self._games is not None:
            self._obs, info = self._games.begin(seed)
            return self._obs, info
        answer: tuple[Any, dict[str, Any]] = self.env.reset(seed=seed, options=options)
        return answer

    def send(self, actions: npt.NDArray[np.integer[Any]]) -> None:
        """Hands over the actions; the emulators begin at once.

        Raises:
            SpaceError: dtype, shape or range do not fit (the emulator would never answer).
            EnvironmentFault: the answer to the last sending was not taken.
        """
        if self._sent:
            raise EnvironmentFault("send() twice; take the answer to the first by recv()")
        actions = np.asarray(actions)
        if actions.dtype.kind not in "iu" or actions.shape != (self.num_envs,):
            raise SpaceError(
                f"actions have dtype {actions.dtype} and shape {actions.shape}; allowed: integers, ({self.num_envs},)"
            )
        listed = actions.tolist()
        if min(listed) < 0 or max(listed) >= len(self._meanings):
            lane = next(lane for lane, action in enumerate(listed) if not 0 <= action < len(self._meanings))
            raise SpaceError(
                f"action {listed[lane]} in lane {lane} is out of range; allowed: 0 to {len(self._meanings) - 1}"
            )
        whole: IntArray = actions.astype(np.int64, copy=False)
        if self._games is not None:
            self._games.sent(whole)
        self.env.send(whole)
        self._sent = True

    def recv(self) -> tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Waits for the answer to what was sent.

        Raises:
            EnvironmentFault: nothing was sent.
        """
        if not self._sent:
            raise EnvironmentFault("recv() without send(); the emulators would wait for ever")
        obs, reward, terminated, truncated, info = self.env.recv()
        self._sent = False
        if self._games is not None:
            self._obs, info = obs, info = self._games.answered(obs, info, terminated | truncated)
        if self._recorder is not None:
            self._recorder.record(reward, terminated | truncated)
        return obs, reward.astype(np.float32), terminated, truncated, info

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """`send`, then `recv`."""
        self.send(actions)
        return self.recv()

    def state_dict(self) -> dict[str, Any]:
        """The games under way, as seeds and actions.

        Raises:
            NoState: made without `exact_resume=True`, or an answer is under way.
        """
        if self._games is None or self._games.rng is None:
            raise NoEnvState(
                "ale_py's emulators cannot say their state; make them with make_atari_env(..., exact_resume=True)"
            )
        if self._sent:
            raise NoEnvState("the emulators have not answered yet")
        recorder = None if self._recorder is None else self._recorder.state_dict()
        return {"games": self._games.state_dict(self._obs), "recorder": recorder}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Plays these games again, up to where they were.

        Raises:
            CheckpointError: made without `exact_resume=True`, or the games come out otherwise.
        """
        if self._games is None:
            raise CheckpointError(
                "the checkpoint holds games to be played again; make the env with exact_resume=True, too"
            )
        self._games.load_state_dict(state["games"])
        self._obs, self._sent, self.first_seed = np.array(state["games"]["obs"]), False, None
        if self._recorder is not None and state["recorder"] is not None:
            self._recorder.load_state_dict(state["recorder"])

    def close_extras(self, **kwargs: Any) -> None:
        """Closes emulators and monitor files."""
        self.env.close()
        if self._recorder is not None:
            self._recorder.close()
