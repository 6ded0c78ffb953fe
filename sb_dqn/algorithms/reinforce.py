"""REINFORCE (Williams 1992, doi 10.1007/BF00992696): policy gradient from Monte-Carlo returns."""

from __future__ import annotations

from typing_extensions import Unpack

from sb_dqn.checks import check_bool
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.keywords import OnPolicyKeywords, with_defaults
from sb_dqn.core.rollout_config import EpisodeConfig
from sb_dqn.objectives.policy_gradient import PolicyGradient
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.schedules import ScheduleLike
from sb_dqn.types import EnvLike, Settings


class REINFORCE(ActorCriticAlgorithm):
    """Monte-Carlo policy gradient: one update on all samples of some complete episodes.

    Each update uses every step of `episodes_per_update` complete episodes once, weighted by its discounted return. Truncated
    episodes are not bootstrapped, since there is no value. Counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of ActorCriticPolicy.
        env: id, gymnasium.Env, list of factories, gymnasium VectorEnv, EnvPool env or Stable-Baselines3 VecEnv. Action space:
            Discrete, MultiDiscrete, MultiBinary or Box.
        learning_rate: learning rate, above 0, or a schedule.
        episodes_per_update: number of complete episodes per update, over all lanes.
        gamma: discount, [0, 1].
        ent_coef: weight of the entropy bonus, >= 0.
        normalize_returns: True normalizes returns over an update to mean 0 and standard deviation 1.
        max_grad_norm: bound on the 2-norm of the gradient. If None, the gradient is not clipped.
        policy_kwargs: keywords of the policy, `optimizer_class` and `optimizer_kwargs`.
        shared: see `OnPolicyKeywords`.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type, or a keyword is unknown.
        SpaceError: the observation or action space is not supported.
        MemoryBudgetError: the episodes do not fit into memory.
    """

    default_log_interval = 10

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: EnvLike,
        learning_rate: ScheduleLike = 3e-3,
        episodes_per_update: int = 8,
        gamma: float = 0.99,
        ent_coef: float = 0.0,
        normalize_returns: bool = False,
        max_grad_norm: float | None = None,
        policy_kwargs: Settings | None = None,
        **shared: Unpack[OnPolicyKeywords],
    ) -> None:
        keywords = with_defaults(OnPolicyKeywords, shared)
        training = TrainingConfig.from_keywords(keywords, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        super().__init__(
            policy,
            env,
            policy_kwargs=policy_kwargs,
            training=training,
            rollout=EpisodeConfig(episodes_per_update, gamma),
            objective=PolicyGradient(ent_coef, check_bool("normalize_returns", normalize_returns)),
            has_critic=False,
        )
