"""A2C, the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

from __future__ import annotations

import torch
from typing_extensions import Unpack

from sb_dqn.checks import check_bool, check_float, check_mapping
from sb_dqn.core import model_file
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.keywords import ActorCriticKeywords, sde_redraws, value_bins, with_defaults
from sb_dqn.core.rollout_config import RolloutConfig
from sb_dqn.errors import checkpoint_errors
from sb_dqn.nn.parameters.optimizers import RMSpropTFLike
from sb_dqn.objectives.policy_gradient import ActorCritic
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.schedules import ScheduleLike
from sb_dqn.types import EnvLike, Kwargs, Settings


class A2C(ActorCriticAlgorithm):
    """Advantage actor-critic: one update on all samples of each short rollout.

    Counts of steps are env steps over all lanes; only `n_steps` counts ticks (one step of every lane).

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", a recurrent one ("MlpLstmPolicy", ...), or a subclass of
            ActorCriticPolicy.
        env: id, gymnasium.Env, list of factories, gymnasium VectorEnv, EnvPool env or Stable-Baselines3 VecEnv. Action space:
            Discrete, MultiDiscrete, MultiBinary or Box.
        learning_rate: learning rate, above 0, or a schedule.
        n_steps: length of a rollout in ticks; it has n_steps x lanes rows, reset rows included.
        gamma: discount, [0, 1].
        gae_lambda: lambda of generalized advantage estimation, [0, 1]; 1 is the n-step return minus the value.
        ent_coef: weight of the entropy bonus, >= 0.
        vf_coef: weight of the value loss, >= 0.
        max_grad_norm: bound on the 2-norm of the gradient. If None, the gradient is not clipped.
        rms_prop_eps: epsilon of RMSprop, >= 0.
        use_rms_prop: True uses torch.optim.RMSprop with alpha 0.99, False uses Adam; an `optimizer_class` in `policy_kwargs`
            overrides both.
        normalize_advantage: True normalizes advantages over the rollout to mean 0 and standard deviation 1.
        sequence_length: length of the training sequences of a recurrent policy, a divisor of n_steps. If None, it is the
            largest one.
        policy_kwargs: keywords of the policy, `optimizer_class` and `optimizer_kwargs`.
        shared: see `ActorCriticKeywords`.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type, or a keyword is unknown.
        SpaceError: the observation or action space is not supported.
        MemoryBudgetError: the rollout does not fit into memory.
    """

    default_log_interval = 100

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: EnvLike,
        learning_rate: ScheduleLike = 7e-4,
        n_steps: int = 5,
        gamma: float = 0.99,
        gae_lambda: float = 1.0,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float | None = 0.5,
        rms_prop_eps: float = 1e-5,
        use_rms_prop: bool = True,
        normalize_advantage: bool = False,
        sequence_length: int | None = None,
        policy_kwargs: Settings | None = None,
        **shared: Unpack[ActorCriticKeywords],
    ) -> None:
        keywords = with_defaults(ActorCriticKeywords, shared)
        bins = value_bins(keywords["value_loss"], keywords)
        training = TrainingConfig.from_keywords(keywords, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        rollout = RolloutConfig(n_steps=n_steps, n_epochs=1, batch_size=None, gamma=gamma, lambda_=gae_lambda)
        objective = ActorCritic(ent_coef, vf_coef, normalize_advantage)
        eps = check_float("rms_prop_eps", rms_prop_eps, 0.0)
        rms = check_bool("use_rms_prop", use_rms_prop)
        super().__init__(
            policy,
            env,
            policy_kwargs=policy_kwargs,
            training=training,
            rollout=rollout,
            objective=objective,
            optimizer_class=torch.optim.RMSprop if rms else torch.optim.Adam,
            optimizer_kwargs={"alpha": 0.99, "eps": eps, "weight_decay": 0.0} if rms else {"eps": 1e-5},
            sequence_length=sequence_length,
            redraws=sde_redraws(keywords, rollout.n_steps),
            value_bins=bins,
        )

    @classmethod
    def loaded_arguments(cls, arguments: Kwargs, saved: model_file.SavedModel) -> Kwargs:
        """Returns the arguments with RMSpropTFLike by name if the file's optimizer is one: it used to be the default."""
        arguments = super().loaded_arguments(arguments, saved)
        kwargs = check_mapping("policy_kwargs", arguments.get("policy_kwargs"))
        with checkpoint_errors("the state of 'learner' in the file does not name its optimizer"):
            kind = saved.parts["learner"].get("kind", RMSpropTFLike.__name__)  # the oldest files have no kind
        if kind == RMSpropTFLike.__name__ and arguments.get("use_rms_prop") is True and "optimizer_class" not in kwargs:
            own = check_mapping("optimizer_kwargs", kwargs.get("optimizer_kwargs"))
            kwargs |= {
                "optimizer_class": RMSpropTFLike,
                "optimizer_kwargs": {"alpha": 0.99, "eps": arguments.get("rms_prop_eps", 1e-5), **own},
            }
            return {**arguments, "policy_kwargs": kwargs}
        return arguments
