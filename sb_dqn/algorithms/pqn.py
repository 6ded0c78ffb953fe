"""PQN (Gallici et al. 2024, arXiv 2407.04811): Q-learning from rollouts, without a replay and without a target net."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt
import torch

from sb_dqn.accelerate import choose_mode
from sb_dqn.buffers.rollout_buffer import Before
from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_mapping, check_path
from sb_dqn.core.arguments import open_outside, refuse_unknown, resolve_device
from sb_dqn.core.construction import QPolicyConfig, epsilon_schedule, gradient_bound, random_streams
from sb_dqn.core.learner import Learner
from sb_dqn.core.on_policy_algorithm import Declared, OnPolicyAlgorithm, RolloutConfig
from sb_dqn.core.predictor import GreedyActor
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration import Exploration, as_exploration
from sb_dqn.normalize import NormalizationConfig
from sb_dqn.objectives.q_lambda import QLambda
from sb_dqn.policies import QPolicy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.schedules import as_schedule
from sb_dqn.types import BoolArray, IntArray, Observation


class PQN(OnPolicyAlgorithm):
    """Parallelised Q-network: many lanes, Peng's Q(lambda), layer norm in place of a target net, RAdam.

    Targets are computed once per rollout, before its first update, by the weights that acted. The defaults are those of
    the paper for Atari; it wants many lanes (128 there, 32 for CartPole). All counts of steps are env steps over all lanes,
    `n_steps` alone counts ticks.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of QPolicy.
        env: an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv, an EnvPool env, or a Stable-Baselines3
            VecEnv.
        learning_rate: above 0, or a schedule.
        n_steps: ticks between updates: a rollout has n_steps x lanes rows, a reset that takes a tick being one.
        batch_size: most samples of an update; minibatches are as equal as they can be.
        n_epochs: updates that each sample takes part in.
        gamma: discount, [0, 1].
        q_lambda: the lambda of Q(lambda), [0, 1]: 0 bootstraps after one step, 1 at the end of the rollout.
        exploration_fraction: share of `total_timesteps` over which epsilon falls.
        exploration_initial_eps, exploration_final_eps: epsilon before and after, [0, 1].
        max_grad_norm: bound on the gradient's 2-norm; None: none.
        dueling: value of the state and advantages of the actions in two streams (arXiv 1511.06581).
        loss: "mse" or "huber".
        exploration: "epsilon", "boltzmann", or a dict; see DQN.
        evaluation_eps: epsilon of `predict(deterministic=False)`; None: the current one.
        action_mask: where legal actions are named: "info" (`info["action_mask"]`) or a key of a Dict observation.
        normalize_observations: running mean and deviation of each number of a Box of floats, saved with the model: True, or
            a dict of `clip`, `epsilon`, `keys`.
        normalize_rewards: divide rewards by the deviation of the running return: True, or a dict of `clip`, `epsilon`.
        stats_window_size: episodes in the running means.
        tensorboard_log: folder for TensorBoard files.
        policy_kwargs: keywords of the policy; `layer_norm` is True and `optimizer_class` is RAdam if they do not say
            otherwise.
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

    exploration: Exploration
    policy: QPolicy

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        learning_rate: Any = 2.5e-4,
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
        exploration: str | Mapping[str, Any] = "epsilon",
        evaluation_eps: float | None = None,
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
        rate = as_schedule("learning_rate", learning_rate)
        epsilon = epsilon_schedule(exploration_initial_eps, exploration_final_eps, exploration_fraction)
        acting = as_exploration(exploration, epsilon, evaluation_eps)
        rollout = RolloutConfig(
            check_int("n_steps", n_steps, 1), check_int("n_epochs", n_epochs, 1), check_int("batch_size", batch_size, 1),
            check_float("gamma", gamma, 0.0, 1.0), check_float("q_lambda", q_lambda, 0.0, 1.0), "q_lambda",
        )  # fmt: skip
        normalization = NormalizationConfig(normalize_observations, normalize_rewards, rollout.gamma)
        objective = QLambda(loss)
        norm = gradient_bound(max_grad_norm)
        check_choice("precision", precision, ("fp32", "bf16"))
        torch_device = resolve_device(device)
        rng = random_streams(seed, torch_device)
        chosen = {
            "layer_norm": True,
            "optimizer_class": torch.optim.RAdam,
            **check_mapping("policy_kwargs", policy_kwargs),
        }
        plan = QPolicyConfig(policy, chosen, QNetworkConfig(dueling=check_bool("dueling", dueling)))
        if plan.policy.recurrent:
            raise ConfigurationError(
                f"policy={policy!r} is not for PQN, whose rollouts are shuffled; use R2D2, or another Q-agent with a replay"
            )

        blueprint, stream = open_outside(env, action_mask)
        nets = plan.build(blueprint, rng, torch_device)
        del nets.q_net_target  # nothing bootstraps from it, nothing need be saved of it
        super().__init__(
            arguments=arguments,
            blueprint=blueprint,
            policy=nets,
            learner=Learner(
                nets.q_net,
                None,
                objective,
                batch_size,
                **plan.optimizer,
                max_grad_norm=norm,
                precision=precision,
            ),
            exploration=acting.build(nets.actions, blueprint.num_envs, rng.explore),
            rng=rng,
            rollout=rollout,
            learning_rate=rate,
            stream=stream,
            verbose=verbose,
            tensorboard_log=check_path("tensorboard_log", tensorboard_log),
            stats_window_size=stats_window_size,
            mode=choose_mode([nets], torch_device, check_bool("torch_compile", torch_compile)),
            normalizer=normalization.build(blueprint, torch_device),
        )

    def prepare_acting(self, num_lanes: int) -> None:
        self.exploration.num_lanes = num_lanes
        self._net = GreedyActor(self.policy, self.acting_mode, values=True, see=self.normalizer.observations)

    def act(self, obs: Observation, mask: BoolArray | None) -> tuple[IntArray, Declared]:
        self.exploration.advance(self.num_timesteps, self.counters.horizon)
        q = self._net(obs, mask)  # [B, (D,) A]
        action = self.exploration.select(lambda: q if self.exploration.needs_values else q.argmax(-1), mask)
        return action, {"value": _best(q)}

    def values(self, obs: Observation, mask: BoolArray | None, before: Before | None = None) -> npt.NDArray[Any]:
        return _best(self._net(obs, mask))

    def log_facts(self) -> dict[str, float]:
        return {**super().log_facts(), "rollout/exploration_rate": self.exploration.rate}

    @property
    def exploration_rate(self) -> float:
        """Epsilon, on a ladder the mean over the lanes; the temperature of Boltzmann exploration."""
        return self.exploration.rate


def _best(q: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`[B, A]` -> `[B]`, the value of the best action; of several branches `[B, D, A]` the mean of theirs."""
    best: npt.NDArray[Any] = q.max(-1)
    return best.mean(-1) if best.ndim > 1 else best
