"""REINFORCE (Williams 1992, doi 10.1007/BF00992696): actions by what their whole episode brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.checks import check_bool, check_float, check_int
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.episode_config import EpisodeConfig
from sb_dqn.objectives.policy_gradient import PolicyGradient
from sb_dqn.policies.actor_critic import ActorCriticPolicy


class REINFORCE(ActorCriticAlgorithm):
    """Monte-Carlo policy gradient: whole episodes, one update of all their samples, then new ones.

    An update waits for `episodes_per_update` complete episodes over all lanes and takes all of them, each step once, weighted
    by the discounted sum of the rewards that followed it. An episode that a time limit ends is taken as it is: nothing is
    bootstrapped, for there is no value. All counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of ActorCriticPolicy.
        env: an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv, an EnvPool env, or a Stable-Baselines3
            VecEnv; its actions Discrete, MultiDiscrete, MultiBinary or a Box.
        learning_rate: above 0, or a schedule.
        episodes_per_update: complete episodes, over all lanes.
        gamma: discount, [0, 1].
        ent_coef: reward for entropy, from 0.
        normalize_returns: to mean 0 and deviation 1 over the samples of an update.
        max_grad_norm: bound on the gradient's 2-norm; None: none.
        action_mask: where legal actions are named: "info" (`info["action_mask"]`) or a key of a Dict observation.
        normalize_observations: running mean and deviation of each number of a Box of floats, saved with the model: True, or
            a dict of `clip`, `epsilon`, `keys`.
        normalize_rewards: divide rewards by the deviation of the running return: True, or a dict of `clip`, `epsilon`.
        stats_window_size: episodes in the running means.
        tensorboard_log: folder for TensorBoard files.
        policy_kwargs: keywords of the policy; optimizer_class and optimizer_kwargs too.
        verbose: 0 silent, 1 logs to stdout.
        seed: of all random streams; None draws one.
        device: "auto", "cpu", "cuda", "cuda:1".
        precision: "fp32", or "bf16": low-precision forward and backward, float32 masters.
        torch_compile: run the update through torch.compile (needs a C++ compiler; takes a while to start).

    Raises:
        ConfigurationError: an argument is out of its range or of the wrong kind, or a keyword is unknown.
        SpaceError: a space is not supported.
        MemoryBudgetError: the episodes do not fit.
    """

    default_log_interval = 10

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: Any,
        learning_rate: Any = 3e-3,
        episodes_per_update: int = 8,
        gamma: float = 0.99,
        ent_coef: float = 0.0,
        normalize_returns: bool = False,
        max_grad_norm: float | None = None,
        action_mask: str | None = None,
        normalize_observations: bool | Mapping[str, Any] = False,
        normalize_rewards: bool | Mapping[str, Any] = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: Any = "auto",
        precision: str = "fp32",
        torch_compile: bool = False,
    ) -> None:
        training = TrainingConfig(
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            action_mask=action_mask,
            normalize_observations=normalize_observations,
            normalize_rewards=normalize_rewards,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            seed=seed,
            device=device,
            precision=precision,
            torch_compile=torch_compile,
        )
        super().__init__(
            policy,
            env,
            policy_kwargs=policy_kwargs,
            training=training,
            rollout=EpisodeConfig(
                episodes_per_update=check_int("episodes_per_update", episodes_per_update, 1),
                gamma=check_float("gamma", gamma, 0.0, 1.0),
            ),
            objective=PolicyGradient(
                check_float("ent_coef", ent_coef, 0.0), check_bool("normalize_returns", normalize_returns)
            ),
            has_critic=False,
        )
