"""Stream of Stable-Baselines3's `VecEnv`, frame stacks included, recognized by name: the package need not be installed."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array

from sb_dqn.envs.stream_options import StreamOptions, options_of
from sb_dqn.envs.streams.base import Stream, empty_infos, lane_observation
from sb_dqn.envs.vector.worker_processes import watch_pipes
from sb_dqn.errors import ConfigurationError, EnvironmentFault
from sb_dqn.sb3_names import ALREADY_STACKED, WRAPPERS
from sb_dqn.spaces import flatten_space, is_bytes, leaf_shape
from sb_dqn.types import ActionArray, Array, Blueprint, BoolArray, EnvLike, Info, IntArray, Rows, any_true

ADAPTERS = ("SB3VecEnvWrapper",)
"""Wrappers that make a `VecEnv` of a gymnasium `VectorEnv`, as that of SuperSuit's `base_class="stable_baselines3"`."""


def is_sb3(env: EnvLike) -> bool:
    """Returns True for a Stable-Baselines3 `VecEnv`, or any class with a base of that name."""
    return any(base.__name__ == "VecEnv" for base in type(env).__mro__)


def check_wrapped(env: EnvLike) -> None:
    """Raises an error on wrappers of Stable-Baselines3 around a gymnasium `VectorEnv`, whose results they cannot read.

    Raises:
        ConfigurationError: `env` is such a wrapper; the message names replacements.
    """
    layers = list(wrappers_of(env))
    inner, wrappers = layers[-1].venv if layers else env, [type(layer).__name__ for layer in layers]
    if not wrappers or not isinstance(inner, VectorEnv) or wrappers[-1] in ADAPTERS:
        return
    stacks = (options_of(inner) or StreamOptions()).frame_stack
    replacements = WRAPPERS | ({"VecFrameStack": ALREADY_STACKED.format(stacks)} if stacks > 1 else {})
    hints = [replacements[name] for name in wrappers if name in replacements]
    name = "(".join([*wrappers, type(inner).__name__]) + ")" * len(wrappers)
    raise ConfigurationError(
        f"wrappers of Stable-Baselines3 must be around a VecEnv, got {name}, where {type(inner).__name__} is a gymnasium "
        f"VectorEnv. Make it with make_vec_env(..., vec_env_cls=stable_baselines3.common.vec_env.DummyVecEnv), or leave the wrappers "
        f"out{': ' * bool(hints)}{'; '.join(hints)}."
    )


def sb3_stream(env: EnvLike, frame_stack: int | None, options: StreamOptions) -> SB3Stream:
    """Returns the stream of a `VecEnv`.

    The rows of a `VecFrameStack` of images hold its newest frame, which the library stacks again.

    Args:
        env: the `VecEnv`.
        frame_stack: number of frames K; None takes that of the `VecFrameStack`; 1 stores its stacks whole.
        options: stream options.
    """
    frames = stacked_frames(env) if frame_stack != 1 else None
    count = frame_stack or (options.frame_stack if frames is None else frames.count)
    options = replace(options, frame_stack=count)
    stream = SB3Stream(env, options, frames)
    stream.repeated_frames = 1 if frames or frame_stack is not None else repeated_frames(env)
    return stream


class SB3Stream(Stream):
    """Stream of a `VecEnv`, which resets ended lanes in the same step.

    Final observations are in `infos[i]["terminal_observation"]`, infos of resets in `reset_infos`.
    """

    def __init__(self, env: EnvLike, options: StreamOptions, frames: StackedFrames | None = None) -> None:
        space = env.observation_space if frames is None else frames.space
        channels = 1 if frames is None else leaf_shape(space)[0]
        super().__init__(env, env.num_envs, space, env.action_space, options, channels)
        self._frames = frames
        watch_pipes(env)

    def _reset(self, seed: int | None) -> Rows:
        try:
            if seed is not None:
                self.env.seed(seed)
            raw = self.env.reset()
        except Exception as error:
            raise self._fault(error) from error
        if self._reads_lives:
            self._lives = self._after_reset(self._all, self._lives)
        return self._first_rows(self._observe(self._kept(self._newest(raw))), self._reset_infos())

    def _advance(self, action: ActionArray) -> Rows:
        try:
            raw, reward, dones, infos = self.env.step(self._action_check.to_env(action))
        except Exception as error:
            raise self._fault(error) from error
        score = np.array(reward, np.float32)
        self._check_score(score)
        ended = np.array(dones, np.bool_)
        any_ended = any_true(ended)
        terminated = self._none
        if any_ended:
            terminated = ended & ~np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        terminal = terminated
        if self._reads_lives:
            terminal = self._with_lives(terminated, ended, infos)
        obs = self._observe(self._kept(self._newest(raw)))
        final = self._final_rows(self._finals(ended, terminated, infos), ended) if any_ended else None
        open_infos = infos
        if any_ended and self._mask_reader is not None:
            both = zip(ended, self._reset_infos(), infos, strict=True)
            open_infos = [reset if end else info for end, reset, info in both]
        slots = self._two_slots(obs, final, score, terminal, ended, open_infos, infos)
        return Rows(action, slots, self._all, self.num_envs, partial(_copied, infos))

    def _newest(self, raw: Any) -> Any:
        return raw if self._frames is None or raw is None else self._frames.newest(raw)

    def _finals(self, ended: BoolArray, terminated: BoolArray, infos: Sequence[Info]) -> list[Any]:
        """Returns the final observation of each lane, with zeros for a termination without one, which needs no value."""
        finals: list[Any] = [self._newest(info.get("terminal_observation")) for info in infos]
        missing = [lane for lane in np.flatnonzero(ended).tolist() if finals[lane] is None]
        for lane in missing:
            if not terminated[lane]:
                raise EnvironmentFault(
                    f"infos[{lane}] at step {self._tick} must contain 'terminal_observation', since lane {self.first_lane + lane} was "
                    f"truncated and its value is bootstrapped, got none. Set it in step_wait(), as DummyVecEnv does."
                )
            finals[lane] = lane_observation(create_empty_array(self.observation_space, n=1, fn=np.zeros), 0)
        if missing:
            self._warn_once(
                f"{type(self.env).__name__} returned no infos[i]['terminal_observation'] at the end of an episode, which counts "
                f"as a termination (no value beyond it). If it was a time limit, set 'terminal_observation' and "
                f"'TimeLimit.truncated'."
            )
        return finals

    def _with_lives(self, terminated: BoolArray, ended: BoolArray, infos: Sequence[Info]) -> BoolArray:
        """Returns `terminated`, including lost lives if so configured, and stores the lives of the open rows."""
        lives = self._lives_in(infos, self._lives.tolist())
        lost = self._lost_lives(lives, self._none, ended)
        self._lives = self._after_reset(ended, lives)
        return terminated | lost if self.options.terminal_on_life_loss else terminated

    def _after_reset(self, resets: BoolArray, lives: IntArray) -> IntArray:
        """Returns the lives of the open rows. After a reset they are those of `reset_infos`, or 0 (unknown) without an
        entry."""
        return np.where(resets, [info.get("lives", 0) for info in self._reset_infos()], lives)

    def _reset_infos(self) -> Sequence[Info]:
        """Returns the infos of each lane's latest reset, or empty ones if the env keeps none."""
        layers = (self.env, *(layer.venv for layer in wrappers_of(self.env)))  # a wrapper has empty ones of its own
        infos = (getattr(layer, "reset_infos", None) or () for layer in layers)
        return next((each for each in infos if any(each)), empty_infos(self.num_envs))


def _copied(infos: Sequence[Info]) -> list[Info]:
    return [dict(info) for info in infos]


@dataclass(frozen=True)
class StackedFrames:
    """Layout of the observations of a `VecFrameStack`, which pads with zeros like the library's own stacks."""

    space: spaces.Box
    """The space of one frame, `[C, H, W]`."""
    count: int
    """Number of frames K in an observation."""
    channels_last: bool
    """True for observations `[H, W, K * C]`, False for `[K * C, H, W]`."""

    def newest(self, stack: Array) -> Array:
        """Returns the newest frame `[..., C, H, W]` of observations."""
        depth = leaf_shape(self.space)[0]
        return np.moveaxis(stack[..., -depth:], -1, -3) if self.channels_last else stack[..., -depth:, :, :]


def stacked_frames(env: EnvLike) -> StackedFrames | None:
    """Returns the layout of a `VecFrameStack` of uint8 images, in a `VecTransposeImage` or not, and None for other
    environments."""
    transposed = _is(env, "VecTransposeImage") and not env.skip
    stacker = env.venv if _is(env, "VecTransposeImage") else env
    if not _is(stacker, "VecFrameStack"):
        return None
    stack, frame = stacker.stacked_obs, stacker.venv.observation_space
    if stack.n_stack < 2 or not isinstance(frame, spaces.Box) or len(frame.shape) != 3 or not is_bytes(frame):
        return None
    shape = frame.shape if stack.channels_first else (frame.shape[2], *frame.shape[:2])
    return StackedFrames(spaces.Box(0, 255, shape, np.uint8), stack.n_stack, not (stack.channels_first or transposed))


def repeated_frames(env: EnvLike) -> int:
    """Returns K if a `VecFrameStack` among the wrappers repeats each image in K observations, else 1."""
    for wrapper in wrappers_of(env):
        if _is(wrapper, "VecFrameStack"):
            leaves = flatten_space(wrapper.observation_space).values()
            return int(wrapper.stacked_obs.n_stack) if any(len(leaf_shape(leaf)) == 3 for leaf in leaves) else 1
    return 1


def has_stacks_of(env: EnvLike, made: Blueprint) -> bool:
    """Returns True if `made` stores the whole stacks of this `VecFrameStack`, as models in older files do."""
    return made.frame_stack == 1 and stacked_frames(env) is not None and env.observation_space == made.observation_space


def _is(env: EnvLike, name: str) -> bool:
    return type(env).__name__ == name and type(env).__module__.startswith("stable_baselines3.")


def wrappers_of(env: EnvLike) -> Iterator[EnvLike]:
    """Yields the wrappers around a `VecEnv`, from the outermost in."""
    while (inner := getattr(env, "__dict__", {}).get("venv")) is not None:  # getattr would search inner wrappers too
        yield env
        env = inner


def find_normalizer(env: EnvLike) -> Any:
    """Returns the `VecNormalize` among the wrappers around a `VecEnv`, or None."""
    layers = (each for each in wrappers_of(env) if any(base.__name__ == "VecNormalize" for base in type(each).__mro__))
    return next(layers, None)


def sync_normalizer(training_env: object, eval_env: object) -> None:
    """Copies the running statistics of the training environment to the evaluation environment.

    Raises:
        ConfigurationError: only the training environment is normalized.
    """
    source = find_normalizer(training_env)
    if source is None:
        return
    target = find_normalizer(eval_env)
    if target is None:
        raise ConfigurationError(
            f"eval_env must be wrapped in VecNormalize like the training environment, got {type(eval_env).__name__}. Pass "
            f"VecNormalize(eval_env, training=False, norm_reward=False)."
        )
    for name in ("obs_rms", "ret_rms"):
        if (statistics := getattr(source, name, None)) is not None:  # norm_obs=False has none of observations
            setattr(target, name, copy.deepcopy(statistics))
