"""Vanilla policy gradient: REINFORCE, with each return less a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.buffers.episode_buffer import Baseline
from sb_dqn.checks import check_bool, check_choice, check_float, check_int
from sb_dqn.core.actor_critic_algorithm import ActorCriticAlgorithm
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.episode_config import EpisodeConfig
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


class VPG(ActorCriticAlgorithm):
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

    default_log_interval = 10

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
        has_critic = check_choice("baseline", baseline, BASELINES) == "value"
        episodes = EpisodeConfig(
            episodes_per_update=check_int("episodes_per_update", episodes_per_update, 1),
            gamma=check_float("gamma", gamma, 0.0, 1.0),
            lambda_=check_float("gae_lambda", gae_lambda, 0.0, 1.0),
            baseline=BASELINES[baseline],
        )
        entropy_weight = check_float("ent_coef", ent_coef, 0.0)
        value_weight = check_float("vf_coef", vf_coef, 0.0)
        normalize = check_bool("normalize_advantage", normalize_advantage)
        if not has_critic and (episodes.lambda_ != 1.0 or value_weight != VF_COEF):
            raise ConfigurationError(
                f"baseline={baseline!r} has no critic, so gae_lambda={gae_lambda} and vf_coef={vf_coef} have no effect. Remove "
                f"them, or set baseline='value'."
            )
        if baseline == "step_mean" and episodes.episodes_per_update == 1:
            raise ConfigurationError(
                "baseline='step_mean' with episodes_per_update=1 compares an episode with itself, so nothing is learned; "
                "give at least 2 episodes, or baseline='mean_return'"
            )
        objective: ActorCritic = PolicyGradient(entropy_weight, normalize)
        if has_critic:
            objective = ActorCritic(entropy_weight, value_weight, normalize)
        super().__init__(
            policy,
            env,
            policy_kwargs=policy_kwargs,
            training=training,
            rollout=episodes,
            objective=objective,
            has_critic=has_critic,
        )
