"""PPO (Schulman et al. 2017, arXiv 1707.06347): several epochs per rollout with a clipped objective."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from typing_extensions import Unpack

from sb_dqn.checks import check_bool, check_float, check_int
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.keywords import ActorCriticKeywords, sde_redraws, value_bins, with_defaults
from sb_dqn.core.rollout_config import RolloutConfig
from sb_dqn.errors import ConfigurationError
from sb_dqn.objectives.policy_gradient import ClippedSurrogate
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.schedules import ScheduleLike, as_schedule
from sb_dqn.types import EnvLike, Settings, Update


class PPO(ActorCriticAlgorithm):
    """Proximal policy optimization: epochs of minibatches with a clipped objective.

    Counts of steps are env steps over all lanes; only `n_steps` counts ticks (one step of every lane).

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", a recurrent one ("MlpLstmPolicy", ...), or a subclass of
            ActorCriticPolicy.
        env: id, gymnasium.Env, list of factories, gymnasium VectorEnv, EnvPool env or Stable-Baselines3 VecEnv. Action space:
            Discrete, MultiDiscrete, MultiBinary or Box.
        learning_rate: learning rate, above 0, or a schedule.
        n_steps: length of a rollout in ticks; it has n_steps x lanes rows, reset rows included.
        batch_size: maximum number of samples per update; minibatches have nearly equal sizes.
        n_epochs: passes over each rollout.
        gamma: discount, [0, 1].
        gae_lambda: lambda of generalized advantage estimation, [0, 1].
        clip_range: clipping range of the probability ratio around 1, above 0, or a schedule.
        clip_range_vf: clipping range of the change in value, in units of the return, above 0, or a schedule. If None,
            the change is not clipped.
        normalize_advantage: True normalizes advantages over each minibatch to mean 0 and standard deviation 1.
        ent_coef: weight of the entropy bonus, >= 0.
        vf_coef: weight of the value loss, >= 0.
        max_grad_norm: bound on the 2-norm of the gradient. If None, the gradient is not clipped.
        target_kl: the rest of a rollout is skipped once the approximate KL divergence exceeds 1.5 times this number. If None,
            it never is.
        sequence_length: length of the training sequences of a recurrent policy, a divisor of n_steps, at most batch_size. If
            None, it is the largest one.
        policy_kwargs: keywords of the policy, `optimizer_class` and `optimizer_kwargs`.
        shared: see `ActorCriticKeywords`.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type, or a keyword is unknown.
        SpaceError: the observation or action space is not supported.
        MemoryBudgetError: the rollout does not fit into memory.
    """

    changeable: ClassVar[tuple[str, ...]] = (*ActorCriticAlgorithm.changeable, "batch_size")

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: EnvLike,
        learning_rate: ScheduleLike = 3e-4,
        n_steps: int = 2048,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: ScheduleLike = 0.2,
        clip_range_vf: ScheduleLike | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = 0.5,
        target_kl: float | None = None,
        sequence_length: int | None = None,
        policy_kwargs: Settings | None = None,
        **shared: Unpack[ActorCriticKeywords],
    ) -> None:
        keywords = with_defaults(ActorCriticKeywords, shared)
        bins = value_bins(keywords["value_loss"], keywords)
        training = TrainingConfig.from_keywords(keywords, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        rollout = RolloutConfig(
            n_steps=n_steps,
            n_epochs=n_epochs,
            batch_size=_minibatch(batch_size, normalize_advantage),
            gamma=gamma,
            lambda_=gae_lambda,
        )
        clip = as_schedule("clip_range", clip_range)
        clip_vf = None if clip_range_vf is None else as_schedule("clip_range_vf", clip_range_vf)
        if bins is not None and clip_vf is not None:
            raise ConfigurationError(
                f"clip_range_vf must be None with value_loss, got {clip_range_vf!r}: it bounds the change of a number, while the "
                f"loss is one of classes. Remove it."
            )
        max_kl = None if target_kl is None else 1.5 * check_float("target_kl", target_kl, 0.0, above=True)
        objective = ClippedSurrogate(ent_coef, vf_coef, normalize_advantage, clips_value=clip_vf is not None)
        super().__init__(
            policy,
            env,
            policy_kwargs=policy_kwargs,
            training=training,
            rollout=rollout,
            objective=objective,
            optimizer_kwargs={"eps": 1e-5},
            sequence_length=sequence_length,
            redraws=sde_redraws(keywords, rollout.n_steps),
            value_bins=bins,
        )
        objective.move_to(self.device)
        self.objective = objective
        self.clip_schedule = clip
        self.clip_vf_schedule = clip_vf
        self.max_kl = max_kl

    def change(self, name: str, value: Any) -> Any:
        if name != "batch_size":
            return super().change(name, value)
        size = _minibatch(value, self.arguments["normalize_advantage"])
        length = self.rollout_config.sequence_length or 1
        if self.learning or size < length:
            raise ConfigurationError(
                f"batch_size must be changed between two learns, and be at least the sequence_length of {length}, got {value!r}. Call "
                f"load(path, env=env, batch_size={value!r})."
            )
        self.rollout_config = replace(self.rollout_config, batch_size=size)
        if self.stream is not None and self.collector is not None:
            pending = self.collector.env_seed
            self._experience = None  # the next learn begins with a reset, and so with a new rollout
            self.attach(self.stream)
            self.collector.env_seed = pending
        return size

    def before_updates(self) -> None:
        if self.rollout.is_full:
            self.objective.clip.fill_(self._now(self.clip_schedule))
            if self.clip_vf_schedule is not None:
                self.objective.clip_value.fill_(self._now(self.clip_vf_schedule))
        super().before_updates()

    def stops_early(self, update: Update) -> bool:
        kl = self.objective.reports.index("approx_kl")
        return self.max_kl is not None and float(update.reports[kl]) > self.max_kl

    def log_facts(self) -> dict[str, float]:
        entries = {**super().log_facts(), "train/clip_range": self._now(self.clip_schedule)}
        if self.clip_vf_schedule is not None:
            entries["train/clip_range_vf"] = self._now(self.clip_vf_schedule)
        return entries


def _minibatch(batch_size: object, normalize_advantage: object) -> int:
    """Returns the largest number of samples of an update."""
    size = check_int("batch_size", batch_size, 1)
    if check_bool("normalize_advantage", normalize_advantage) and size == 1:
        raise ConfigurationError(
            "batch_size must be >= 2 with normalize_advantage=True, got 1: one advantage has no spread. Raise it, or set "
            "normalize_advantage=False."
        )
    return size
