"""A2C, the synchronous form of A3C (Mnih et al. 2016, arXiv 1602.01783)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from sb_dqn.algorithms import persistence
from sb_dqn.algorithms.actor_critic import ActorCriticAlgorithm
from sb_dqn.algorithms.outside import refuse_unknown
from sb_dqn.algorithms.rollout_settings import RolloutSettings
from sb_dqn.checks import check_bool, check_float, check_int, check_mapping
from sb_dqn.nn.optimizers import RMSpropTFLike
from sb_dqn.objectives.policy_gradient import ActorCritic
from sb_dqn.policies.actor_critic import ActorCriticPolicy


class A2C(ActorCriticAlgorithm):
    """Advantage actor-critic: short rollouts of several lanes, one update of all their samples, then new ones.

    All counts of steps are env steps over all lanes, `n_steps` alone counts ticks.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", one of these with a memory ("MlpLstmPolicy", ...), or a subclass
            of ActorCriticPolicy.
        env: an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv, an EnvPool env, or a Stable-Baselines3
            VecEnv; its actions Discrete, MultiDiscrete, MultiBinary or a Box.
        learning_rate: above 0, or a schedule.
        n_steps: ticks between updates: a rollout has n_steps x lanes rows, a reset that takes a tick being one.
        gamma: discount, [0, 1].
        gae_lambda: of generalised advantages, [0, 1]; 1 is the n-step return less the value.
        ent_coef: reward for entropy, from 0.
        vf_coef: weight of the value's loss, from 0.
        max_grad_norm: bound on the gradient's 2-norm; None: none.
        rms_prop_eps: epsilon of RMSprop, from 0.
        use_rms_prop: torch.optim.RMSprop with alpha 0.99, else Adam; an `optimizer_class` in `policy_kwargs` overrides both.
        normalize_advantage: to mean 0 and deviation 1 over the rollout.
        sequence_length: of a recurrent policy, steps of the sequences that it is trained on, a divisor of n_steps; None: the longest.
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
        MemoryBudgetError: the rollout does not fit.
    """

    default_log_interval = 100

    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: Any,
        learning_rate: Any = 7e-4,
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
        rollout = RolloutSettings(
            check_int("n_steps", n_steps, 1), 1, None, check_float("gamma", gamma, 0.0, 1.0),
            check_float("gae_lambda", gae_lambda, 0.0, 1.0),
        )  # fmt: skip
        objective = ActorCritic(
            check_float("ent_coef", ent_coef, 0.0),
            check_float("vf_coef", vf_coef, 0.0),
            check_bool("normalize_advantage", normalize_advantage),
        )
        eps = check_float("rms_prop_eps", rms_prop_eps, 0.0)
        rms = check_bool("use_rms_prop", use_rms_prop)
        super().__init__(
            policy, env, arguments=arguments, rollout=rollout, objective=objective,
            optimizer_class=torch.optim.RMSprop if rms else torch.optim.Adam,
            optimizer_kwargs={"alpha": 0.99, "eps": eps, "weight_decay": 0.0} if rms else {"eps": 1e-5},
        )  # fmt: skip

    @classmethod
    def loaded_arguments(cls, arguments: dict[str, Any], saved: persistence.Saved) -> dict[str, Any]:
        """Returns the arguments with RMSpropTFLike by name where the file's optimiser is one: it was the default once."""
        arguments = super().loaded_arguments(arguments, saved)
        chosen = check_mapping("policy_kwargs", arguments.get("policy_kwargs"))
        with persistence.reading("the state of 'learner' in the file does not name its optimizer"):
            kind = saved.parts["learner"].get("kind", RMSpropTFLike.__name__)  # the oldest files have no kind
        if kind == RMSpropTFLike.__name__ and arguments.get("use_rms_prop") is True and "optimizer_class" not in chosen:
            own = check_mapping("optimizer_kwargs", chosen.get("optimizer_kwargs"))
            chosen |= {
                "optimizer_class": RMSpropTFLike,
                "optimizer_kwargs": {"alpha": 0.99, "eps": arguments.get("rms_prop_eps", 1e-5), **own},
            }
            return {**arguments, "policy_kwargs": chosen}
        return arguments
