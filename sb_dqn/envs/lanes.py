"""Our own vector env: gymnasium envs stepped one after the other, with as little between them as can be."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ldexp
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from sb_dqn.checks import check_choice
from sb_dqn.envs.answers import API, NO_INFO, NOTHING, WrongAnswer, check_env, explained, explained_reset
from sb_dqn.envs.indices import IndexedAttributes
from sb_dqn.envs.seed_only import options_given
from sb_dqn.envs.state import layers_state, load_layers_state
from sb_dqn.envs.stream_options import StreamOptions, options_of
from sb_dqn.errors import CheckpointError, ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.types import ActionArray

Env = gymnasium.Env[Any, Any]

PATIENCE = 3
"""Times in a row that a lane which fails is made anew."""


class Arrived(NamedTuple):
    """What the lanes answered, by lane; `resets` tells which rows are reset rows."""

    observations: list[Any]
    rewards: list[float]
    terminated: list[bool]
    truncated: list[bool]
    infos: list[dict[str, Any]]
    resets: list[bool]


class Lanes(IndexedAttributes, VectorEnv[Any, Any, Any]):
    """gymnasium envs as one vector env with NEXT_STEP autoreset.

    Args:
        env_fns: one factory for each lane; each must make an env of its own.
        stream_options: how a learner reads it; taken from the first env that carries some if not given.
        seed: used by the first `reset` that is given none.
        on_env_error: what becomes of a lane that raises: "raise", or "restart": it is made anew by its factory, the episode
            under way ends as truncated at the last observation that was seen, and `restarts` counts it. A lane that fails
            `PATIENCE` times in a row raises.

    Raises:
        ConfigurationError: no factory, one env handed out twice, or something that is no env.
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
        self._makers = list(env_fns)
        self.on_env_error = check_choice("on_env_error", on_env_error, ("raise", "restart"))
        self.restarts = 0
        """Lanes that were made anew."""
        self._observations: list[Any] = []
        self._failed: dict[int, tuple[int, int]] = {}
        self.envs: list[Env] = [make() for make in self._makers]
        if not self.envs:
            raise ConfigurationError("no environment was given; allowed: a list of at least one factory")
        for lane, env in enumerate(self.envs):
            check_env(env, lane)
        if len({id(env.unwrapped) for env in self.envs}) != len(self.envs):
            raise ConfigurationError(
                "two factories returned the same environment; each must make its own: [lambda: "
                "gymnasium.make(id)] * n, "
                "not [lambda: env] * n"
            )
        first = self.envs[0]
        self.num_envs = len(self.envs)
        self.single_observation_space, self.single_action_space = first.observation_space, first.action_space
        self._check_spaces()
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**first.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode, self.spec = first.render_mode, first.spec
        self.stream_options = stream_options or options_of(first) or StreamOptions()
        self.first_seed = seed
        self._ended = [False] * self.num_envs
        self._steps = 0

    def _check_spaces(self) -> None:
        for lane, env in enumerate(self.envs):
            for kind, own, first in (
                ("observation", env.observation_space, self.single_observation_space),
                ("action", env.action_space, self.single_action_space),
            ):
                if own != first:
                    raise SpaceError(
                        f"lane {lane} has the {kind} space {own}, lane 0 has {first}; all lanes must have the same"
                    )

    def begin(self, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> Arrived:
        """Resets every lane; an int seeds lane b with seed + b.

        Raises:
            EnvironmentFault: a lane raised; named.
        """
        seed, self.first_seed = (self.first_seed if seed is None else seed), None
        if isinstance(seed, (int, np.integer)):
            seed = [int(seed) + lane for lane in range(self.num_envs)]
        seeds = seed or [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ConfigurationError(
                f"{len(seeds)} seeds were given for {self.num_envs} lanes; allowed: an int, or one for each lane"
            )
        observations, infos, self._steps = [], [], 0
        for lane, env in enumerate(self.envs):
            answer = NOTHING
            try:
                answer = env.reset(seed=seeds[lane], **options_given(options))
                observation, info = answer
                if info is None:
                    raise WrongAnswer(NO_INFO)
                if not isinstance(info, Mapping):  # an observation of two numbers alone, for example
                    raise WrongAnswer(f"info is {info!r}; allowed: a dict; {API}")
            except Exception as error:
                raise self._fault(lane, explained_reset(error, answer), "while resetting") from error
            observations.append(observation)
            infos.append(info)
        self._ended, self._observations = [False] * self.num_envs, observations
        return Arrived(observations, [0.0] * self.num_envs, self._ended, self._ended, infos, [True] * self.num_envs)

    def advance(self, actions: ActionArray) -> Arrived:
        """Takes one step in every lane, or resets it where its row before was the end; actions as the envs number them.

        Raises:
            EnvironmentFault: a lane raised; lane and step are named.
        """
        observations, rewards, terminations, truncations, infos = [], [], [], [], []
        resets, self._ended, self._steps = self._ended, [], self._steps + 1
        lane, answer = 0, None
        while lane < self.num_envs:
            try:
                for env, action, reset in zip(self.envs[lane:], actions[lane:], resets[lane:], strict=True):
                    if reset:
                        observation, info = env.reset()
                        reward, ended, terminated, truncated = 0.0, False, False, False
                    else:
                        answer = env.step(action)
                        observation, given, terminated, truncated, info = answer
                        # these two refuse what float() and `or` let pass, texts and None, and take no longer
                        reward, ended = ldexp(given, 0), terminated | truncated
                    if info is None:
                        raise WrongAnswer(NO_INFO)
                    observations.append(observation)
                    rewards.append(reward)
                    terminations.append(terminated)
                    truncations.append(truncated)
                    infos.append(info)
                    self._ended.append(bool(ended))
                    lane += 1
            except Exception as error:
                fresh = self._replaced(lane, explained(error, answer))
                observations.append(fresh if resets[lane] else self._observations[lane])
                rewards.append(0.0)
                terminations.append(False)
                truncations.append(not resets[lane])
                infos.append({"env_error": f"{type(error).__name__}: {error}"})
                self._ended.append(not resets[lane])
                lane += 1
        self._observations = observations
        return Arrived(observations, rewards, terminations, truncations, infos, resets)

    def _replaced(self, lane: int, error: Exception) -> Any:
        """A new environment in a lane that raised; its first observation.

        Raises:
            EnvironmentFault: that is not wanted, or has been of no use.
        """
        step, times = self._failed.get(lane, (0, 0))
        times = times + 1 if step >= self._steps - 2 else 1
        if self.on_env_error == "raise" or times > PATIENCE:
            self._ended = [False] * self.num_envs
            raise self._fault(lane, error, f"at step {self._steps}") from error
        self._failed[lane], self.restarts = (self._steps, times), self.restarts + 1
        warnings.warn(
            f"lane {lane} raised at step {self._steps} and was made anew, its episode counts as truncated "
            f"({type(error).__name__}: {error})",
            stacklevel=2,
        )
        with contextlib.suppress(Exception):  # what has failed may fail at its end, too
            self.envs[lane].close()
        self.envs[lane] = self._makers[lane]()
        return self.envs[lane].reset(seed=self.restarts * self.num_envs + lane)[0]

    def _fault(self, lane: int, error: Exception, when: str) -> EnvironmentFault:
        what = f"answered {when}: " if isinstance(error, WrongAnswer) else f"raised {when}: {type(error).__name__}: "
        return EnvironmentFault(f"the environment in lane {lane} {what}{error}")

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As gymnasium's vector envs do; a seed counts up over the lanes."""
        arrived = self.begin(seed, options)
        return self._batched(arrived.observations), self._batched_infos(arrived.infos)

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """As gymnasium's vector envs do in NEXT_STEP autoreset.

        Raises:
            SpaceError: an action does not lie in its lane's action space.
        """
        if len(actions) != self.num_envs:
            raise SpaceError(f"{len(actions)} actions were given for {self.num_envs} lanes; allowed: one for each lane")
        for lane, action in enumerate(actions):
            if not self.single_action_space.contains(action):
                raise SpaceError(f"action {action!r} in lane {lane} is not in {self.single_action_space}")
        arrived = self.advance(actions)
        return (
            self._batched(arrived.observations),
            np.array(arrived.rewards, np.float64),
            np.array(arrived.terminated, np.bool_),
            np.array(arrived.truncated, np.bool_),
            self._batched_infos(arrived.infos),
        )

    def _batched(self, observations: list[Any]) -> Any:
        empty: Any = create_empty_array(self.single_observation_space, self.num_envs, np.zeros)
        return concatenate(self.single_observation_space, observations, empty)

    def _batched_infos(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        batched: dict[str, Any] = {}
        for lane, info in enumerate(infos):
            if info:
                batched = self._add_info(batched, info, lane)
        return batched

    def state_dict(self) -> dict[str, Any]:
        """Where every lane stands.

        Raises:
            NoState: a lane cannot say it.
        """
        return {
            "lanes": [layers_state(env) for env in self.envs],
            "ended": [bool(ended) for ended in self._ended],
            "steps": self._steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Puts every lane where `state_dict` found it.

        Raises:
            CheckpointError: there are more or fewer lanes, or they are made of other parts.
        """
        if len(state["lanes"]) != self.num_envs:
            raise CheckpointError(
                f"the checkpoint has {len(state['lanes'])} lanes, the environment {self.num_envs}; make as many"
            )
        for env, layers in zip(self.envs, state["lanes"], strict=True):
            load_layers_state(env, layers)
        self._ended, self._steps, self.first_seed = list(state["ended"]), int(state["steps"]), None

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What a method of each lane's env answers, or what an attribute is."""
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(one(*args, **kwargs) if callable(one) else one for one in found)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets an attribute of each lane's env: one value for all, or a list or tuple of one for each."""
        values = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ConfigurationError(
                f"{len(values)} values of {name} were given for {self.num_envs} lanes; give one for each"
            )
        for env, value in zip(self.envs, values, strict=True):
            env.set_wrapper_attr(name, value)

    def render(self) -> tuple[Any, ...] | None:
        """The picture of every lane."""
        return tuple(env.render() for env in self.envs)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes every lane."""
        for env in self.envs:
            env.close()
