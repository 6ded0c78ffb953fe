"""DQN (Mnih et al. 2015, doi 10.1038/nature14236), with what was added to it as switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from sb_dqn.accelerate import Mode, choose_mode
from sb_dqn.algorithms.lane_memory import LaneMemory
from sb_dqn.algorithms.off_policy import OffPolicyAlgorithm
from sb_dqn.algorithms.outside import open_outside, refuse_unknown, remembered, resolve_device
from sb_dqn.algorithms.parts import NetPlan, epsilon_schedule, gradient_bound, random_streams
from sb_dqn.algorithms.prediction import GreedyActor
from sb_dqn.algorithms.replay_settings import ReplaySettings, TargetSettings, cadence
from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_path, check_switch
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration import Exploration, as_exploration
from sb_dqn.learner import Learner
from sb_dqn.nn.categorical import Categorical
from sb_dqn.nn.heads import Distribution, Scalar
from sb_dqn.nn.linear import Noisy
from sb_dqn.normalize import Normalization
from sb_dqn.objectives.backup import Backup, Munchausen
from sb_dqn.objectives.q_learning import LOSSES, QLearning
from sb_dqn.objectives.sequence import SequenceObjective
from sb_dqn.policies import QPolicy, RecurrentQPolicy
from sb_dqn.policies.network import Design
from sb_dqn.replay.prioritized import Prioritized
from sb_dqn.replay.sequences import Sequences
from sb_dqn.schedules import as_schedule
from sb_dqn.types import BoolArray, IntArray, Objective, Observation


@dataclass(frozen=True)
class Learned:
    """What is learned of the return; set before `DQN.__init__` by classes that learn more than its mean.

    Args:
        distribution: makes the head.
        objective: from who selects and evaluates the next action to the loss.
        arguments: constructor arguments of the class that chose them, for its checkpoints.
        replaces: arguments of DQN that these stand for.
        rescale_eps: of value rescaling; None: values are returns as they are.
        spread: updates come one by one as they are paid for, see `Cadence`.
        td_priority: the objective's "priority" is an absolute TD error, in the units of values; None: if the head is not categorical.
    """

    distribution: Distribution
    objective: Callable[[Backup], Objective]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    replaces: tuple[str, ...] = ()
    rescale_eps: float | None = None
    spread: bool = False
    td_priority: bool | None = None

    @property
    def feeds_td_errors(self) -> bool:
        """`td_priority`, or what the head says."""
        return not isinstance(self.distribution, Categorical) if self.td_priority is None else self.td_priority


class DQN(OffPolicyAlgorithm):
    """Deep Q-network: epsilon-greedy acting, uniform replay, a target net; every later addition is a switch.

    All counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", one of these with a memory ("MlpLstmPolicy", ...), or a subclass
            of QPolicy.
        env: an id, a gymnasium.Env, a list of factories, a gymnasium VectorEnv, an EnvPool env, or a Stable-Baselines3
            VecEnv.
        learning_rate: above 0, or a schedule.
        buffer_size: rows over all lanes.
        learning_starts: steps before the first update; actions are uniform until then.
        batch_size: transitions per update, drawn with replacement; sequences, if the policy is recurrent.
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
        dueling: value of the state and advantages of the actions in two streams (arXiv 1511.06581).
        noisy: noise in the weights instead of, or beside, epsilon (arXiv 1706.10295): True or "factorised",
            "independent", or a dict of `kind` and `sigma`.
        prioritized_replay: what surprises more is replayed more (arXiv 1511.05952): True, or a dict of `alpha`, `beta`,
            `eps`, `initial`, `uniform_mix`.
        munchausen: a bonus for probable actions and a soft value (arXiv 2007.14430): True, or a dict of `alpha`, `tau`,
            `clip`.
        sequences: of a recurrent policy, how long the sequences are that it is trained on: a dict of `batch_T`, `warmup_T`,
            `store_rnn_state_interval`, `eta`, `input_priorities`, `input_priority_shift`; None: the defaults of `Sequences`.
        loss: "huber" or "mse"; of a scalar value.
        exploration: "epsilon", "boltzmann", "none" (greedy), or a dict of `kind`, `schedule`, `ladder`, `ladder_alpha`, `ladder_min`,
            `off_after`, `temperature`; None: "epsilon", or "none" with `noisy`, whose noise explores.
        evaluation_eps: epsilon of `predict(deterministic=False)`; None: the current one.
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
        buffer_device: where the replay lies; None: where the nets are.
        buffer_path: file to keep the replay in instead of memory.

    Raises:
        ConfigurationError: an argument is out of its range or of the wrong kind, or a keyword is unknown.
        SpaceError: a space is not supported.
        MemoryBudgetError: the replay does not fit.
    """

    learned: Learned | None = None
    further: Mapping[str, Any] = MappingProxyType({})
    """Arguments of a class of your own for its model files, beside Learned's; set before `DQN.__init__`, as that is."""
    exploration: Exploration
    policy: QPolicy

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
        dueling: bool = False,
        noisy: bool | str | Mapping[str, Any] = False,
        prioritized_replay: bool | Mapping[str, Any] = False,
        munchausen: bool | Mapping[str, Any] = False,
        sequences: Mapping[str, Any] | Sequences | None = None,
        loss: str = "huber",
        exploration: str | Mapping[str, Any] | None = None,
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
        buffer_device: str | None = None,
        buffer_path: str | None = None,
        **unknown: Any,
    ) -> None:
        arguments = {
            name: value for name, value in locals().items() if name not in ("self", "env", "unknown", "__class__")
        }
        refuse_unknown(type(self), unknown)
        rate = as_schedule("learning_rate", learning_rate)
        learned = self._learned(loss)
        noise = check_switch("noisy", noisy, Noisy, text="kind")
        backup = Backup(check_bool("double_q", double_q), check_switch("munchausen", munchausen, Munchausen))
        plan = NetPlan(policy, policy_kwargs, Design(learned.distribution, check_bool("dueling", dueling), noise))
        if exploration is None:
            exploration = "none" if noise else "epsilon"
        epsilon = epsilon_schedule(exploration_initial_eps, exploration_final_eps, exploration_fraction)
        acting = as_exploration(exploration, epsilon, evaluation_eps)
        replay = ReplaySettings(
            check_int("buffer_size", buffer_size, 1),
            None if buffer_device is None else resolve_device(buffer_device, "buffer_device"),
            check_path("buffer_path", buffer_path),
            check_int("batch_size", batch_size, 1), check_int("n_steps", n_steps, 1), check_float("gamma", gamma, 0.0, 1.0),
            cadence(train_freq, gradient_steps, learning_starts, learned.spread),
            check_switch("prioritized_replay", prioritized_replay, Prioritized),
            plan.sequences(sequences), learned.rescale_eps, learned.feeds_td_errors,
        )  # fmt: skip
        normalization = Normalization(normalize_observations, normalize_rewards, replay.gamma)
        target = TargetSettings(
            check_float("tau", tau, 0.0, 1.0, above=True),
            check_int("target_update_interval", target_update_interval, 1),
        )
        norm = gradient_bound(max_grad_norm)
        check_choice("precision", precision, ("fp32", "bf16"))
        torch_device = resolve_device(device)
        rng = random_streams(seed, torch_device, buffer_device)

        blueprint, stream = open_outside(env, action_mask)
        nets = plan.build(blueprint, rng, torch_device)
        objective = learned.objective(backup)
        if replay.sequences is not None:
            objective = SequenceObjective(objective, replay.sequences, backup.double_q)
        super().__init__(
            arguments=remembered(type(self), arguments, learned.replaces, {**learned.arguments, **self.further}),
            blueprint=blueprint,
            policy=nets,
            learner=Learner(
                nets.q_net, nets.q_net_target, objective, replay.losses, **plan.optimizer,
                max_grad_norm=norm, precision=precision,
            ),
            exploration=acting.build(nets.actions, blueprint.num_envs, rng.explore),
            rng=rng, replay=replay, target=target, learning_rate=rate, stream=stream, verbose=verbose,
            tensorboard_log=check_path("tensorboard_log", tensorboard_log),
            stats_window_size=stats_window_size,
            mode=plan.mode(nets, torch_device, check_bool("torch_compile", torch_compile)),
            normalizer=normalization.build(blueprint, torch_device, replay.buffer_device),
        )  # fmt: skip

    def prepare_acting(self, num_lanes: int) -> None:
        low = self.learner.low is not None and self._large
        policy = self.policy.with_net(self.learner.online) if low else self.policy
        if isinstance(policy, RecurrentQPolicy):
            mode = "eager" if self._large else choose_mode([policy], self.device, torch_compile=False)
            self.memory = LaneMemory(policy, num_lanes, mode, self.rng.noise, self.normalizer.observations)
        self._make_net = partial(
            GreedyActor, policy, values=self.exploration.needs_values, generator=self.rng.noise,
            see=self.normalizer.observations,
        )  # fmt: skip
        self._net: dict[Mode, GreedyActor] = {}
        self.exploration.num_lanes = num_lanes

    def act(self, observe: Callable[[], Observation], mask: BoolArray | None) -> IntArray:
        self.exploration.advance(self.num_timesteps, self.counters.horizon)
        return self.exploration.select(lambda: self._answer(observe, mask), mask)

    def _answer(self, observe: Callable[[], Observation], mask: BoolArray | None) -> npt.NDArray[Any]:
        if self.memory is None:
            mode = self.acting_mode if self.mode == "compiled" else self.update_mode
            if mode not in self._net:  # a large net is recorded for acting when its updates are
                self._net = {mode: self._make_net(mode)}
            return self._net[mode](observe(), mask)
        return self.memory.values if self.exploration.needs_values else self.memory.values.argmax(-1)

    def log_facts(self) -> dict[str, float]:
        return {"rollout/exploration_rate": self.exploration.rate, **super().log_facts()}

    @property
    def exploration_rate(self) -> float:
        """Epsilon, on a ladder the mean over the lanes; the temperature of Boltzmann exploration."""
        return self.exploration.rate

    def _learned(self, loss: str) -> Learned:
        scalar = Learned(Scalar(), partial(QLearning, loss=check_choice("loss", loss, LOSSES)))
        if self.learned is not None and loss != "huber":
            raise ConfigurationError(
                f"loss={loss!r} is for a scalar value; {type(self).__name__} has a loss of its own: leave it out"
            )
        return self.learned or scalar
