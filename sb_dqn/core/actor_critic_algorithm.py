"""The base class of the policy-gradient methods: a policy that samples its actions, and a value."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from gymnasium import spaces

from sb_dqn.acting.lane_state import Redraws
from sb_dqn.checks import check_float, check_mapping
from sb_dqn.core import model_file
from sb_dqn.core.construction import PolicyConfig, TrainingConfig
from sb_dqn.core.on_policy_algorithm import OnPolicyAlgorithm
from sb_dqn.core.rollout_config import CollectionConfig, EpisodeConfig
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.policy_gradient import explained_variance
from sb_dqn.nn.heads.binned import Bins
from sb_dqn.objectives.policy_gradient import ActorCritic
from sb_dqn.objectives.recurrent import RecurrentRolloutObjective
from sb_dqn.policies import ACTOR_CRITIC_POLICIES
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.types import EnvLike, Kwargs, Objective, Settings


class ActorCriticAlgorithm(OnPolicyAlgorithm):
    """Learns a policy, and usually a value, from rollouts or whole episodes.

    Args:
        policy: alias or class.
        env: environment of any supported kind, or a `Blueprint`.
        policy_kwargs: keywords of the policy and of the optimizer.
        training: settings that all algorithms share.
        rollout: what is collected before the updates.
        objective: the loss.
        optimizer_class, optimizer_kwargs: optimizer, unless `policy_kwargs` names a class.
        sequence_length: length of the sequences of a recurrent policy; None: the longest that fits.
        has_critic: False: no value is learned.
        redraws: with state-dependent exploration: when its noise changes; None: none.
        value_bins: settings of values by classification; None: regression.
    """

    changeable: ClassVar[tuple[str, ...]] = (*OnPolicyAlgorithm.changeable, "ent_coef")
    policy: ActorCriticPolicy

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: EnvLike,
        *,
        policy_kwargs: Settings | None,
        training: TrainingConfig,
        rollout: CollectionConfig,
        objective: ActorCritic,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: Settings | None = None,
        sequence_length: int | None = None,
        has_critic: bool = True,
        redraws: Redraws | None = None,
        value_bins: Bins | None = None,
    ) -> None:
        self._redraws = redraws
        self._loss = objective
        kwargs = check_mapping("policy_kwargs", policy_kwargs)
        if "optimizer_class" not in kwargs:
            own = check_mapping("optimizer_kwargs", kwargs.get("optimizer_kwargs"))
            kwargs |= {"optimizer_class": optimizer_class, "optimizer_kwargs": {**(optimizer_kwargs or {}), **own}}
        switches: Kwargs = {} if redraws is None else {"use_sde": True}
        switches |= {} if value_bins is None else {"value_bins": value_bins}
        config = PolicyConfig(policy, kwargs, ACTOR_CRITIC_POLICIES, ActorCriticPolicy, **switches)
        loss: Objective = objective
        if config.policy.recurrent:
            if isinstance(rollout, EpisodeConfig):
                raise ConfigurationError(
                    "policy must be feed-forward for REINFORCE and VPG, which shuffle the samples of episodes, got a recurrent one. "
                    "Use A2C or PPO."
                )
            rollout = rollout.in_sequences(sequence_length)
            loss = RecurrentRolloutObjective(objective, rollout.sequence_length or 1)
        elif sequence_length is not None:
            raise ConfigurationError(
                f"sequence_length must be None for feed-forward policies, got {sequence_length!r}. Remove it, or use "
                f"policy='MlpLstmPolicy', 'CnnLstmPolicy' or 'MultiInputLstmPolicy'."
            )
        super().__init__(
            env,
            policy=config,
            training=training,
            objective=lambda _: loss,
            rollout=rollout,
            has_critic=has_critic,
        )

    @classmethod
    def loaded_arguments(cls, arguments: Kwargs, saved: model_file.SavedModel) -> Kwargs:
        """Returns the arguments with two outputs for each bit of a MultiBinary if the file's network has them."""
        arguments = super().loaded_arguments(arguments, saved)
        space = saved.blueprint.action_space
        outputs = [bias.numel() for name, bias in saved.policy.items() if name.endswith("action_head.outputs.bias")]
        if isinstance(space, spaces.MultiBinary) and outputs == [2 * math.prod(space.shape)]:
            kwargs = check_mapping("policy_kwargs", arguments.get("policy_kwargs"))
            return {**arguments, "policy_kwargs": {"binary_logits": 2, **kwargs}}
        return arguments

    def acting_settings(self) -> Kwargs:
        return {**super().acting_settings(), "redraws": self._redraws}

    def change(self, name: str, value: object) -> Any:
        if name != "ent_coef":
            return super().change(name, value)
        self._loss.ent_coef = check_float("ent_coef", value, 0.0)
        if self._experience is not None:
            self.update_runner.rebuild()
        return value

    def log_facts(self) -> dict[str, float]:
        entries = super().log_facts()
        view = self.rollout.view
        if self.has_critic and bool((view.weight > 0).any()):
            explained = explained_variance(view.extra["value"], view.return_, view.weight)
            entries["train/explained_variance"] = float(explained)
        return entries | self.policy.action_head.log_facts()
