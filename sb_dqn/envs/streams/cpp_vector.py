"""Streams of vector environments in C++: a user's own `AtariVectorEnv`, and EnvPool's."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.gymnasium_vector import NextStepStream, Results, SameStepStream, VectorStream
from sb_dqn.errors import ConfigurationError
from sb_dqn.types import ActionArray, EnvLike, FloatArray, Info, Rows, any_true

FIX = (
    "Make it with episodic_life=False, life_loss_info=False and open it with StreamOptions(terminal_on_life_loss=True), "
    "or use make_atari_env(..., protocol='classic')."
)


def is_ale(env: EnvLike) -> bool:
    """Returns True for ale_py's AtariVectorEnv or a wrapper around one."""
    inner = getattr(env, "unwrapped", env)
    return any(base.__module__ == "ale_py.vector_env" for base in type(inner).__mro__)


def ale_stream(env: EnvLike, frame_stack: int | None, options: StreamOptions) -> VectorStream:
    """Returns the stream of an AtariVectorEnv.

    The rows hold the newest frame of its stack of K grey frames (padded with zeros), which the library stacks again.

    Raises:
        ConfigurationError: the env steps only some lanes at a time, or ends games at lost lives.
    """
    inner = env.unwrapped
    if inner.batch_size != inner.num_envs:
        raise ConfigurationError(
            f"batch_size of AtariVectorEnv must be its number of lanes, {inner.num_envs}, got {inner.batch_size}, which is not "
            f"deterministic. Leave batch_size out."
        )
    kwargs = env.spec.kwargs if env.spec is not None else {}
    for flag in ("episodic_life", "life_loss_info"):
        if kwargs.get(flag):
            raise ConfigurationError(
                f"{flag} of AtariVectorEnv must be False, got True, which hides where a game ends. {FIX}"
            )
    space = env.single_observation_space
    stacked = (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and inner.single_observation_space == space
        and space.shape[0] > 1
    )
    newest = stacked and frame_stack != 1
    options = replace(options, frame_stack=frame_stack or (space.shape[0] if newest else options.frame_stack))
    kind = SameStepStream if AutoresetMode(inner.autoreset_mode) is AutoresetMode.SAME_STEP else AleNextStepStream
    return kind(env, options, newest_frame=newest)


class AleNextStepStream(NextStepStream):
    """Stream of a raw AtariVectorEnv, which resets an ended lane in the next step.

    Its settings do not show whether it ends games at lost lives, so its results are checked.
    """

    def _rows(self, action: ActionArray, results: Results) -> Rows:
        _, _, terminated, _, info = results
        lives = np.array(info["lives"], np.int64)
        if any_true(terminated) and any_true(wrong := terminated & (lives > 0) & (lives < self._lives)):
            lane = int(np.flatnonzero(wrong)[0])
            raise ConfigurationError(
                f"a game must end with its last life, got an end in lane {self.first_lane + lane} at step {self._tick} with "
                f"{lives[lane]} lives remaining: this AtariVectorEnv has episodic_life=True or life_loss_info=True, which hide "
                f"where a game ends. {FIX}"
            )
        rows = super()._rows(action, results)
        self._lives = lives
        return rows


def is_envpool(env: EnvLike) -> bool:
    """Returns True for an env made by EnvPool."""
    return any(base.__module__.partition(".")[0] == "envpool" for base in type(env).__mro__)


class EnvPoolStream(NextStepStream):
    """Stream of EnvPool with `env_type="gymnasium"` and synchronous lanes (asynchronous batches are not deterministic)."""

    def __init__(self, env: EnvLike, options: StreamOptions) -> None:
        if not any(base.__name__ == "GymnasiumEnvPoolMixin" for base in type(env).__mro__):
            raise ConfigurationError(
                f"an EnvPool env must have the gymnasium interface, got {type(env).__name__}. Make it with envpool.make(..., "
                f"env_type='gymnasium')."
            )
        config = env.config
        if config["batch_size"] not in (0, config["num_envs"]):
            raise ConfigurationError(
                f"batch_size of EnvPool must be num_envs={config['num_envs']}, got {config['batch_size']}, which returns lanes in "
                f"any order. Leave batch_size out."
            )
        if config.get("episodic_life"):
            warnings.warn(
                "EnvPool with episodic_life=True counts each life as an episode. For whole games make it with "
                "episodic_life=False and open it with StreamOptions(terminal_on_life_loss=True).",
                stacklevel=4,
            )
        super().__init__(env, options)

    def _reset(self, seed: int | None) -> Rows:
        if seed is not None and seed != self.env.config["seed"]:
            warnings.warn(
                f"EnvPool is seeded only at construction, so seed={seed} has no effect. Make it with envpool.make(..., "
                f"seed={seed}).",
                stacklevel=4,
            )
        return super()._reset(None)

    def _score(self, reward: FloatArray, info: Info) -> FloatArray:
        """Returns the raw reward, which EnvPool puts into the info where it clips the returned one."""
        raw = info.get("reward")
        return reward if raw is None or np.shape(raw) != reward.shape else np.asarray(raw, np.float32)
