"""PQN (Gallici et al. 2024, arXiv 2407.04811): Q-learning from rollouts, without replay and target network."""

from __future__ import annotations

import torch
from typing_extensions import Unpack

from sb_dqn.checks import check_bool, check_int, check_mapping
from sb_dqn.core.construction import QPolicyConfig, TrainingConfig, epsilon_schedule
from sb_dqn.core.keywords import OnPolicyKeywords, value_bins, with_defaults
from sb_dqn.core.on_policy_algorithm import OnPolicyAlgorithm
from sb_dqn.core.rollout_config import RolloutConfig
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration import Exploration, as_exploration
from sb_dqn.nn.heads.scalar import Scalar
from sb_dqn.objectives.q_lambda import QLambda
from sb_dqn.policies import QPolicy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.schedules import ScheduleLike
from sb_dqn.types import EnvLike, Settings


class PQN(OnPolicyAlgorithm):
    """Parallelised Q-network: Peng's Q(lambda) on rollouts of many lanes, with layer norm instead of a target network.

    Targets are computed once per rollout, by the weights that acted. Defaults are those of the paper for Atari. It needs many
    lanes: 128 there, 32 for CartPole. Counts of
    steps are env steps over all lanes; only `n_steps` counts ticks (one step of every lane).

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of QPolicy.
        env: id, gymnasium.Env, list of factories, gymnasium VectorEnv, EnvPool env or Stable-Baselines3 VecEnv. Action space:
            Discrete, MultiDiscrete or MultiBinary.
        learning_rate: learning rate, above 0, or a schedule.
        n_steps: length of a rollout in ticks; it has n_steps x lanes rows, reset rows included.
        batch_size: maximum number of samples per update; minibatches have nearly equal sizes.
        n_epochs: passes over each rollout.
        gamma: discount, [0, 1].
        q_lambda: lambda of Q(lambda), [0, 1]; 0 bootstraps after one step, 1 at the end of the rollout.
        exploration_fraction: share of `total_timesteps` over which epsilon decreases, [0, 1].
        exploration_initial_eps, exploration_final_eps: epsilon at the start and at the end, [0, 1].
        max_grad_norm: bound on the 2-norm of the gradient. If None, the gradient is not clipped.
        dueling: separate streams for state value and action advantages (arXiv 1511.06581).
        loss: "mse" or "huber".
        value_loss: values by classification (arXiv 2403.03950): True or "hl_gauss", "two_hot", or a dict of `kind`, `bins`, `v_min`,
            `v_max`, `transform`, see DQN; False learns by regression with `loss`.
        exploration: "epsilon", "boltzmann", or a dict; see DQN.
        evaluation_eps: epsilon of `predict(deterministic=False)`. If None, it is the current epsilon.
        policy_kwargs: keywords of the policy, `optimizer_class` (default RAdam) and `optimizer_kwargs`; `layer_norm` defaults
            to True.
        shared: see `OnPolicyKeywords`.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type, or a keyword is unknown.
        SpaceError: the observation or action space is not supported.
        MemoryBudgetError: the rollout does not fit into memory.
    """

    exploration: Exploration
    policy: QPolicy

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        learning_rate: ScheduleLike = 2.5e-4,
        n_steps: int = 32,
        batch_size: int = 128,
        n_epochs: int = 2,
        gamma: float = 0.99,
        q_lambda: float = 0.65,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.001,
        max_grad_norm: float | None = 10.0,
        dueling: bool = False,
        loss: str = "mse",
        value_loss: bool | str | Settings = False,
        exploration: str | Settings = "epsilon",
        evaluation_eps: float | None = None,
        policy_kwargs: Settings | None = None,
        **shared: Unpack[OnPolicyKeywords],
    ) -> None:
        keywords = with_defaults(OnPolicyKeywords, shared)
        bins = value_bins(value_loss, keywords)
        training = TrainingConfig.from_keywords(keywords, learning_rate=learning_rate, max_grad_norm=max_grad_norm)
        epsilon = epsilon_schedule(exploration_initial_eps, exploration_final_eps, exploration_fraction)
        kwargs = {
            "layer_norm": True,
            "optimizer_class": torch.optim.RAdam,
            **check_mapping("policy_kwargs", policy_kwargs),
        }
        network = QNetworkConfig(bins or Scalar(), check_bool("dueling", dueling))
        config = QPolicyConfig(policy, kwargs, network, has_target=False)
        if config.policy.recurrent:
            raise ConfigurationError(
                f"policy must be feed-forward for PQN, which shuffles its rollouts, got {policy!r}. Use R2D2, or another class with "
                f"a replay."
            )
        objective = QLambda(loss)
        batch_size = check_int("batch_size", batch_size, 1)
        super().__init__(
            env,
            policy=config,
            training=training,
            objective=lambda _: objective,
            rollout=RolloutConfig(
                n_steps=n_steps,
                n_epochs=n_epochs,
                batch_size=batch_size,
                gamma=gamma,
                lambda_=q_lambda,
                lambda_name="q_lambda",
            ),
            batch_size=batch_size,
            exploration=as_exploration(exploration, epsilon, evaluation_eps),
        )
