"""SAC (Haarnoja et al. 2018, arXiv 1812.05905), also for Discrete actions (Christodoulou 2019, arXiv 1910.07207)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import Unpack

from sb_dqn.acting.lane_state import Redraws
from sb_dqn.checks import check_bool, check_float, check_switch
from sb_dqn.core.construction import PolicyConfig, TrainingConfig
from sb_dqn.core.keywords import SACKeywords, sde_redraws, value_bins, with_defaults
from sb_dqn.core.model_file import SavedModel
from sb_dqn.core.off_policy_algorithm import OffPolicyAlgorithm
from sb_dqn.core.replay_config import ReplayConfig, TargetConfig, update_schedule
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration.action_noise import ActionNoise
from sb_dqn.objectives.soft_actor_critic import SoftActorCritic
from sb_dqn.policies import SAC_POLICIES
from sb_dqn.policies.sac import SACPolicy
from sb_dqn.policies.sac_network import LogAlpha, Temperature
from sb_dqn.schedules import Annealed, ScheduleLike
from sb_dqn.spaces import actions_of
from sb_dqn.types import Blueprint, EnvLike, Kwargs, Settings

SCALED = 0.01
"""First temperature where returns are scaled to the range of the critics' bins, which values have to be in together with the
entropies (SimBaV2, Lee et al. 2025, arXiv 2502.15280)."""


class SAC(OffPolicyAlgorithm):
    """Soft actor-critic: maximizes reward and entropy, off-policy, with the minimum of several critics.

    The policy is a normal distribution squashed by tanh for Box actions, and categorical for Discrete actions.

    Counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of SACPolicy.
        env: see `DQN`. Action space: Box with finite bounds, or Discrete.
        learning_rate: learning rate of actor, critics and temperature, above 0, or a schedule.
        buffer_size: capacity in rows (env steps) over all lanes.
        learning_starts: env steps before the first update; actions are uniformly random until then.
        batch_size: transitions per update.
        tau: share of the online parameters in each update of the target critics, [0, 1].
        gamma: discount, [0, 1], or a dict of `start`, `end`, `updates`, see `Annealed`.
        train_freq: env steps between updates, or (k, "episode").
        gradient_steps: number of updates each time; -1 makes one per env step, and 0 makes none.
        n_steps: number of rewards before the bootstrap, n; the entropies between are left out. Also annealed, see `DQN`.
        ent_coef: temperature alpha: "auto" (learned, starts at 1, or 0.01 with the automatic range of `value_loss`), "auto_0.1"
            (learned, starts at 0.1), or a fixed number >= 0.
        target_update_interval: updates between updates of the target critics.
        target_entropy: target entropy in nats; "auto" is minus the number of dimensions of a Box (for bounds -1 and 1), or
            0.98 of the entropy of the uniform distribution over the legal choices.
        policy_kwargs: keywords of the policy, `optimizer_class` and `optimizer_kwargs`.
        shared: see `SACKeywords`.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type, or a keyword is unknown.
        SpaceError: the observation or action space is not supported.
        MemoryBudgetError: the replay does not fit into memory.
    """

    changeable: ClassVar[tuple[str, ...]] = (*OffPolicyAlgorithm.changeable, "ent_coef")
    policy: SACPolicy

    def __init__(
        self,
        policy: str | type[SACPolicy],
        env: EnvLike,
        learning_rate: ScheduleLike = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float | Settings | Annealed = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        n_steps: int | Settings | Annealed = 1,
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        policy_kwargs: Settings | None = None,
        **shared: Unpack[SACKeywords],
    ) -> None:
        keywords = with_defaults(SACKeywords, shared)
        bins = value_bins(keywords["value_loss"], keywords)
        training = TrainingConfig.from_keywords(keywords, learning_rate=learning_rate, max_grad_norm=None)
        temperature = _temperature(ent_coef, SCALED if bins is not None and bins.scales_rewards else 1.0)
        entropy = _target_entropy(target_entropy, temperature)
        replay = ReplayConfig.from_keywords(
            keywords,
            buffer_size=buffer_size,
            batch_size=batch_size,
            n_steps=n_steps,
            gamma=gamma,
            schedule=update_schedule(train_freq, gradient_steps, learning_starts),
        )

        def make_objective(blueprint: Blueprint) -> SoftActorCritic:
            actions = actions_of(blueprint.action_space)
            if self._noise is not None:
                self._noise.check(actions)
            default = None if actions.num_actions else -float(np.prod(actions.shape))
            return SoftActorCritic(default if entropy is None else entropy, actions.num_actions, temperature.learned)

        self._noise = check_switch("action_noise", keywords["action_noise"], ActionNoise)
        self._redraws = sde_redraws(keywords, replay.schedule.train_freq)
        warmup = check_bool("use_sde_at_warmup", keywords["use_sde_at_warmup"])
        self._acts_at_warmup = warmup and self._redraws is not None
        switches: Kwargs = {} if self._redraws is None else {"use_sde": True}
        switches |= {} if bins is None else {"value_bins": bins}
        super().__init__(
            env,
            policy=PolicyConfig(policy, policy_kwargs, SAC_POLICIES, SACPolicy, config=temperature, **switches),
            training=training,
            objective=make_objective,
            replay=replay,
            target=TargetConfig(tau, target_update_interval, by_updates=True),
            keywords=keywords,
        )

    def change(self, name: str, value: Any) -> Any:
        if name != "ent_coef":
            return super().change(name, value)
        temperature = _temperature(value, 1.0)
        if temperature.learned or isinstance(self.arguments["ent_coef"], str):
            raise ConfigurationError(_STAYS_FIXED_OR_LEARNED.format(self.arguments["ent_coef"], value))
        self.policy.temperature = temperature  # of networks that are drawn again
        self.policy.nets.log_alpha.value.copy_(LogAlpha(temperature).value)
        return value

    @classmethod
    def loaded_arguments(cls, arguments: Kwargs, saved: SavedModel) -> Kwargs:
        """Returns the arguments, and sets a fixed temperature in the parameters of the file, which `load` may have changed."""
        fixed = arguments.get("ent_coef", "auto")
        if not isinstance(fixed, str):
            saved.policy["nets.log_alpha.value"] = LogAlpha(_temperature(fixed, 1.0)).value.detach()
        return super().loaded_arguments(arguments, saved)

    def acting_settings(self) -> Kwargs:
        redraws = self._redraws
        if redraws is not None and self.replay_config.schedule.unit == "episode":
            redraws = Redraws(redraws.within, episodes=not redraws.within)
        elif redraws is not None:  # in ticks
            redraws = replace(redraws, period=max(1, redraws.period // self.n_envs))
        return {**super().acting_settings(), "redraws": redraws, "action_noise": self._noise}

    def before_acting(self) -> bool:
        return super().before_acting() and not self._acts_at_warmup


_STAYS_FIXED_OR_LEARNED = (
    "ent_coef must stay a fixed number, or a learned one, got {!r} and then {!r}. Make a new model with it and take over the "
    "weights: new.policy.load_state_dict(model.policy.state_dict())."
)


def _temperature(ent_coef: object, automatic: float) -> Temperature:
    """Returns the temperature for `ent_coef`, where "auto" starts at `automatic`."""
    if not isinstance(ent_coef, str):
        return Temperature(check_float("ent_coef", ent_coef, 0.0), learned=False)
    kind, _, initial = ent_coef.partition("_")
    try:
        first = float(initial) if initial or kind != ent_coef else automatic
    except ValueError:
        first = 0.0
    if kind != "auto" or not 0.0 < first < math.inf:
        raise ConfigurationError(
            f"ent_coef must be 'auto', 'auto_0.1' (an initial value > 0) or a number >= 0, got {ent_coef!r}. Give one of these."
        )
    return Temperature(first)


def _target_entropy(value: object, temperature: Temperature) -> float | None:
    """Returns the target entropy in nats, or None for the default of the action space."""
    if isinstance(value, str):
        if value == "auto":
            return None
        raise ConfigurationError(
            f"target_entropy must be 'auto' or a number of nats, got {value!r}. Give one of these."
        )
    wanted = check_float("target_entropy", value, -math.inf)
    if not temperature.learned:
        raise ConfigurationError(
            f"target_entropy must be 'auto' with the fixed ent_coef={temperature.initial}, got {value!r}. Remove it, or set "
            f"ent_coef='auto'."
        )
    return wanted
