"""REINFORCE (Williams 1992, doi 10.1007/BF00992696): actions by what their whole episode brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sb_dqn.checks import check_bool, check_float, check_int
from sb_dqn.core.arguments import refuse_unknown
from sb_dqn.core.episode_config import EpisodeConfig
from sb_dqn.core.episodic_algorithm import EpisodicAlgorithm
from sb_dqn.objectives.policy_gradient import PolicyGradient
from sb_dqn.policies.actor_critic import ActorCriticPolicy


class REINFORCE(EpisodicAlgorithm):
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
        **unknown: Any,
    ) -> None:
        arguments = {
            name: value for name, value in locals().items() if name not in ("self", "env", "unknown", "__class__")
        }
        refuse_unknown(type(self), unknown)
        episodes = EpisodeConfig(
            check_int("episodes_per_update", episodes_per_update, 1), check_float("gamma", gamma, 0.0, 1.0)
        )
        objective = PolicyGradient(
            check_float("ent_coef", ent_coef, 0.0), check_bool("normalize_returns", normalize_returns)
        )
        super().__init__(
            policy, env, arguments=arguments, rollout=episodes, objective=objective,
            optimizer_class=torch.optim.Adam, optimizer_kwargs={}, learns_value=False,
        )  # fmt: skip
