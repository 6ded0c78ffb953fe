"""`TrainingEnv`: the training environment with the interface that callbacks of Stable-Baselines3 expect."""

from __future__ import annotations

from typing import Any

from sb_dqn.envs.streams.sb3 import is_sb3
from sb_dqn.envs.vector.lane_indices import Indices, lane_numbers
from sb_dqn.errors import ConfigurationError
from sb_dqn.spaces import Space
from sb_dqn.types import EnvLike


class TrainingEnv:
    """View of a gymnasium vector env with the attributes that differ in Stable-Baselines3's `VecEnv`.

    `observation_space` and `action_space` are those of one lane; `get_attr` and `env_method` return lists, and like
    `set_attr` accept `indices`. All other attributes are the environment's: `num_envs`, `single_observation_space`, `call`,
    `envs`, ...

    Args:
        env: a gymnasium `VectorEnv`, or EnvPool's.
    """

    def __init__(self, env: EnvLike) -> None:
        object.__setattr__(self, "_env", env)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_env"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._env, name, value)

    def __repr__(self) -> str:
        return f"TrainingEnv({self._env!r})"

    @property
    def observation_space(self) -> Space:
        """Observation space of one lane."""
        space: Space = getattr(self._env, "single_observation_space", self._env.observation_space)
        return space

    @property
    def action_space(self) -> Space:
        """Action space of one lane."""
        space: Space = getattr(self._env, "single_action_space", self._env.action_space)
        return space

    def get_attr(self, name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each selected lane; methods are returned uncalled (called if in other processes)."""
        lanes = lane_numbers(indices, self.num_envs)
        envs = getattr(self._env, "envs", None)
        if envs is not None:
            return [envs[lane].get_wrapper_attr(name) for lane in lanes]
        values = self._of_all("get_attr")(name)
        return [values[lane] for lane in lanes]

    def set_attr(self, name: str, value: object, indices: Indices = None) -> None:
        """Sets an attribute of each selected lane to `value`, also if it is a list."""
        if indices is None:
            self._of_all("set_attr")(name, [value] * self.num_envs)
        else:
            for env in self._select(indices):
                env.set_wrapper_attr(name, value)

    def env_method(self, name: str, *args: object, indices: Indices = None, **kwargs: object) -> list[Any]:
        """Calls a method of each selected lane and returns the results."""
        if indices is None:
            return list(self._of_all("call")(name, *args, **kwargs))
        return [env.get_wrapper_attr(name)(*args, **kwargs) for env in self._select(indices)]

    def _of_all(self, method: str) -> Any:
        """Returns a method of the environment that reaches all lanes."""
        found = getattr(self._env, method, None)
        if found is None:
            raise ConfigurationError(
                f"the training environment must have {method}() to reach its lanes, got a {type(self._env).__name__}, which steps "
                f"them as a whole. Use make_vec_env(..., vec_env_cls='lanes')."
            )
        return found

    def _select(self, indices: Indices) -> list[EnvLike]:
        """Returns the environments of the selected lanes."""
        envs = getattr(self._env, "envs", None)
        if envs is None:
            raise ConfigurationError(
                f"indices must be None for a {type(self._env).__name__}, whose lanes are in other processes, got {indices!r}. "
                f"Leave it out, or use vec_env_cls='lanes'."
            )
        return [envs[lane] for lane in lane_numbers(indices, self.num_envs)]


def as_training_env(env: EnvLike) -> EnvLike:
    """Returns a `VecEnv` of Stable-Baselines3 unchanged, and a `TrainingEnv` of any other environment."""
    return env if is_sb3(env) else TrainingEnv(env)


def env_itself(env: EnvLike) -> EnvLike:
    """Returns the environment of a `TrainingEnv`, and any other environment unchanged."""
    return env._env if isinstance(env, TrainingEnv) else env
