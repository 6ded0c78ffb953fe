"""What A2C, PPO and their kin share: a policy that draws its actions, with a value beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy.typing as npt
import torch

from sb_dqn.accelerate import choose_mode
from sb_dqn.algorithms.asking import NetCall
from sb_dqn.algorithms.episodes import EpisodeSettings
from sb_dqn.algorithms.on_policy import Declared, OnPolicyAlgorithm, RolloutSettings
from sb_dqn.algorithms.outside import open_outside, resolve_device
from sb_dqn.algorithms.parts import PolicyPlan, gradient_bound, random_streams
from sb_dqn.checks import check_bool, check_choice, check_mapping, check_path
from sb_dqn.learner import Learner
from sb_dqn.losses.policy_gradient import explained_variance
from sb_dqn.normalize import Normalization
from sb_dqn.objectives.policy_gradient import ActorCritic
from sb_dqn.policies import ACTOR_CRITIC_POLICIES
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.schedules import as_schedule
from sb_dqn.types import ActionArray, BoolArray, Observation


class ActorCriticAlgorithm(OnPolicyAlgorithm):
    """Draws actions from a policy; the policy's own spread is all the exploration there is.

    Args:
        policy: alias or class.
        env: of any kind.
        arguments: the constructor's; those that every actor-critic has are read here.
        rollout: settings of what is collected.
        objective: loss.
        optimizer_class, optimizer_kwargs: where `policy_kwargs` does not name a class.
    """

    policy: ActorCriticPolicy

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: Any,
        *,
        arguments: dict[str, Any],
        rollout: RolloutSettings | EpisodeSettings,
        objective: ActorCritic,
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_kwargs: Mapping[str, Any],
    ) -> None:
        rate = as_schedule("learning_rate", arguments["learning_rate"])
        normalization = Normalization(
            arguments["normalize_observations"], arguments["normalize_rewards"], rollout.gamma
        )
        norm = gradient_bound(arguments["max_grad_norm"])
        check_choice("precision", arguments["precision"], ("fp32", "bf16"))
        device = resolve_device(arguments["device"])
        rng = random_streams(arguments["seed"], device)
        chosen = check_mapping("policy_kwargs", arguments["policy_kwargs"])
        if "optimizer_class" not in chosen:
            own = check_mapping("optimizer_kwargs", chosen.get("optimizer_kwargs"))
            chosen |= {"optimizer_class": optimizer_class, "optimizer_kwargs": {**optimizer_kwargs, **own}}
        plan = PolicyPlan(policy, chosen, ACTOR_CRITIC_POLICIES, ActorCriticPolicy)

        blueprint, stream = open_outside(env, arguments["action_mask"])
        nets = plan.build(blueprint, rng, device)
        super().__init__(
            arguments=arguments,
            blueprint=blueprint,
            policy=nets,
            learner=Learner(
                nets.net, None, objective, **plan.optimizer, max_grad_norm=norm, precision=arguments["precision"]
            ),
            exploration=None,
            rng=rng,
            rollout=replace(rollout, extras=nets.extras),
            learning_rate=rate,
            stream=stream,
            verbose=arguments["verbose"],
            tensorboard_log=check_path("tensorboard_log", arguments["tensorboard_log"]),
            stats_window_size=arguments["stats_window_size"],
            mode=choose_mode([nets], device, check_bool("torch_compile", arguments["torch_compile"])),
            normalizer=normalization.build(blueprint, device),
        )

    def prepare_acting(self, num_lanes: int) -> None:
        see = self.normalizer.observations
        self._act = NetCall(self.policy, self.policy.act, self.mode, see)
        self._value = NetCall(self.policy, lambda obs, mask: self.policy.net.value(obs), self.mode, see)

    def act(self, obs: Observation, mask: BoolArray | None) -> tuple[ActionArray, Declared]:
        drawn = self.policy.draw(self.rng.explore, len(next(iter(obs.values()))))
        action, *declared = self._act(obs, mask, drawn)
        return action, dict(zip(("value", *self.policy.extras), declared, strict=True))

    def values(self, obs: Observation, mask: BoolArray | None) -> npt.NDArray[Any]:
        return self._value.alone(obs, None)

    def log_facts(self) -> dict[str, float]:
        facts = super().log_facts()
        view = self.rollout.view
        if bool((view.weight > 0).any()):
            explained = explained_variance(view.extra["value"], view.return_, view.weight)
            facts["train/explained_variance"] = float(explained)
        return facts | self.policy.net.action_head.log_facts()
