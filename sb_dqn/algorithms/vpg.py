"""Vanilla policy gradient: REINFORCE, with each return less a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sb_dqn.buffers.episode_buffer import Baseline
from sb_dqn.checks import check_bool, check_choice, check_float, check_int
from sb_dqn.core.arguments import refuse_unknown
from sb_dqn.core.episode_config import EpisodeConfig
from sb_dqn.core.episodic_algorithm import EpisodicAlgorithm
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.policy_gradient import mean_baseline, step_mean_baseline
from sb_dqn.objectives.policy_gradient import ActorCritic, PolicyGradient
from sb_dqn.policies.actor_critic import ActorCriticPolicy

BASELINES: dict[str, Baseline | None] = {
    "value": None,
    "mean_return": mean_baseline,
    "step_mean": step_mean_baseline,
}
"""What a return is compared with: a learned value, or what the samples of the update say themselves."""
VF_COEF = 0.5


class VPG(EpisodicAlgorithm):
    """Monte-Carlo policy gradient with a baseline: as REINFORCE, but an action is praised for what it brought beyond it.

    With `baseline="value"` an episode that a time limit ends is bootstrapped from the value of its true last observation, and
    `gae_lambda` below 1 mixes in the values on the way (arXiv 1506.02438). The other baselines need no critic; then returns
    are the rewards that came. All counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of ActorCriticPolicy.
        env: an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv, an EnvPool env, or a Stable-Baselines3
            VecEnv; its actions Discrete, MultiDiscrete, MultiBinary or a Box.
        learning_rate: above 0, or a schedule.
        episodes_per_update: complete episodes, over all lanes.
        gamma: discount, [0, 1].
        gae_lambda: of generalised advantages, [0, 1]; 1 is the return less the value.
        baseline: "value", learned; "mean_return", of all samples of the update; "step_mean", of its samples at the same step
            of an episode.
        ent_coef: reward for entropy, from 0.
        vf_coef: weight of the value's loss, from 0.
        normalize_advantage: to mean 0 and deviation 1 over the samples of an update.
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
        ConfigurationError: an argument is out of its range or of the wrong kind, a keyword is unknown, or it has no effect
            with this baseline.
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
        gae_lambda: float = 1.0,
        baseline: str = "value",
        ent_coef: float = 0.0,
        vf_coef: float = VF_COEF,
        normalize_advantage: bool = True,
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
        learns_value = check_choice("baseline", baseline, BASELINES) == "value"
        episodes = EpisodeConfig(
            check_int("episodes_per_update", episodes_per_update, 1), check_float("gamma", gamma, 0.0, 1.0),
            check_float("gae_lambda", gae_lambda, 0.0, 1.0), BASELINES[baseline],
        )  # fmt: skip
        coefficients = check_float("ent_coef", ent_coef, 0.0), check_float("vf_coef", vf_coef, 0.0)
        normalizes = check_bool("normalize_advantage", normalize_advantage)
        if not learns_value and (episodes.lambda_ != 1.0 or coefficients[1] != VF_COEF):
            raise ConfigurationError(
                f"gae_lambda={gae_lambda} and vf_coef={vf_coef} with baseline={baseline!r}: no value is learned that they "
                f"could speak of; leave them out, or give baseline='value'"
            )
        if baseline == "step_mean" and episodes.episodes_per_update == 1:
            raise ConfigurationError(
                "baseline='step_mean' with episodes_per_update=1 compares an episode with itself, so nothing is learned; "
                "give at least 2 episodes, or baseline='mean_return'"
            )
        critic, none = ActorCritic(*coefficients, normalizes), PolicyGradient(coefficients[0], normalizes)
        super().__init__(
            policy, env, arguments=arguments, rollout=episodes, objective=critic if learns_value else none,
            optimizer_class=torch.optim.Adam, optimizer_kwargs={}, learns_value=learns_value,
        )  # fmt: skip
