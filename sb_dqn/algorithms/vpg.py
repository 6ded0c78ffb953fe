"""Vanilla policy gradient: REINFORCE with a baseline."""

from __future__ import annotations

from typing_extensions import Unpack

from sb_dqn.buffers.episode_buffer import Baseline
from sb_dqn.checks import check_choice, check_float
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.keywords import CriticKeywords, value_bins, with_defaults
from sb_dqn.core.rollout_config import EpisodeConfig
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.policy_gradient import mean_baseline, step_mean_baseline
from sb_dqn.objectives.policy_gradient import ActorCritic, PolicyGradient
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.schedules import ScheduleLike
from sb_dqn.types import EnvLike, Settings

BASELINES: dict[str, Baseline | None] = {"value": None, "mean_return": mean_baseline, "step_mean": step_mean_baseline}
"""Baseline by name; None is the learned value."""
VF_COEF = 0.5


class VPG(ActorCriticAlgorithm):
    """Monte-Carlo policy gradient with a baseline that reduces the variance.

    With `baseline="value"`, truncated episodes are bootstrapped from the value of their last observation, and `gae_lambda`
    below 1 mixes in intermediate values (arXiv 1506.02438). The other baselines have no critic and use Monte-Carlo returns. Counts of
    steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of ActorCriticPolicy.
        env: id, gymnasium.Env, list of factories, gymnasium VectorEnv, EnvPool env or Stable-Baselines3 VecEnv. Action space:
            Discrete, MultiDiscrete, MultiBinary or Box.
        learning_rate: learning rate, above 0, or a schedule.
        episodes_per_update: number of complete episodes per update, over all lanes.
        gamma: discount, [0, 1].
        gae_lambda: lambda of generalized advantage estimation, [0, 1]; 1 is the return minus the value.
        baseline: "value" (learned), "mean_return" (mean over the update), or "step_mean" (mean over the samples of the update at
            the same step of an episode).
        ent_coef: weight of the entropy bonus, >= 0.
        vf_coef: weight of the value loss, >= 0.
        normalize_advantage: True normalizes advantages over an update to mean 0 and standard deviation 1.
        max_grad_norm: bound on the 2-norm of the gradient. If None, the gradient is not clipped.
        policy_kwargs: keywords of the policy, `optimizer_class` and `optimizer_kwargs`.
        shared: see `CriticKeywords`.

    Raises:
        ConfigurationError: an argument is out of range, has the wrong type, or has no effect with this baseline, or a keyword
            is unknown.
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
        gae_lambda: float = 1.0,
        baseline: str = "value",
        ent_coef: float = 0.0,
        vf_coef: float = VF_COEF,
        normalize_advantage: bool = True,
        max_grad_norm: float | None = None,
        policy_kwargs: Settings | None = None,
        **shared: Unpack[CriticKeywords],
    ) -> None:
        keywords = with_defaults(CriticKeywords, shared)
        bins = value_bins(keywords["value_loss"], keywords)
        training = TrainingConfig.from_keywords(keywords, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        has_critic = check_choice("baseline", baseline, BASELINES) == "value"
        episodes = EpisodeConfig(episodes_per_update, gamma, gae_lambda, BASELINES[baseline])
        objective: ActorCritic = PolicyGradient(ent_coef, normalize_advantage)
        if has_critic:
            objective = ActorCritic(ent_coef, vf_coef, normalize_advantage)
        if not has_critic and (episodes.lambda_ != 1.0 or check_float("vf_coef", vf_coef, 0.0) != VF_COEF):
            raise ConfigurationError(
                f"gae_lambda and vf_coef must be unset with baseline={baseline!r}, which has no critic, got "
                f"gae_lambda={gae_lambda} and vf_coef={vf_coef}. Remove them, or set baseline='value'."
            )
        if not has_critic and bins is not None:
            raise ConfigurationError(
                f"value_loss must be False with baseline={baseline!r}, which has no critic, got {keywords['value_loss']!r}. Remove "
                f"it, or set baseline='value'."
            )
        if baseline == "step_mean" and episodes.episodes_per_update == 1:
            raise ConfigurationError(
                "episodes_per_update must be >= 2 with baseline='step_mean', got 1: nothing is learned from one episode. Raise it, "
                "or set baseline='mean_return'."
            )
        super().__init__(
            policy,
            env,
            policy_kwargs=policy_kwargs,
            training=training,
            rollout=episodes,
            objective=objective,
            has_critic=has_critic,
            value_bins=bins,
        )
