"""DQN (Mnih et al. 2015, doi 10.1038/nature14236), with what was added to it as switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sb_dqn.accelerate import choose_mode
from sb_dqn.algorithms.off_policy import OffPolicyAlgorithm, ReplaySettings, TargetSettings, cadence
from sb_dqn.algorithms.outside import open_outside, refuse_unknown, resolve_device
from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_path
from sb_dqn.exploration import EpsilonGreedy
from sb_dqn.learner import Learner
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import VALUE_POLICIES, QPolicy, policy_class, split_policy_kwargs
from sb_dqn.rng import Generators, torch_seeded
from sb_dqn.schedules import Linear, as_schedule


class DQN(OffPolicyAlgorithm):
    """Deep Q-network: epsilon-greedy acting, uniform replay, a target net.

    All counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", or a subclass of QPolicy.
        env: an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv, an EnvPool env, or a Stable-Baselines3
            VecEnv.
        learning_rate: above 0, or a schedule.
        buffer_size: rows over all lanes.
        learning_starts: steps before the first update; actions are uniform until then.
        batch_size: transitions per update.
        tau: share by which the target net follows, (0, 1]; 1 copies.
        gamma: discount, [0, 1].
        train_freq: steps between updates, or (k, "episode").
        gradient_steps: updates each time; -1: as many as steps.
        n_steps: rewards summed before the bootstrap.
        target_update_interval: steps between target updates.
        exploration_fraction: share of `total_timesteps` over which epsilon falls.
        exploration_initial_eps, exploration_final_eps: epsilon before and after, [0, 1].
        max_grad_norm: bound on the gradient's 2-norm; None: none.
        double_q: the online net selects the action that the target net evaluates (arXiv 1509.06461).
        loss: "huber" or "mse".
        stats_window_size: episodes in the running means.
        tensorboard_log: folder for TensorBoard files.
        policy_kwargs: keywords of the policy; optimizer_class and optimizer_kwargs too.
        verbose: 0 silent, 1 logs to stdout.
        seed: of all random streams; None draws one.
        device: "auto", "cpu", "cuda", "cuda:1".
        precision: "fp32", or "bf16": low-precision forward and backward, float32 masters.
        torch_compile: run the update through torch.compile (needs a C++ compiler; takes a while to start).
        buffer_device: where the replay lies; None: where the nets are.
        buffer_path: file to keep the replay in instead of memory.

    Raises:
        ConfigurationError: an argument is out of its range or of the wrong kind, or a keyword is unknown.
        SpaceError: a space is not supported.
        MemoryBudgetError: the replay does not fit.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: Any,
        learning_rate: Any = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        n_steps: int = 1,
        target_update_interval: int = 10_000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float | None = 10.0,
        double_q: bool = False,
        loss: str = "huber",
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: Any = "auto",
        precision: str = "fp32",
        torch_compile: bool = False,
        buffer_device: str | None = None,
        buffer_path: str | None = None,
        **unknown: Any,
    ) -> None:
        arguments = {
            name: value for name, value in locals().items() if name not in ("self", "env", "unknown", "__class__")
        }
        refuse_unknown(type(self), unknown)
        rate = as_schedule("learning_rate", learning_rate)
        epsilon = Linear(
            check_float("exploration_initial_eps", exploration_initial_eps, 0.0, 1.0),
            check_float("exploration_final_eps", exploration_final_eps, 0.0, 1.0),
            fraction=check_float("exploration_fraction", exploration_fraction, 0.0, 1.0),
        )
        replay = ReplaySettings(
            check_int("buffer_size", buffer_size, 1),
            None if buffer_device is None else resolve_device(buffer_device, "buffer_device"),
            check_path("buffer_path", buffer_path),
            check_int("batch_size", batch_size, 1), check_int("n_steps", n_steps, 1), check_float("gamma", gamma, 0.0, 1.0),
            cadence(train_freq, gradient_steps, learning_starts),
        )  # fmt: skip
        target = TargetSettings(
            check_float("tau", tau, 0.0, 1.0, above=True),
            check_int("target_update_interval", target_update_interval, 1),
        )
        objective = QLearning(check_bool("double_q", double_q), loss)
        norm = None if max_grad_norm is None else check_float("max_grad_norm", max_grad_norm, 0.0, above=True)
        check_choice("precision", precision, ("fp32", "bf16"))
        torch_device = resolve_device(device)
        rng = Generators(
            None if seed is None else check_int("seed", seed, 0, 2**63 - 1),
            torch_device,
            resolve_device(buffer_device) if buffer_device else torch_device,
        )
        chosen = policy_class(policy, VALUE_POLICIES)
        policy_arguments, optimizer = split_policy_kwargs(chosen, policy_kwargs)

        blueprint, stream = open_outside(env)
        with torch_seeded(rng.init_seed):
            nets = chosen(blueprint.observation_space, blueprint.action_space, **policy_arguments).to(torch_device)
        super().__init__(
            arguments=arguments,
            blueprint=blueprint,
            policy=nets,
            learner=Learner(
                nets.q_net, nets.q_net_target, objective, **optimizer, max_grad_norm=norm, precision=precision
            ),
            exploration=EpsilonGreedy(epsilon, nets.num_actions, blueprint.num_envs, rng.explore),
            rng=rng,
            replay=replay,
            target=target,
            learning_rate=rate,
            stream=stream,
            verbose=verbose,
            tensorboard_log=check_path("tensorboard_log", tensorboard_log),
            stats_window_size=stats_window_size,
            mode=choose_mode([nets], torch_device, check_bool("torch_compile", torch_compile)),
        )


class DoubleDQN(DQN):
    """DQN with double Q-learning (van Hasselt et al. 2016, arXiv 1509.06461)."""

    def __init__(self, policy: str | type[QPolicy], env: Any, *, double_q: bool = True, **kwargs: Any) -> None:
        super().__init__(policy, env, double_q=double_q, **kwargs)


class NStepDQN(DQN):
    """DQN with three-step returns (Sutton 1988; in DQN: Hessel et al. 2018, arXiv 1710.02298)."""

    def __init__(self, policy: str | type[QPolicy], env: Any, *, n_steps: int = 3, **kwargs: Any) -> None:
        super().__init__(policy, env, n_steps=n_steps, **kwargs)
