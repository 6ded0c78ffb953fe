"""What A2C, PPO and their kin share: a policy that draws its actions, with a value beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from sb_dqn.accelerate import choose_mode
from sb_dqn.algorithms import persistence
from sb_dqn.algorithms.asking import NetCall
from sb_dqn.algorithms.episodes import EpisodeSettings
from sb_dqn.algorithms.lane_memory import DrawnMemory
from sb_dqn.algorithms.on_policy import Declared, OnPolicyAlgorithm
from sb_dqn.algorithms.outside import open_outside, resolve_device
from sb_dqn.algorithms.parts import PolicyPlan, gradient_bound, random_streams
from sb_dqn.algorithms.rollout_settings import RolloutSettings, SequenceSettings
from sb_dqn.checks import check_bool, check_choice, check_mapping, check_path
from sb_dqn.errors import ConfigurationError
from sb_dqn.learner import Learner
from sb_dqn.losses.policy_gradient import explained_variance
from sb_dqn.normalize import Normalization
from sb_dqn.objectives.policy_gradient import ActorCritic
from sb_dqn.objectives.recalled import RecalledObjective
from sb_dqn.policies import ACTOR_CRITIC_POLICIES
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.policies.recurrent_actor_critic import RecurrentActorCriticPolicy
from sb_dqn.replay.rollout_sequences import Before
from sb_dqn.schedules import as_schedule
from sb_dqn.types import ActionArray, BoolArray, Objective, Observation, Rows


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
    memory: DrawnMemory | None = None
    """What a recurrent policy remembers of the lanes; `prepare_acting` sets it."""

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
        collected = _along(rollout, plan.policy.recurrent, arguments.get("sequence_length"))

        blueprint, stream = open_outside(env, arguments["action_mask"])
        nets = plan.build(blueprint, rng, device)
        learned: Objective = objective
        if isinstance(collected, SequenceSettings):
            learned = RecalledObjective(objective, collected.sequence_length)
        super().__init__(
            arguments=arguments,
            blueprint=blueprint,
            policy=nets,
            learner=Learner(
                nets.net, None, learned, **plan.optimizer, max_grad_norm=norm, precision=arguments["precision"]
            ),
            exploration=None,
            rng=rng,
            rollout=replace(collected, extras=nets.extras),
            learning_rate=rate,
            stream=stream,
            verbose=arguments["verbose"],
            tensorboard_log=check_path("tensorboard_log", arguments["tensorboard_log"]),
            stats_window_size=arguments["stats_window_size"],
            mode=plan.mode(nets, device, check_bool("torch_compile", arguments["torch_compile"])),
            normalizer=normalization.build(blueprint, device),
        )

    @classmethod
    def loaded_arguments(cls, arguments: dict[str, Any], saved: persistence.Saved) -> dict[str, Any]:
        """Returns the arguments with two outputs for each bit of a MultiBinary where the file's network has them."""
        arguments = super().loaded_arguments(arguments, saved)
        space = saved.blueprint.action_space
        outputs = [bias.numel() for name, bias in saved.policy.items() if name.endswith("action_head.outputs.bias")]
        if isinstance(space, spaces.MultiBinary) and outputs == [2 * math.prod(space.shape)]:
            chosen = check_mapping("policy_kwargs", arguments.get("policy_kwargs"))
            return {**arguments, "policy_kwargs": {"binary_logits": 2, **chosen}}
        return arguments

    def prepare_acting(self, num_lanes: int) -> None:
        see = self.normalizer.observations
        self.memory = None
        if isinstance(self.policy, RecurrentActorCriticPolicy):
            self.memory = DrawnMemory(self.policy, num_lanes)
            mode = "eager" if self._large else choose_mode([self.policy], self.device, torch_compile=False)
            self._act = NetCall(self.policy, self.policy.act_on, mode, see)
            self._value_step = NetCall(self.policy, self.policy.value_step, mode, see)
        else:
            self._act = NetCall(self.policy, self.policy.act, self.acting_mode, see)
            self._value = NetCall(self.policy, lambda obs, mask: self.policy.net.value(obs), self.acting_mode, see)

    def entered(self, rows: Rows) -> None:
        if self.memory is not None:
            self.memory.take_in(rows)

    def act(self, obs: Observation, mask: BoolArray | None) -> tuple[ActionArray, Declared]:
        drawn = self.policy.draw(self.rng.explore, len(next(iter(obs.values()))))
        told = () if self.memory is None else self.memory.entered[:3]
        action, *said = self._act(obs, mask, drawn, *told)
        declared = dict(zip(self.policy.answers, said, strict=True))
        if self.memory is not None:
            declared |= self.memory.left(declared.pop("after"))
        return action, declared

    def values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> npt.NDArray[Any]:
        if self.memory is None or before is None:
            return self._value.alone(obs, None)
        none, count = self.memory.none, len(before.reward)
        earlier = before.declared  # a step of the rows before, from the state in which they were met
        action = earlier.get("previous_action", none).astype(none.dtype)
        reward = earlier.get("previous_reward", np.zeros(count, np.float32))
        _, state = self._value_step(before.obs, None, action, reward, earlier["state"])
        begins = before.begins
        action = np.where(begins.reshape(-1, *(1,) * (none.ndim - 1)), none, before.action)
        reward = np.where(begins, 0.0, before.reward).astype(np.float32)
        state = np.where(begins[:, None], 0.0, state).astype(np.float32)
        return self._value_step(obs, None, action, reward, state)[0]

    def _more_parts(self) -> dict[str, persistence.Stateful]:
        memory: dict[str, persistence.Stateful] = {} if self.memory is None else {"memory": self.memory}
        return {**super()._more_parts(), **memory}

    def log_facts(self) -> dict[str, float]:
        facts = super().log_facts()
        view = self.rollout.view
        if bool((view.weight > 0).any()):
            explained = explained_variance(view.extra["value"], view.return_, view.weight)
            facts["train/explained_variance"] = float(explained)
        return facts | self.policy.action_head.log_facts()


def _along(rollout: RolloutSettings | EpisodeSettings, recurrent: bool, length: int | None) -> Any:
    """What is collected, for a policy that remembers in sequences.

    Raises:
        ConfigurationError: `sequence_length` without a memory, or one that does not fit.
    """
    if recurrent:
        return rollout.in_sequences(length)
    if length is not None:
        raise ConfigurationError(
            f"sequence_length={length!r} is for recurrent policies; give policy='MlpLstmPolicy', 'CnnLstmPolicy' or "
            f"'MultiInputLstmPolicy', or leave it out"
        )
    return rollout
