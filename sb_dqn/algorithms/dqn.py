"""DQN (Mnih et al. 2015, doi 10.1038/nature14236), with its later extensions as switches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from typing_extensions import Unpack

from sb_dqn.buffers.sequences import Sequences
from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_switch
from sb_dqn.core.construction import QPolicyConfig, TrainingConfig, epsilon_schedule
from sb_dqn.core.keywords import OffPolicyKeywords, value_bins, with_defaults
from sb_dqn.core.off_policy_algorithm import OffPolicyAlgorithm
from sb_dqn.core.replay_config import ReplayConfig, TargetConfig, update_schedule
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration import Exploration, as_exploration
from sb_dqn.losses.transforms import IDENTITY, ValueTransform
from sb_dqn.nn.ensemble import Ensemble
from sb_dqn.nn.heads.categorical import Categorical
from sb_dqn.nn.heads.scalar import Distribution, Scalar
from sb_dqn.nn.layers.linear import Noisy
from sb_dqn.objectives.bootstrap import Bootstrap, Munchausen
from sb_dqn.objectives.conservative import ConservativeObjective
from sb_dqn.objectives.ensemble import EnsembleObjective
from sb_dqn.objectives.q_learning import LOSSES, QLearning
from sb_dqn.objectives.recurrent import RecurrentReplayObjective
from sb_dqn.objectives.self_prediction import SelfPrediction, SelfPredictionObjective
from sb_dqn.objectives.shared_heads import SharedHeads
from sb_dqn.policies import QPolicy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.schedules import Annealed, ScheduleLike
from sb_dqn.types import EnvLike, Objective, Settings

DISTRIBUTIONAL_LOSS = {
    "loss": "Remove it: it is for scalar values, and the class has its own loss",
    "value_loss": "Remove it: it is for scalar values, and the class has its own loss",
    "return_model": "Remove it: the class has its own",
}
"""Keywords of DQN that algorithms with another head or loss replace."""


@dataclass(frozen=True)
class ReturnModel:
    """The model of the return that a Q-learning algorithm learns: its head and its loss.

    Args:
        distribution: makes the head.
        objective: makes the loss from the bootstrap that `double_q` and `munchausen` define.
        transform: transform of the values that the network learns.
        td_priority: True if the objective's "priority" is an absolute TD error in units of values. If None, it is one unless
            the head is categorical.
    """

    distribution: Distribution
    objective: Callable[[Bootstrap], Objective]
    transform: ValueTransform = IDENTITY
    td_priority: bool | None = None

    @property
    def feeds_td_errors(self) -> bool:
        """`td_priority`, or its default if it is None."""
        return not isinstance(self.distribution, Categorical) if self.td_priority is None else self.td_priority


class DQNKeywords(OffPolicyKeywords, total=False):
    """Keywords of `DQN`, for its variants; meanings and defaults are those of `DQN`."""

    learning_rate: ScheduleLike
    buffer_size: int
    learning_starts: int
    batch_size: int
    tau: float
    gamma: float | Settings | Annealed
    train_freq: int | tuple[int, str]
    gradient_steps: int
    n_steps: int | Settings | Annealed
    target_update_interval: int
    exploration_fraction: float
    exploration_initial_eps: float
    exploration_final_eps: float
    max_grad_norm: float | None
    double_q: bool
    dueling: bool
    noisy: bool | str | Settings
    munchausen: bool | Settings
    sequences: Settings | Sequences | None
    loss: str
    value_loss: bool | str | Settings
    exploration: str | Settings | Callable[..., Exploration] | None
    evaluation_eps: float | None
    policy_kwargs: Settings | None
    precision: str
    act_with: str
    self_prediction: bool | Settings
    target: str
    iterations: int
    ensemble: bool | int | Settings
    cql_alpha: float


TARGETS = ("copy", "shared")


class DQN(OffPolicyAlgorithm):
    """Deep Q-network: Q-learning with replay and a target network; later extensions are switches.

    Counts of steps are env steps over all lanes.

    Args:
        policy: "MlpPolicy", "CnnPolicy", "MultiInputPolicy", a recurrent one ("MlpLstmPolicy", ...), or a subclass of QPolicy.
        env: id, gymnasium.Env, list of factories, gymnasium VectorEnv, EnvPool env or Stable-Baselines3 VecEnv. Action space:
            Discrete, MultiDiscrete or MultiBinary.
        learning_rate: learning rate, above 0, or a schedule.
        buffer_size: capacity in rows (env steps) over all lanes.
        learning_starts: env steps before the first update; actions are uniformly random until then.
        batch_size: transitions per update, drawn with replacement; sequences if the policy is recurrent.
        tau: share of the online parameters in each target update, [0, 1]; 1 copies them, and 0 never changes the target
            network.
        gamma: discount, [0, 1], or a dict of `start`, `end`, `updates`, see `Annealed`.
        train_freq: env steps between updates, or (k, "episode").
        gradient_steps: number of updates each time; -1 makes one per env step, and 0 makes none.
        n_steps: number of rewards before the bootstrap, n, or a dict of `start`, `end`, `updates`, see `Annealed`.
        target_update_interval: env steps between target updates.
        exploration_fraction: share of `total_timesteps` over which epsilon decreases, [0, 1].
        exploration_initial_eps, exploration_final_eps: epsilon at the start and at the end, [0, 1].
        max_grad_norm: bound on the 2-norm of the gradient. If None, the gradient is not clipped.
        double_q: double Q-learning: the online network selects the next action, the target network evaluates it (arXiv
            1509.06461).
        dueling: separate streams for state value and action advantages (arXiv 1511.06581).
        noisy: exploration by noise in the weights (arXiv 1706.10295): True or "factorised", "independent", or a dict of
            `kind` and `sigma`.
        munchausen: log-policy bonus and soft value (arXiv 2007.14430): True, or a dict of `alpha`, `tau`, `clip`.
        sequences: training sequences of a recurrent policy: a dict of `batch_T`, `warmup_T`, `store_rnn_state_interval`,
            `eta`, `input_priorities`, `input_priority_shift`. If None, they are the defaults of `Sequences`.
        loss: "huber" or "mse"; only for scalar values.
        value_loss: values by classification (arXiv 2403.03950): True or "hl_gauss", "two_hot", or a dict of `kind`, `bins`, `v_min`,
            `v_max`, `transform`, see `Bins`; False learns by regression with `loss`.
        exploration: "epsilon", "boltzmann", "none" (greedy), or a dict of `kind`, `schedule`, `ladder`, `ladder_alpha`, `ladder_min`,
            `off_after`, `temperature`, or a subclass of `Exploration`. If None, it is "epsilon", or "none" with `noisy` or `ensemble`.
        evaluation_eps: epsilon of `predict(deterministic=False)`. If None, it is the current epsilon.
        policy_kwargs: keywords of the policy, `optimizer_class` and `optimizer_kwargs`.
        precision: "fp32", or "bf16": bfloat16 forward and backward with float32 master weights; "auto": "bf16" where the device
            of the networks has instructions for it, else "fp32".
        act_with: "online", or "target": the target network, whose actions change less from update to update, acts in training and
            in `predict` (arXiv 2305.19452).
        self_prediction: the network also predicts its own latent states K steps ahead (arXiv 2007.05929): True, or a dict of `steps`,
            `weight`.
        target: "copy", a second network; or "shared", further heads of the same network (arXiv 2506.04398), each of which is the
            target of the next and becomes it every `target_update_interval` env steps.
        iterations: number K of heads that learn with target="shared", each the Bellman update of the one before. While
            learning, each action is that of a random head; `predict` and `q_values` read the last head.
        ensemble: bootstrapped DQN (arXiv 1602.04621, with priors: 1806.03335): several members on the same features, of which one acts
            until the end of an episode, so that exploration is consistent over many steps; `predict` and `q_values` take their
            mean. True, a number of members, or a dict of `members`, `prior_scale`, `share`, see `Ensemble`.
        cql_alpha: weight of the penalty of conservative Q-learning (arXiv 2006.04779), >= 0; for recorded data: it lowers the values
            of actions that the data does not contain.
        return_model: head and loss, for subclasses. If None, the network learns the expected return, by `loss`.
        shared: see `OffPolicyKeywords`.

    Raises:
        ConfigurationError: an argument is out of range or has the wrong type, or a keyword is unknown.
        SpaceError: the observation or action space is not supported.
        MemoryBudgetError: the replay does not fit into memory.
    """

    exploration: Exploration
    policy: QPolicy
    defaults: ClassVar[DQNKeywords] = {}
    spread_updates: ClassVar[bool] = False
    """If True, each update is made as soon as its share of `train_freq` env steps is done, and not all of them at their
    end."""

    def __init__(
        self,
        policy: str | type[QPolicy],
        env: EnvLike,
        learning_rate: ScheduleLike = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float | Settings | Annealed = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        n_steps: int | Settings | Annealed = 1,
        target_update_interval: int = 10_000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float | None = 10.0,
        double_q: bool = False,
        dueling: bool = False,
        noisy: bool | str | Settings = False,
        munchausen: bool | Settings = False,
        sequences: Settings | Sequences | None = None,
        loss: str = "huber",
        value_loss: bool | str | Settings = False,
        exploration: str | Settings | Callable[..., Exploration] | None = None,
        evaluation_eps: float | None = None,
        policy_kwargs: Settings | None = None,
        precision: str = "fp32",
        *,
        act_with: str = "online",
        self_prediction: bool | Settings = False,
        target: str = "copy",
        iterations: int = 1,
        ensemble: bool | int | Settings = False,
        cql_alpha: float = 0.0,
        return_model: ReturnModel | None = None,
        **shared: Unpack[OffPolicyKeywords],
    ) -> None:
        if return_model is not None and loss != "huber":
            raise ConfigurationError(
                f"loss must be unset with return_model, which has its own loss, got {loss!r}. Remove it."
            )
        keywords = with_defaults(OffPolicyKeywords, shared)
        bins = value_bins(value_loss, keywords)
        if bins is not None and return_model is None and loss != "huber":
            raise ConfigurationError(
                f"loss must be unset with value_loss, whose loss is the cross-entropy, got {loss!r}. Remove it."
            )
        model = return_model or ReturnModel(
            bins or Scalar(), partial(QLearning, loss=check_choice("loss", loss, LOSSES))
        )
        training = TrainingConfig.from_keywords(
            keywords, learning_rate=learning_rate, max_grad_norm=max_grad_norm, precision=precision
        )
        noise = check_switch("noisy", noisy, Noisy, text="kind")
        bootstrap = Bootstrap(check_bool("double_q", double_q), check_switch("munchausen", munchausen, Munchausen))
        conservative = check_float("cql_alpha", cql_alpha, 0.0)
        prediction = check_switch("self_prediction", self_prediction, SelfPrediction)
        acts = check_choice("act_with", act_with, ("online", "target"))
        heads = shared_heads(target, iterations, acts)
        several = check_switch("ensemble", ensemble, Ensemble, number="members")
        network = QNetworkConfig(
            model.distribution, check_bool("dueling", dueling), noise, acts, prediction is not None, heads, several
        )
        policy_config = QPolicyConfig(policy, policy_kwargs, network, has_target=not heads)
        if several is not None:
            refuse_with_ensemble(
                policy,
                policy_config.policy.recurrent,
                noisy=noisy,
                target=target,
                self_prediction=self_prediction,
                redo=keywords["redo"],
            )
        if heads and policy_config.policy.recurrent:
            raise ConfigurationError(
                f"policy must be feed-forward with target='shared', got {policy!r}: the targets of a sequence have a recurrent "
                f"state of their own. Use 'MlpPolicy', 'CnnPolicy' or 'MultiInputPolicy', or set target='copy'."
            )
        chosen = exploration if exploration is not None else "none" if noise or several else "epsilon"
        epsilon = epsilon_schedule(exploration_initial_eps, exploration_final_eps, exploration_fraction)
        replay = ReplayConfig.from_keywords(
            keywords,
            buffer_size=buffer_size,
            batch_size=batch_size,
            n_steps=n_steps,
            gamma=gamma,
            schedule=update_schedule(train_freq, gradient_steps, learning_starts, self.spread_updates),
            sequences=policy_config.sequences(sequences),
            transform=model.transform,
            td_priority=model.feeds_td_errors,
            future=0 if prediction is None else prediction.steps,
        )
        objective = model.objective(bootstrap)
        if conservative:
            objective = ConservativeObjective(objective, conservative)
        if heads:
            objective = SharedHeads(objective, heads)
        if several is not None:
            objective = EnsembleObjective(objective, several)
        if prediction is not None:
            objective = SelfPredictionObjective(objective, prediction)
        if replay.sequences is not None:
            objective = RecurrentReplayObjective(objective, replay.sequences, bootstrap.double_q)
        super().__init__(
            env,
            policy=policy_config,
            training=training,
            objective=lambda _: objective,
            replay=replay,
            target=TargetConfig(tau, target_update_interval, shared=heads > 0),
            exploration=as_exploration(chosen, epsilon, evaluation_eps),
            keywords=keywords,
        )


def shared_heads(target: object, iterations: object, act_with: str) -> int:
    """Returns the number of heads that learn, with a further one as the first target, or 0 if the target is another network.

    Raises:
        ConfigurationError: a value is out of its range, `iterations` is set without target="shared", or `act_with` names a
            network that does not exist.
    """
    count = check_int("iterations", iterations, 1)
    if check_choice("target", target, TARGETS) == "shared":
        if act_with == "target":
            raise ConfigurationError(
                "act_with must be 'online' with target='shared', which has no target network, got 'target'. Remove it, or set "
                "target='copy'."
            )
        return count
    if count > 1:
        raise ConfigurationError(
            f"iterations must be 1 with target='copy', which is the target of one head, got {count}. Set target='shared'."
        )
    return 0


SINGLE_NETWORK: Settings = {"noisy": False, "target": "copy", "self_prediction": False, "redo": False}
"""Values of the switches that an ensemble does not have."""


def refuse_with_ensemble(policy: object, recurrent: bool, **switches: object) -> None:
    """Refuses what an ensemble does not have.

    Args:
        policy: as `DQN`.
        recurrent: True if the policy is recurrent.
        switches: values of the keywords in `SINGLE_NETWORK`.

    Raises:
        ConfigurationError: the policy is recurrent, or a switch is on.
    """
    if recurrent:
        raise ConfigurationError(
            f"policy must be feed-forward with ensemble, got {policy!r}. Use 'MlpPolicy', 'CnnPolicy' or 'MultiInputPolicy', or set "
            f"ensemble=False."
        )
    for name, off in SINGLE_NETWORK.items():
        if switches[name] != off:
            raise ConfigurationError(
                f"{name} must be {off!r} with ensemble, got {switches[name]!r}. Set {name}={off!r} or ensemble=False."
            )
