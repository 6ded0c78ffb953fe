"""`PettingZooLanes`: the agents of parallel PettingZoo environments as lanes of one vector env, for parameter sharing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from sb_dqn.checks import check_choice
from sb_dqn.envs.vector.lane_indices import ListedLanes
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from sb_dqn.types import EnvLike, Kwargs, ResetResult, VectorStep


class PettingZooLanes(ListedLanes):
    """Parallel PettingZoo environments as a vector env with NEXT_STEP autoreset, in which each agent is a lane.

    One policy acts for all agents and learns from all of them (parameter sharing: Gupta et al. 2017). Lane c * A + a is agent a,
    in the order of `possible_agents`, of environment c. An environment is reset when its episode has ended, all its agents together.

    Args:
        env: a parallel environment, or a list of factories of parallel environments, each of which makes its own.
        on_early_end: what happens if an agent's episode ends while another one of the same environment continues. "raise":
            an error that names both. "truncate": the others are truncated at this step (targets bootstrap from their last
            observations), and the environment is reset.

    Raises:
        ConfigurationError: no environment, or something else than a parallel environment.
        SpaceError: the spaces of two agents differ.
    """

    def __init__(self, env: EnvLike, *, on_early_end: str = "raise") -> None:
        self.on_early_end = check_choice("on_early_end", on_early_end, ("raise", "truncate"))
        factories: Sequence[Callable[[], EnvLike]] = env if isinstance(env, (list, tuple)) else [lambda: env]
        self.parallel_envs = [make() for make in factories]
        if not self.parallel_envs:
            raise ConfigurationError("env must have at least one factory, got none. Pass [make_env] * n.")
        for one in self.parallel_envs:
            _check_parallel(one)
        if len({id(getattr(one, "unwrapped", one)) for one in self.parallel_envs}) != len(self.parallel_envs):
            raise ConfigurationError(
                "each factory must make its own environment, got the same one from two factories. Call parallel_env() in the "
                "factory."
            )
        first = self.parallel_envs[0]
        self.agents = list(first.possible_agents)
        """Names of the agents of one environment."""
        self._set_spaces(first, len(self.parallel_envs) * len(self.agents), *self._common_spaces())
        self._ended = [False] * len(self.parallel_envs)

    def _common_spaces(self) -> tuple[Any, Any]:
        """Returns the observation space and the action space of all agents."""
        first: list[Any] = []
        for env in self.parallel_envs:
            for agent in env.possible_agents:
                own = [env.observation_space(agent), env.action_space(agent)]
                first = first or own
                for kind, space, expected in zip(("observation", "action"), own, first, strict=True):
                    if space != expected:
                        raise SpaceError(
                            f"the {kind} space of agent {agent!r} must be that of {self.agents[0]!r}, {expected}, got {space}. Pad "
                            f"the spaces, for example with SuperSuit's pad_{kind}s_v0."
                        )
            if list(env.possible_agents) != self.agents:
                raise ConfigurationError(
                    f"possible_agents must be the same in all environments, {self.agents}, got {list(env.possible_agents)}. Make "
                    f"them alike."
                )
        return first[0], first[1]

    def reset(self, *, seed: int | None = None, options: Kwargs | None = None) -> ResetResult:
        """Resets every environment; environment c gets `seed + c`."""
        self._ended = [False] * len(self.parallel_envs)
        begun = [
            self._begin(env, None if seed is None else int(seed) + number, options)
            for number, env in enumerate(self.parallel_envs)
        ]
        return self._batched(*zip(*chain.from_iterable(begun), strict=True))

    def _begin(self, env: EnvLike, seed: int | None = None, options: Kwargs | None = None) -> list[tuple[Any, Any]]:
        """Returns observation and info of each agent at the start of an episode."""
        observations, infos = env.reset(seed=seed, options=options)
        for agent in self.agents:
            if agent not in observations:
                raise EnvironmentFault(
                    f"reset must return an observation of every agent, got none of {agent!r}. Agents that enter later are not "
                    f"supported."
                )
        return [(observations[agent], infos.get(agent, {})) for agent in self.agents]

    def step(self, actions: Any) -> VectorStep:
        """Steps every environment, or resets it if its episode ended in the previous step.

        Raises:
            EnvironmentFault: an agent ended before the others, with `on_early_end="raise"`, or a result lacks an agent.
        """
        rows: list[tuple[Any, float, bool, bool, Any]] = []
        for number, env in enumerate(self.parallel_envs):
            if self._ended[number]:
                self._ended[number] = False
                rows += [(observation, 0.0, False, False, info) for observation, info in self._begin(env)]
            else:
                lanes = range(number * len(self.agents), (number + 1) * len(self.agents))
                chosen = {agent: actions[lane] for agent, lane in zip(self.agents, lanes, strict=True)}
                agents = self._results(env.step(chosen))
                self._ended[number] = agents[0][2] or agents[0][3]
                rows += agents
        return self._batched_step(*zip(*rows, strict=True))

    def _results(self, result: tuple[Mapping[Any, Any], ...]) -> list[tuple[Any, float, bool, bool, Any]]:
        """Returns the results of `step` by agent; all of them end, or none."""
        observations, rewards, terminated, truncated, infos = result
        for agent in self.agents:
            if not all(agent in part for part in result[:4]):
                raise EnvironmentFault(
                    f"step must return observation, reward, terminated and truncated of every agent, got not all of {agent!r}. "
                    f"Return them until the episode has ended."
                )
        ended = [agent for agent in self.agents if terminated[agent] or truncated[agent]]
        others = [agent for agent in self.agents if agent not in ended]
        if ended and others and self.on_early_end == "raise":
            raise EnvironmentFault(
                f"all agents must end their episode at the same step, got the end of {ended[0]!r} while {others[0]!r} continues. "
                f"Pass PettingZooLanes(..., on_early_end='truncate'), or keep ended agents with SuperSuit's black_death_v3."
            )
        return [
            (
                observations[agent],
                float(rewards[agent]),
                bool(terminated[agent]),
                bool(truncated[agent]) or bool(ended and agent in others),
                infos.get(agent, {}),
            )
            for agent in self.agents
        ]

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """Calls a method of each environment, or returns an attribute; one result per lane, those of an environment alike."""
        values = [getattr(env, name) for env in self.parallel_envs]
        results = [value(*args, **kwargs) if callable(value) else value for value in values]
        return tuple(result for result in results for _ in self.agents)

    def render(self) -> tuple[Any, ...] | None:
        """Returns the rendered image of every environment."""
        return tuple(env.render() for env in self.parallel_envs)

    def close_extras(self, **kwargs: object) -> None:
        """Closes every environment."""
        for env in self.parallel_envs:
            env.close()


def _check_parallel(env: EnvLike) -> None:
    """Checks that an object is a parallel environment."""
    if getattr(env, "agent_iter", None) is not None:
        raise ConfigurationError(
            f"env must be a parallel environment of PettingZoo, got {type(env).__name__}, whose agents act in turns. Convert it with "
            f"pettingzoo.utils.aec_to_parallel if its agents may act at the same time."
        )
    if not getattr(env, "possible_agents", None):
        raise ConfigurationError(
            f"env must be a parallel environment of PettingZoo with possible_agents, got {type(env).__name__}. Pass for example "
            f"multiwalker_v9.parallel_env()."
        )
