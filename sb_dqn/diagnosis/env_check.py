"""`check_env`: all faults of an environment in one error, and advice on what makes learning slow or hard."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import env_checker, passive_env_checker
from gymnasium.vector import VectorEnv

from sb_dqn.checks import check_int
from sb_dqn.diagnosis.first_learn import LARGEST_INPUT, LARGEST_REWARD
from sb_dqn.envs.make import spec_of
from sb_dqn.envs.streams.gymnasium_vector import NextStepStream
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.streams.sync_vector import SyncVectorStream
from sb_dqn.errors import ConfigurationError, user_stacklevel
from sb_dqn.spaces import actions_of, flatten_observation, flatten_space, is_bytes, with_dicts
from sb_dqn.types import Array, EnvLike

STEPPING = ("check_step_determinism", "check_returned_data_not_reused")
"""Checks of gymnasium that play any action, legal or not."""
GYMNASIUM = (
    "check_seed_deprecation", "check_reset_return_info_deprecation", "check_reset_return_type", "check_reset_seed_determinism",
    "check_reset_options", *STEPPING,
)  # fmt: skip
"""Checks of gymnasium; older versions do not have all of them."""
SLOW = 1_000
"""Steps per second below which parallel environments pay."""
REPEATABLE = (
    "Draw all random numbers from self.np_random, which super().reset(seed=seed) seeds, and set back in reset all that step "
    "changes."
)
"""Advice where a seed and actions give two different episodes."""


class EnvReport(NamedTuple):
    """Result of `check_env`."""

    advice: list[str]
    """What makes learning slow or hard, with what to do."""
    steps_per_second: float
    """Of random actions in one environment; NaN if it could not be played."""


def check_env(
    env: EnvLike, warn: bool = True, skip_render_check: bool = True, *, steps: int = 1_000, seed: int = 0
) -> EnvReport:
    """Checks an environment: gymnasium's checks, those of Stable-Baselines3, and whether seeds, time limits and autoreset work.

    It resets the environment and plays random actions.

    Args:
        env: an id, a `gymnasium.Env`, a function that returns one, or a gymnasium `VectorEnv`.
        warn: warn of each piece of advice.
        skip_render_check: do not call `render`.
        steps: random actions to play.
        seed: seed of resets and actions.

    Raises:
        ConfigurationError: the environment has faults; the message lists all of them.
    """
    made = isinstance(env, str) or (callable(env) and not isinstance(env, (gymnasium.Env, VectorEnv)))
    steps = check_int("steps", steps, 1)
    env = gymnasium.make(spec_of(env)) if isinstance(env, str) else env() if made else env
    if not isinstance(env, (gymnasium.Env, VectorEnv)):
        raise ConfigurationError(
            f"env must be a gymnasium.Env or VectorEnv, got {type(env).__name__}. Derive its class from gymnasium.Env."
        )
    check = _Check(env, steps, seed)
    try:
        check.lanes() if isinstance(env, VectorEnv) else check.single(skip_render_check)
    finally:
        if made:
            env.close()
    if check.faults:
        listed = "; ".join(f"({number}) {fault.rstrip('.')}" for number, fault in enumerate(check.faults, 1))
        raise ConfigurationError(
            f"the environment must keep to gymnasium's interface, got {listed}. Correct these first."
        )
    for advice in check.advice if warn else ():
        warnings.warn(advice, stacklevel=user_stacklevel())
    return EnvReport(check.advice, check.speed)


class _Check:
    """Collects the faults and the advice on one environment.

    Args: see `check_env`.
    """

    def __init__(self, env: EnvLike, steps: int, seed: int) -> None:
        self.env, self.steps, self.seed = env, steps, seed
        self.faults: list[str] = []
        self.advice: list[str] = []
        self.speed = float("nan")

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        """Context in which errors become faults, and warnings advice."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                yield
            except Exception as error:
                text = " ".join(str(error).split()) or type(error).__name__
                unlike = text.startswith(("Deterministic step", "Environment truncates after 1 step"))
                self._note(self.faults, f"{text.rstrip('.')}. {REPEATABLE}" if unlike else text)
        for each in seen:
            if "unwrapped version" not in str(each.message):
                self._note(self.advice, str(each.message).removeprefix("\x1b[33mWARN: ").removesuffix("\x1b[0m"))

    @staticmethod
    def _note(notes: list[str], text: str) -> None:
        if text not in notes:
            notes.append(text)

    def single(self, skip_render_check: bool) -> None:
        env = self.env
        self._check_spaces(env.observation_space, env.action_space)
        env.action_space.seed(self.seed)
        masked = False
        with self._collecting():
            _, info = env.reset(seed=self.seed)
            masked = "action_mask" in info
        if not self.faults and not masked:
            with self._collecting():
                self._step_as_in_learn()
        plays_any = not masked and not self.faults  # further checks would report the same fault in other words
        for name in GYMNASIUM:
            check: Callable[[Any], None] | None = getattr(env_checker, name, None)
            if check is not None and (plays_any or name not in STEPPING):
                with self._collecting():
                    check(env)
        with self._collecting():
            passive_env_checker.env_reset_passive_checker(env)
            if plays_any:
                passive_env_checker.env_step_passive_checker(env, env.action_space.sample())
            if not skip_render_check and env.render_mode is not None:
                passive_env_checker.env_render_passive_checker(env)
        layer = env
        while isinstance(layer, gymnasium.Wrapper):
            if isinstance(layer, gymnasium.wrappers.Autoreset):
                self.advice.append(
                    "the environment resets itself. Remove the wrapper Autoreset: models reset where it ends."
                )
            layer = layer.env
        if not self.faults:
            with self._collecting():
                self._play()

    def _check_spaces(self, observation_space: Any, action_space: Any) -> None:
        leaves = {}
        with self._collecting():
            leaves = flatten_space(with_dicts(observation_space))
        with self._collecting():
            actions_of(action_space)
        for key, leaf in leaves.items():
            if isinstance(leaf, spaces.Box) and leaf.dtype == np.uint8 and len(leaf.shape) == 3 and not is_bytes(leaf):
                self.advice.append(
                    f"observation {key!r} looks like an image, which needs bounds of 0 and 255 to be divided by 255."
                )
        if isinstance(action_space, spaces.Box):
            ends = np.stack([-action_space.low, action_space.high])
            if not np.allclose(ends, 1.0):
                self.advice.append(
                    f"actions should be symmetric and within -1 and 1, got {action_space}. Wrap the environment in "
                    f"gymnasium.wrappers.RescaleAction(env, -1, 1)."
                )

    def _step_as_in_learn(self) -> None:
        """Plays up to 200 random actions through the checks of results that `learn` makes."""
        stream, space = open_stream(self.env), self.env.action_space
        stream.begin(self.seed)
        for _ in range(min(self.steps, 200)):  # the choices of a stream begin at 0
            stream.step((np.asarray(space.sample()) - stream.action_shape.start)[None])

    def _play(self) -> None:
        """Plays random actions: looks at ends, scales, masks, seeds and speed."""
        env, ends, rewards = self.env, [], []
        sizes: dict[str, Array] = {}
        still: bool | None = None
        first = self._episode(min(self.steps, 200))
        if not env_checker.data_equivalence(first, self._episode(min(self.steps, 200))):
            self.advice.append(
                f"the same seed and actions must give the same episode, got two different ones. {REPEATABLE}"
            )
        start, info = env.reset(seed=self.seed)
        leaves = flatten_space(with_dicts(env.observation_space))
        length, started = 0, time.perf_counter()
        for _ in range(self.steps):
            obs, reward, terminated, truncated, info = env.step(self._legal(info))
            rewards.append(float(reward))
            for key, value in flatten_observation(obs, leaves).items():
                sizes[key] = np.maximum(sizes.get(key, 0.0), np.abs(np.asarray(value, np.float64)).max(initial=0.0))
            length += 1
            if terminated or truncated:
                ends.append((length, terminated))
                start, info = env.reset()
                length = 0
            elif still is not False:
                still = env_checker.data_equivalence(start, obs)
        self.speed = self.steps / (time.perf_counter() - started)
        if still:
            self.advice.append(
                "the observation stays as reset returned it until the episode ends. Return the new state from step, in a new array."
            )
        self._judge(ends, np.array(rewards), sizes)

    def _episode(self, steps: int) -> list[Any]:
        """Returns what a seeded episode of seeded actions returns."""
        self.env.action_space.seed(self.seed)
        obs, info = self.env.reset(seed=self.seed)
        found: list[Any] = [obs]
        for _ in range(steps):
            obs, reward, terminated, truncated, info = self.env.step(self._legal(info))
            found += [obs, float(reward), bool(terminated), bool(truncated)]
            if terminated or truncated:
                break
        return found

    def _legal(self, info: Any) -> Any:
        """Returns a random action that the mask in the info allows."""
        mask, space = info.get("action_mask"), self.env.action_space
        if mask is None or not isinstance(space, spaces.Discrete):
            return space.sample()
        if not np.any(mask):
            raise ConfigurationError("info['action_mask'] must allow an action, got none. True means legal.")
        self._note(
            self.advice, "info has an 'action_mask'. Pass action_mask='info' to the model, or it ignores the mask."
        )
        return space.sample(np.asarray(mask, np.int8))

    def _judge(self, ends: list[tuple[int, bool]], rewards: Any, sizes: dict[str, Array]) -> None:
        limit = None if self.env.spec is None else self.env.spec.max_episode_steps
        note = self.advice.append
        if not ends and limit is None:
            note(
                f"no episode ended within {self.steps} random actions, and there is no time limit. Wrap the environment in "
                f"gymnasium.wrappers.TimeLimit(env, max_episode_steps=...), or register it with max_episode_steps."
            )
        if len(ends) >= 3 and len({length for length, _ in ends}) == 1 and all(over for _, over in ends):
            note(
                f"all episodes terminate after {ends[0][0]} steps, as by a time limit. Return truncated=True there instead of "
                f"terminated=True, unless the step count is part of the observation: no value is assumed after a termination."
            )
        leaves = flatten_space(with_dicts(self.env.observation_space))
        for key, size in sizes.items():
            if isinstance(leaves[key], spaces.Box) and size >= LARGEST_INPUT and leaves[key].dtype != np.uint8:
                note(
                    f"observation {key!r} has entries of {size:,.0f}. Set normalize_observations=True, or scale it to around 1."
                )
        if abs(rewards).max() >= LARGEST_REWARD:
            note(f"rewards go up to {abs(rewards).max():,.0f}. Set normalize_rewards=True, or scale them to around 1.")
        if len(set(rewards.tolist())) == 1 and rewards[0] == 0.0:
            note(
                f"random actions got no reward other than 0 in {self.steps} steps. Give rewards on the way, or use hindsight=True."
            )
        if self.speed < SLOW:
            note(
                f"the environment makes {self.speed:,.0f} steps per second. Play several at once: actors='overlapped', or processes."
            )

    def lanes(self) -> None:
        """Checks that a vector environment resets its lanes as its metadata says."""
        env = self.env
        self._check_spaces(env.single_observation_space, env.single_action_space)
        with self._collecting():
            resets_next = isinstance(open_stream(env), (NextStepStream, SyncVectorStream))
            env.action_space.seed(self.seed)
            env.reset(seed=self.seed)
            over, started, ended = np.zeros(env.num_envs, np.bool_), time.perf_counter(), False
            for _ in range(self.steps):
                _, reward, terminated, truncated, info = env.step(env.action_space.sample())
                if resets_next and (over & (terminated | truncated | (np.asarray(reward) != 0))).any():
                    self._note(
                        self.faults, "the step after an end must be a reset with reward 0 (NEXT_STEP), got another."
                    )
                over = terminated | truncated
                ended = ended or bool(over.any())
                if not resets_next and over.any() and "final_obs" not in info:
                    self._note(self.faults, "info must have final_obs at an end (SAME_STEP), got none. Add it.")
            self.speed = self.steps * env.num_envs / (time.perf_counter() - started)
            if not ended:
                self._note(self.advice, f"no episode ended within {self.steps} steps of each lane. Add a time limit.")
