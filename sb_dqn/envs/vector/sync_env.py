"""`Lanes`: a vector env that steps gymnasium envs one after the other in this process, with little overhead."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ldexp
from typing import Any, NamedTuple

import numpy as np

from sb_dqn.checks import check_choice
from sb_dqn.envs.stream_options import StreamOptions, options_of
from sb_dqn.envs.vector.env_checks import (
    API,
    NO_RESULT,
    EnvApiError,
    check_has_spaces,
    explain_reset_error,
    explain_step_error,
    with_fix,
)
from sb_dqn.envs.vector.env_state import layers_state, load_layers_state
from sb_dqn.envs.vector.lane_indices import ListedLanes
from sb_dqn.envs.vector.seed_only import options_argument
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.types import ActionArray, Env, Info, Kwargs, ResetResult, State, VectorStep

PATIENCE = 3
"""Number of times in a row that a failing lane is restarted."""
NOT_OWN = (
    "each factory must make its own environment, got the same environment from two factories. Pass [lambda: gymnasium.make(id)] * n, "
    "not [lambda: env] * n."
)


def restart_seed(seed: int | None, number: int) -> int:
    """Returns a seed for the episodes of an environment that is made again in a run of `seed`, other than those before."""
    return int(np.random.SeedSequence((seed or 0, number)).generate_state(1)[0]) % 2**30


def check_info(info: object) -> None:
    """Raises an error if an info is no dict."""
    if not isinstance(info, Mapping):
        raise EnvApiError(f"info must be a dict, got {info!r}. {API}")


class LaneSteps(NamedTuple):
    """Results of `reset` or `step` of all lanes, one entry per lane; `resets` marks the reset rows."""

    observations: list[Any]
    rewards: list[float]
    terminated: list[bool]
    truncated: list[bool]
    infos: list[Info]
    resets: list[bool]


class Lanes(ListedLanes):
    """gymnasium envs as one vector env with NEXT_STEP autoreset.

    Args:
        env_fns: one factory per lane; each must make an env of its own.
        stream_options: stream options; None takes those of the first env, or the defaults.
        seed: seed of the first `reset` without a seed.
        on_env_error: treatment of a lane that raises an error. "raise" raises the error. With "restart" its factory makes the
            env again, its episode ends as truncated at the last observation, and `restarts` counts it; a lane that fails more
            than `PATIENCE` times in a row raises.

    Raises:
        ConfigurationError: no factory, two factories that return the same env, or a result that is no env.
        SpaceError: the lanes' spaces differ.
    """

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Env]],
        *,
        stream_options: StreamOptions | None = None,
        seed: int | None = None,
        on_env_error: str = "raise",
    ) -> None:
        self._env_fns = list(env_fns)
        self.on_env_error = check_choice("on_env_error", on_env_error, ("raise", "restart"))
        self.restarts = 0
        """Number of lane restarts."""
        self.first_lane = 0
        """Number of the first lane in messages; in a worker of several, that within the model."""
        self._observations: list[Any] = []
        self._failures: dict[int, tuple[int, int]] = {}
        self._seed: int | None = None
        self.envs: list[Env] = [make() for make in self._env_fns]
        if not self.envs:
            raise ConfigurationError("env_fns must be a list of at least one factory, got none. Pass [make_env] * n.")
        for lane, env in enumerate(self.envs):
            check_has_spaces(env, lane)
        if len({id(env.unwrapped) for env in self.envs}) != len(self.envs):
            raise ConfigurationError(NOT_OWN)
        first = self.envs[0]
        self._check_spaces()
        self._set_spaces(first, len(self.envs), first.observation_space, first.action_space)
        self.spec = first.spec
        self.stream_options = stream_options or options_of(first) or StreamOptions()
        self.first_seed = seed
        self._ended = [False] * self.num_envs
        self._steps = 0

    def _check_spaces(self) -> None:
        for lane, env in enumerate(self.envs):
            for kind in ("observation", "action"):
                own, first = (getattr(each, f"{kind}_space") for each in (env, self.envs[0]))
                if own != first:
                    raise SpaceError(
                        f"the {kind} space of lane {lane} must be that of lane 0, {first}, got {own}. Make all lanes alike."
                    )

    def begin(self, seed: int | Sequence[int | None] | None = None, options: Kwargs | None = None) -> LaneSteps:
        """Resets every lane and returns the results; an int seeds lane b with seed + b.

        Raises:
            EnvironmentFault: a lane raised; the message names it.
        """
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + lane for lane in range(self.num_envs)]
        seeds = [None] * self.num_envs if seed is None else [None if one is None else int(one) for one in seed]
        if len(seeds) != self.num_envs:
            raise ConfigurationError(
                f"seed must be an int or one seed for each of {self.num_envs} lanes, got {len(seeds)} seeds. Pass one int."
            )
        observations, infos, self._steps = [], [], 0
        self._failures.clear()
        self._seed = self._seed if seeds[0] is None else seeds[0]
        for lane, env in enumerate(self.envs):
            result = NO_RESULT
            try:
                result = env.reset(seed=seeds[lane], **options_argument(options))
                observation, info = result
                check_info(info)  # for example an observation of two numbers without an info
            except Exception as error:
                raise self._fault(lane, explain_reset_error(error, result), "while resetting") from error
            observations.append(observation)
            infos.append(info)
        self._ended = [False] * self.num_envs
        self._observations = observations
        return LaneSteps(observations, [0.0] * self.num_envs, self._ended, self._ended, infos, [True] * self.num_envs)

    def advance(self, actions: ActionArray) -> LaneSteps:
        """Steps every lane, or resets it if its episode ended in the previous step; actions in the envs' numbering.

        Raises:
            EnvironmentFault: a lane raised; the message names lane and step.
        """
        observations, rewards, terminations, truncations, infos = [], [], [], [], []
        resets, self._ended, self._steps = self._ended, [], self._steps + 1
        lane = 0
        result: Any = NO_RESULT
        while lane < self.num_envs:
            try:
                for env, action, reset in zip(self.envs[lane:], actions[lane:], resets[lane:], strict=True):
                    if reset:
                        observation, info = env.reset()
                        reward, ended, terminated, truncated = 0.0, False, False, False
                    else:
                        result = env.step(action)
                        observation, raw_reward, terminated, truncated, info = result
                        # as fast as float() and `or`, but raising on strings and None
                        reward, ended = ldexp(raw_reward, 0), terminated | truncated
                    if info.__class__ is not dict:
                        check_info(info)
                    observations.append(observation)
                    rewards.append(reward)
                    terminations.append(terminated)
                    truncations.append(truncated)
                    infos.append(info)
                    self._ended.append(bool(ended))
                    lane += 1
            except Exception as error:
                first_observation = self._restart(lane, explain_step_error(error, result))
                observations.append(first_observation if resets[lane] else self._observations[lane])
                rewards.append(0.0)
                terminations.append(False)
                truncations.append(not resets[lane])
                infos.append({"env_error": f"{type(error).__name__}: {error}"})
                self._ended.append(not resets[lane])
                lane, result = lane + 1, NO_RESULT
        self._observations = observations
        return LaneSteps(observations, rewards, terminations, truncations, infos, resets)

    def _restart(self, lane: int, error: Exception) -> Any:
        """Makes the env of a lane that raised again, and returns its first observation.

        Raises:
            EnvironmentFault: `on_env_error` is "raise", or the lane failed too many times in a row, also while it is made again.
        """
        while True:
            self._count_failure(lane, error)
            with contextlib.suppress(Exception):  # a failed env may also fail to close
                self.envs[lane].close()
            seed = restart_seed(self._seed, self.restarts * self.num_envs + lane)
            try:
                self.envs[lane] = self._env_fns[lane]()
                return self.envs[lane].reset(seed=seed)[0]
            except Exception as another:
                error = another

    def _count_failure(self, lane: int, error: Exception) -> None:
        """Counts and reports a failure of a lane; raises an error after too many in a row."""
        step, times = self._failures.get(lane, (0, 0))
        times = times + 1 if step >= self._steps - 2 else 1
        if self.on_env_error == "raise" or times > PATIENCE:
            self._ended = [False] * self.num_envs
            raise self._fault(lane, error, f"at step {self._steps}") from error
        self._failures[lane] = (self._steps, times)
        self.restarts += 1
        warnings.warn(
            f"lane {self.first_lane + lane} raised at step {self._steps} and was restarted, its episode counts as truncated "
            f"({type(error).__name__}: {error}). Fix the environment if this repeats.",
            stacklevel=2,
        )

    def _fault(self, lane: int, error: Exception, when: str) -> EnvironmentFault:
        crashed = not isinstance(error, EnvApiError)
        what = f"raised {when}: {type(error).__name__}: " if crashed else f"failed {when}: "
        text = f"the environment in lane {self.first_lane + lane} {what}{with_fix(str(error))}"
        return EnvironmentFault(text, crashed=crashed)

    def reset(self, *, seed: Any = None, options: Kwargs | None = None) -> ResetResult:
        """Resets every lane with gymnasium's interface; an int seeds lane b with seed + b."""
        results = self.begin(seed, options)
        return self._batched(results.observations, results.infos)

    def step(self, actions: Any) -> VectorStep:
        """Steps every lane with gymnasium's interface, in NEXT_STEP autoreset.

        Raises:
            SpaceError: an action is not in its lane's action space.
        """
        try:
            count = len(actions)
        except TypeError:  # a number, or an array without axes
            count = 0
        if count != self.num_envs:
            got = count or f"{actions!r} alone"
            raise SpaceError(f"actions must be one for each of {self.num_envs} lanes, got {got}. Pass one per lane.")
        for lane, action in enumerate(actions):
            if not self.single_action_space.contains(action):
                raise SpaceError(
                    f"the action in lane {lane} must be in {self.single_action_space}, got {action!r}. Choose an action of that space."
                )
        results = self.advance(actions)
        return self._batched_step(*results[:5])

    def state_dict(self) -> State:
        """Returns the state of every lane.

        Raises:
            NoEnvState: the state of a lane is not available.
        """
        state = {
            "lanes": [layers_state(env) for env in self.envs],
            "ended": [bool(ended) for ended in self._ended],
            "steps": self._steps,
        }
        if self.on_env_error == "restart":
            state |= {"observations": list(self._observations), "seed": self._seed, "restarts": self.restarts}
        return state

    def load_state_dict(self, state: State) -> None:
        """Restores the state of every lane.

        Raises:
            CheckpointError: another number of lanes, or other envs or wrappers in them.
        """
        if len(state["lanes"]) != self.num_envs:
            raise CheckpointError(
                f"the environment must have {len(state['lanes'])} lanes as in the checkpoint, got {self.num_envs}. Use the same "
                f"number of environments."
            )
        for env, layers in zip(self.envs, state["lanes"], strict=True):
            load_layers_state(env, layers)
        self._ended = list(state["ended"])
        self._steps = int(state["steps"])
        self._observations = state.get("observations", self._observations)
        self._seed = state.get("seed", self._seed)
        self.restarts = int(state.get("restarts", self.restarts))
        self.first_seed = None

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """Calls a method of each lane's env and returns the results, or returns an attribute."""
        attributes = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in attributes)

    def set_attr(self, name: str, values: object) -> None:
        """Sets an attribute of each lane's env to one value, or to one value per lane in a list or tuple."""
        values = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ConfigurationError(
                f"values of {name} must be one value or one for each of {self.num_envs} lanes, got {len(values)}. Pass one per lane."
            )
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...] | None:
        """Returns the rendered image of every lane."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: object) -> None:
        """Closes every lane, also after one that raises."""
        with contextlib.ExitStack() as closing:
            for env in reversed(self.envs):
                closing.callback(_close, env)


def _close(env: Env) -> None:
    env.close()
    game: Any = env.unwrapped
    if getattr(game, "ale", None) is not None:
        game.ale = None  # ends the emulator of an Atari game; ale_py has no other way
