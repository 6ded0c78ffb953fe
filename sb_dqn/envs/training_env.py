"""The environment that a model learns from, as a callback of Stable-Baselines3 expects to find it."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from sb_dqn.envs.indices import Indices, lanes_of
from sb_dqn.envs.stream_sb3 import is_sb3
from sb_dqn.errors import ConfigurationError


class TrainingEnv:
    """Gives a vector env of gymnasium the attributes that differ in Stable-Baselines3's `VecEnv`.

    `observation_space` and `action_space` are those of one lane; `get_attr`, `set_attr` and `env_method` return lists and
    take `indices`. All else is that of the environment itself: `num_envs`, `single_observation_space`, `call`, `envs`, ...

    Args:
        env: a gymnasium `VectorEnv`, or EnvPool's.
    """

    def __init__(self, env: Any) -> None:
        object.__setattr__(self, "_env", env)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_env"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._env, name, value)

    def __repr__(self) -> str:
        return f"TrainingEnv({self._env!r})"

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Of one lane."""
        found: spaces.Space[Any] = getattr(self._env, "single_observation_space", self._env.observation_space)
        return found

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Of one lane."""
        found: spaces.Space[Any] = getattr(self._env, "single_action_space", self._env.action_space)
        return found

    def get_attr(self, name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each lane that is meant; a method as it is (in other processes what it answers)."""
        lanes = lanes_of(indices, self.num_envs)
        envs = getattr(self._env, "envs", None)
        if envs is not None:
            return [envs[lane].get_wrapper_attr(name) for lane in lanes]
        found = self._env.get_attr(name)
        return [found[lane] for lane in lanes]

    def set_attr(self, name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of each lane that is meant to `value`, a list too."""
        if indices is None:
            self._env.set_attr(name, [value] * self.num_envs)
        else:
            for env in self._some(indices):
                env.set_wrapper_attr(name, value)

    def env_method(self, name: str, *args: Any, indices: Indices = None, **kwargs: Any) -> list[Any]:
        """Returns what a method of each lane that is meant answers."""
        if indices is None:
            return list(self._env.call(name, *args, **kwargs))
        return [env.get_wrapper_attr(name)(*args, **kwargs) for env in self._some(indices)]

    def _some(self, indices: Indices) -> list[Any]:
        """Returns the environments of these lanes."""
        envs = getattr(self._env, "envs", None)
        if envs is None:
            raise ConfigurationError(
                f"indices must be None for a {type(self._env).__name__}, whose lanes are not in this process, got {indices!r}. "
                f"Leave it out, or use vec_env_cls='lanes'"
            )
        return [envs[lane] for lane in lanes_of(indices, self.num_envs)]


def as_training_env(env: Any) -> Any:
    """Returns a `VecEnv` of Stable-Baselines3 as it is, any other environment as `TrainingEnv`."""
    return env if is_sb3(env) else TrainingEnv(env)


def env_itself(env: Any) -> Any:
    """Returns the environment that a `TrainingEnv` shows, and any other as it is."""
    return env._env if isinstance(env, TrainingEnv) else env
