"""The base class of algorithms that learn from rollouts: PQN and the policy-gradient methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

from sb_dqn.acting.actor import Actor
from sb_dqn.acting.collector import InlineCollector
from sb_dqn.buffers.on_policy_buffer import OnPolicyBuffer
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.core.construction import PolicyConfig, TrainingConfig
from sb_dqn.core.rollout_config import CollectionConfig
from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import ConfigurationError, MissingPart
from sb_dqn.exploration.config import ExplorationConfig
from sb_dqn.schedules import Schedule
from sb_dqn.types import Blueprint, EnvLike, Objective


class OnPolicyAlgorithm(BaseAlgorithm):
    """Collects a rollout, learns from it in epochs of minibatches, and discards it.

    All actions and values of a rollout come from the same weights: the action for a row that is open when the rollout is full
    is selected after the updates. `log_interval` counts rollouts, as in Stable-Baselines3.

    Args:
        rollout: what is collected before the updates.
        env, policy, training, objective, exploration: see `BaseAlgorithm`.
        has_critic: False stores a value of 0 (Monte-Carlo methods without a learned value).
    """

    changeable: ClassVar[tuple[str, ...]] = (*BaseAlgorithm.changeable, "gamma")
    default_log_interval: ClassVar[int] = 1
    keeps_replay: ClassVar[bool] = False
    replaced_arguments: ClassVar[Mapping[str, str]] = {
        "actors": "Remove it: an on-policy algorithm learns only from actions of its current weights"
    }

    def __init__(
        self,
        env: EnvLike,
        *,
        policy: PolicyConfig[Any],
        training: TrainingConfig,
        objective: Callable[[Blueprint], Objective],
        rollout: CollectionConfig,
        batch_size: int = 1,
        exploration: ExplorationConfig | None = None,
        has_critic: bool = True,
    ) -> None:
        super().__init__(
            env,
            policy=policy,
            training=training,
            objective=objective,
            gamma=rollout.gamma,
            batch_size=batch_size,
            exploration=exploration,
        )
        self.has_critic = has_critic
        self.rollout_config: Any = rollout
        if self.stream is not None:
            self.attach(self.stream)

    def attach(self, stream: Stream) -> None:
        if not stream.chooses:
            raise ConfigurationError(
                f"env of {type(self).__name__} must play its actions, got {type(stream.env).__name__}. Learn from recorded actions "
                f"with DQN, its variants or SAC."
            )
        self.normalizer.set_lanes(stream.num_envs)
        if self._experience is None:
            self._use_experience(self.rollout_config.build(stream, self.device, self.normalizer, self.policy.extras))
            if self.logs.verbose:
                self._print_summary(stream, self.rollout)
        observe = self.rollout.open_observation if self.blueprint.frame_stack > 1 else None
        self._make_collector(stream, observe, stores_value=self.has_critic)

    def change(self, name: str, value: object) -> Any:
        if name != "gamma":
            return super().change(name, value)
        self.rollout_config = replace(self.rollout_config, gamma=value)
        self.discount = self.rollout_config.gamma
        self.normalizer.set_gamma(self.rollout_config.gamma)
        if self._experience is not None:
            self.rollout.view.gamma = self.rollout_config.gamma
        return self.rollout_config.gamma

    @property
    def _actor(self) -> Actor:
        assert isinstance(self.collector, InlineCollector)
        return self.collector.actor

    def before_acting(self) -> bool:
        self.normalizer.begin_rollout()
        if self.exploration is not None:
            self.exploration.advance(self.num_timesteps, self.counters.horizon)
        return False

    def before_updates(self) -> None:
        if self.rollout.is_full:
            self.counters.iterations += 1
            self.learner.set_learning_rate(self._now(self.rate_schedule))
            self.normalizer.end_rollout()
            self.rollout.complete(self._actor.selector.bootstrap_values)

    def _log_count(self) -> int:
        return self.counters.iterations

    def log_facts(self) -> dict[str, float]:
        return {"time/iterations": self.counters.iterations, **super().log_facts()}

    def _now(self, schedule: Schedule) -> float:
        return schedule(self.num_timesteps, self.counters.horizon)

    @property
    def rollout(self) -> OnPolicyBuffer:
        """The rows since the last updates.

        Raises:
            MissingPart: there is no environment yet, so its size is not known.
        """
        if self._experience is None:
            raise MissingPart("rollout requires an environment, got none. Call set_env(...) first.")
        return cast(OnPolicyBuffer, self._experience)

    def save_replay_buffer(self, path: Target) -> Any:
        """Raises an error, since there is no replay.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"a model with a replay buffer must be used, got {type(self).__name__}, which discards its rollouts after the updates. "
            f"Use save(...)."
        )
