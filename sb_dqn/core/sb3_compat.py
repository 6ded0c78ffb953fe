"""What can be read off a model by Stable-Baselines3's names, and its log."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gymnasium import spaces
from typing_extensions import Self

from sb_dqn.core.counters import Counters
from sb_dqn.core.learner import Learner
from sb_dqn.core.logs import Logs
from sb_dqn.core.training_run import TrainingRun
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, no_attribute
from sb_dqn.logger import Logger
from sb_dqn.policies.base import Policy
from sb_dqn.rng import Generators
from sb_dqn.types import Blueprint

ELSEWHERE = {
    "lr_schedule": "rate_schedule, a function of env step and horizon; load(path, learning_rate=...) takes another",
    "exploration_schedule": "exploration_rate, its value now",
    "q_net": "policy.q_net",
    "q_net_target": "policy.q_net_target",
    "rollout_buffer": "rollout, where there is one",
    "train": "learn",
    "collect_rollouts": "learn",
    "_episode_num": "statistics.num_episodes, which no learn resets",
}
"""Names of Stable-Baselines3 for what has another name here."""
NOT_HERE = {
    "_last_obs": "There is none: read self.locals['new_obs'] in a callback",
    "_last_episode_starts": "There is none: read self.locals['dones'] in a callback",
    "_vec_normalize_env": "Read get_env(), if VecNormalize was given; our own statistics are normalizer",
    "get_vec_normalize_env": "Call get_env(), if VecNormalize was given; our own statistics are normalizer",
    "policy_class": "Read type(model.policy)",
    "policy_aliases": "There are none: see sb_dqn.policies",
    "start_time": "There is none: the log has time/time_elapsed",
    "critic": "Read policy.nets.critics, of SAC",
    "critic_target": "Read policy.critics_target, of SAC",
    "log_ent_coef": "Read policy.nets.log_alpha.value, of SAC",
    "ent_coef_optimizer": "There is one optimiser for all: learner.optimizer",
    "ent_coef_tensor": "Read policy.nets.log_alpha.value.exp(), of SAC",
    "use_sde": "State-dependent exploration is not built",
    "action_noise": "The model explores by itself: see exploration_rate, or the spread of the policy",
}
"""The same, for those that take more than a name to find, or that only one class has."""
SETTERS = {
    "env": "set_env(env)",
    "learned": "the constructor after it: self.learned = Learned(...) comes before super().__init__(...)",
    "logger": "set_logger(logger)",
    "policy": "set_parameters(parameters)",
    "seed": "set_random_seed(seed)",
}
"""What is called where Stable-Baselines3 would let somebody assign."""

FOLLOWS = {
    "exploration_rate": "it follows the schedule: load(path, env=env, exploration=...) takes another",
    "num_timesteps": "it counts; learn(..., reset_num_timesteps=True) begins at 0",
}
"""What is read off the model, and cannot be told to it."""
_NO_COPY = (
    ": its parameters lie in one tensor, its updates are recorded. Save it and load it: model.save(path), {}.load(path, env=...); "
    "model.policy may be copied, to act"
)


class Attributes:
    """Read-only names on the parts of a model, and on the arguments of its constructor, which read as they were given."""

    keeps_replay: ClassVar[bool] = True
    """Whether there is a replay that can be saved."""
    arguments: dict[str, Any]
    blueprint: Blueprint
    counters: Counters
    learner: Learner
    logs: Logs
    gamma: float
    learning_rate: Any
    policy: Policy
    rng: Generators
    session: TrainingRun | None
    statistics: EpisodeStatistics
    stream: Stream | None
    tensorboard_log: str | None

    if not TYPE_CHECKING:  # for a type checker every name would be one of a model

        def __getattr__(self, name: str) -> Any:
            """An argument of the constructor, as it was given.

            Raises:
                AttributeError: it has none of that name.
            """
            arguments = self.__dict__.get("arguments", {})  # empty while a copy is being made
            if name in arguments:
                return arguments[name]
            part = getattr(type(self), name, None)
            if isinstance(part, property):  # it raised; Python asks here, and forgets why: once more, to hear it
                return part.fget(self)
            told = {name: f"Read {place}" for name, place in ELSEWHERE.items()} | NOT_HERE
            raise no_attribute(self, name, told, arguments)

        def __setattr__(self, name: str, value: Any) -> None:
            """Refuses what would change nothing: the arguments of the constructor have been read by then.

            Raises:
                ConfigurationError: it is one of them, or a name that Stable-Baselines3 has for a part.
            """
            arguments = self.__dict__.get("arguments", {})
            fixed = getattr(getattr(type(self), name, None), "fset", self) is None  # a property that is read alone
            if arguments and (fixed or name in SETTERS or name in ELSEWHERE or name in arguments):
                raise ConfigurationError(_refusal(type(self).__name__, name, value, arguments))
            super().__setattr__(name, value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise ConfigurationError(f"copy.deepcopy of a model is not allowed{_NO_COPY.format(type(self).__name__)}")

    def __copy__(self) -> Self:
        """Another name for the same parts."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ConfigurationError(f"pickling a model is not allowed{_NO_COPY.format(type(self).__name__)}")

    def get_env(self) -> Any:
        """The environment, as it was given or made; None if there is none."""
        return None if self.stream is None else self.stream.env

    def set_logger(self, logger: Logger) -> None:
        """Logs to `logger` from now on; whoever made it closes it."""
        self.logs.take(logger)

    def dump_logs(self) -> None:
        """Writes a log line now (while learning)."""
        if self.session is not None:
            self.session.dump()

    @property
    def logger(self) -> Logger:
        return self.logs.logger

    @property
    def num_timesteps(self) -> int:
        return self.counters.num_timesteps

    @property
    def _total_timesteps(self) -> int:
        return self.counters.horizon

    @property
    def _n_updates(self) -> int:
        return self.counters.n_updates

    @property
    def _current_progress_remaining(self) -> float:
        """1 at the start of a `learn`, 0 at its horizon."""
        return 1.0 - self.num_timesteps / max(1, self._total_timesteps)

    @property
    def env(self) -> Any:
        return self.get_env()

    @property
    def n_envs(self) -> int:
        return self.blueprint.num_envs

    @property
    def seed(self) -> int | None:
        """The seed that was given, or drawn."""
        return self.rng.seed

    @property
    def device(self) -> torch.device:
        return self.learner.flat.device

    @property
    def observation_space(self) -> spaces.Space[Any]:
        return self.blueprint.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        return self.blueprint.action_space

    @property
    def action_mask(self) -> str | None:
        """Where the legal actions are told: "info", a key of the observation, or nowhere."""
        return self.arguments.get("action_mask")

    @property
    def reads_reward(self) -> bool:
        """Whether `predict` must be told the last reward."""
        return self.policy.reads_reward

    @property
    def ep_info_buffer(self) -> deque[dict[str, Any]]:
        return self.statistics.ep_info_buffer

    @property
    def ep_success_buffer(self) -> deque[float]:
        """Of the latest episodes 1 or 0, where the environment says `is_success`."""
        return self.statistics.ep_success_buffer


def _refusal(cls: str, name: str, value: Any, arguments: Collection[str]) -> str:
    """Why `name` of a model cannot be assigned, and what to do instead."""
    if name in SETTERS:
        return f"{name} of a model cannot be assigned; call {SETTERS[name]}"
    if name in ELSEWHERE:
        return f"{name} of a model cannot be assigned, there is none; what it would be is {ELSEWHERE[name]}"
    if name in FOLLOWS:
        return f"{name} of a model cannot be assigned; {FOLLOWS[name]}"
    if name not in arguments:
        return f"{name} of a model cannot be assigned; it is read off its parts"
    return (
        f"{name}={value!r} cannot be assigned: {cls} reads {name} once, when it is made; give it there, or save the model and "
        f"go on with {cls}.load(path, env=env, {name}={value!r})"
    )
