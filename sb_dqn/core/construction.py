"""Parts of a model from constructor arguments: device, random generators, environment, policy, optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from gymnasium import spaces
from typing_extensions import Self

from sb_dqn.accelerate import Mode, are_small, choose_mode
from sb_dqn.actors.launch import open_for_training
from sb_dqn.actors.settings import MAX_LANES, Actors, MadeLanes, as_actors
from sb_dqn.buffers.sequences import Sequences
from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_mapping, check_path, check_switch
from sb_dqn.devices import computes_bfloat16, print_once
from sb_dqn.envs.by_id import open_env
from sb_dqn.envs.streams.open import Stream
from sb_dqn.envs.streams.sb3 import has_stacks_of
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.nn.ensemble import EnsembleOutputs
from sb_dqn.nn.heads.shared import shared_outputs
from sb_dqn.normalize import NormalizationConfig
from sb_dqn.policies import VALUE_POLICIES, QPolicy, policy_class, split_policy_kwargs
from sb_dqn.policies.base import Policy
from sb_dqn.policies.q_network import QNetworkConfig
from sb_dqn.presets.preset_env import PresetEnv
from sb_dqn.rng import Generators, torch_seeded
from sb_dqn.schedules import Linear, Schedule, ScheduleLike, as_schedule
from sb_dqn.spaces import image_channels_last
from sb_dqn.types import Blueprint, EnvLike, Kwargs, Settings

P = TypeVar("P", bound=Policy)
CPU = torch.device("cpu")


@dataclass
class TrainingConfig:
    """Settings that all algorithms share, checked here.

    Args:
        learning_rate: above 0, or a schedule.
        max_grad_norm: bound on the 2-norm of the gradient, above 0; None: no bound.
        action_mask: "info", a key of the observation, or None.
        normalize_observations, normalize_rewards: see `DQN`.
        stats_window_size: episodes in the running means, from 1.
        tensorboard_log: folder, or None.
        verbose: 0, 1, or more.
        seed: from 0, or None.
        device: torch device, or "auto".
        precision: "fp32", "bf16", or "auto".
        torch_compile: compile the update.
        actors: who steps the environments, see `as_actors`.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    learning_rate: ScheduleLike
    max_grad_norm: float | None
    action_mask: str | None
    normalize_observations: bool | Settings
    normalize_rewards: bool | Settings
    stats_window_size: int
    tensorboard_log: str | None
    verbose: int
    seed: int | None
    device: str | torch.device
    torch_compile: bool
    precision: str = "fp32"
    actors: Actors = None

    @classmethod
    def from_keywords(cls, shared: Settings, **own: Any) -> Self:
        """Returns the settings among shared keywords, and those that an algorithm has a default of its own for."""
        names = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in shared.items() if name in names}, **own)

    def __post_init__(self) -> None:
        self.rate_schedule: Schedule = as_schedule("learning_rate", self.learning_rate)
        self.normalization(0.0)
        self.max_grad_norm = _check_norm(self.max_grad_norm)
        self.precision = check_choice("precision", self.precision, ("fp32", "bf16", "auto"))
        self.torch_compile = check_bool("torch_compile", self.torch_compile)
        self.actors = as_actors(self.actors)
        self.verbose = check_int("verbose", self.verbose, 0)
        self.stats_window_size = check_int("stats_window_size", self.stats_window_size, 1)
        self.tensorboard_log = check_path("tensorboard_log", self.tensorboard_log)
        self.seed = None if self.seed is None else check_int("seed", self.seed, 0, 2**63 - 1)
        resolve_device(self.device)

    def choose_device(self, policy: Policy, batch_size: int) -> torch.device:
        """Returns the device of a model with this policy.

        "auto" is the CPU where a CUDA device would be slower: for networks so small that starting an operation takes longer
        than the operation. The first such choice of a process is reported on stderr.

        Args:
            policy: networks on the CPU.
            batch_size: transitions per update.
        """
        found = resolve_device(self.device)
        small = found.type == "cuda" and are_small([policy], CPU, batch_size, counts_recurrent=True)
        if not (small and _is_auto(self.device)):
            return found
        print_once("device='auto' chose the CPU, which is faster for small networks; device='cuda' forces CUDA")
        return CPU

    def choose_precision(self, device: torch.device) -> str:
        """Returns "fp32" or "bf16"; "auto" is "bf16" where the device of the networks has instructions for bfloat16.

        The first choice of "bf16" in a process for a device without them is reported on stderr.
        """
        has_instructions = computes_bfloat16(device)
        if self.precision == "auto":
            return "bf16" if has_instructions else "fp32"
        if self.precision == "bf16" and not has_instructions:
            print_once(
                f"precision='bf16' may be many times slower than 'fp32' here: no instructions for bfloat16 were found on device "
                f"{str(device)!r}; precision='auto' is 'fp32' there"
            )
        return self.precision

    def normalization(self, gamma: float) -> NormalizationConfig:
        """Returns the configuration of normalization for a discount."""
        return NormalizationConfig(self.normalize_observations, self.normalize_rewards, gamma)


def _check_norm(max_grad_norm: object) -> float | None:
    if max_grad_norm is None:
        return None
    try:
        return check_float("max_grad_norm", max_grad_norm, 0.0, above=True)
    except ConfigurationError:
        raise ConfigurationError(
            f"max_grad_norm must be a number > 0, or None for no bound, got {max_grad_norm!r}. Use for example 10.0."
        ) from None


def _is_auto(device: object) -> bool:
    return isinstance(device, str) and device == "auto"


def resolve_device(device: Any, name: str = "device") -> torch.device:
    """Returns the torch device for a name; "auto" is CUDA where available. A CUDA device has a number, as those of tensors.

    Args:
        device: value of the argument.
        name: name of the argument, for messages.

    Raises:
        ConfigurationError: an unknown name, or CUDA where there is none.
    """
    try:
        found = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if _is_auto(device) else device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{name} must be a torch device, got {device!r}. Give 'auto', 'cpu' or 'cuda'."
        ) from error
    if found.type == "meta":
        raise ConfigurationError(f"{name} must be a device with memory, got {device!r}. Give 'auto', 'cpu' or 'cuda'.")
    if found.type == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError(
            f"{name} must be available, got {device!r}: torch {torch.__version__} finds no CUDA device. Give 'auto' or 'cpu'."
        )
    if found == torch.device("cuda"):
        return torch.device("cuda", LearnerGroup.of_process().cuda_index)
    return found


def buffer_device_of(buffer_device: object) -> torch.device | None:
    """Returns the torch device of the argument `buffer_device`; None for None and "auto", the device of the networks."""
    return None if buffer_device is None or _is_auto(buffer_device) else resolve_device(buffer_device, "buffer_device")


def open_environment(
    env: EnvLike, action_mask: str | None = None, actors: Actors = None
) -> tuple[Blueprint, Stream | None]:
    """Returns the spaces of an environment, and the environment as a stream of rows; a `Blueprint` has no stream.

    Args:
        env: environment of any supported kind, or a `Blueprint`.
        action_mask: source of the legal actions: "info", a key of a Dict observation; None: as the environment declares.
        actors: who steps it; for those of other processes a stand-in of the stream is returned.

    Raises:
        ConfigurationError: `env` is None, or no factory where other processes make it.
    """
    if env is None:
        raise ConfigurationError(
            "env must be an id such as 'CartPole-v1', an env or a vector env, got None. Give one of these."
        )
    if isinstance(env, Blueprint):
        return env, None
    stream = open_for_training(actors, env, action_mask)
    return stream.blueprint, stream


def open_training_env(env_id: str, n_envs: int, env_kwargs: Settings, settings: Settings) -> Any:
    """Opens the environment to train on; with actors that make it, a stand-in of their lanes.

    Args:
        env_id: gymnasium id.
        n_envs: number of lanes; with process actors or groups those of `actors`.
        env_kwargs: keywords of the environment.
        settings: arguments of the algorithm.
    """
    actors, action_mask = as_actors(settings.get("actors")), settings.get("action_mask")
    if not isinstance(actors, MadeLanes):
        return open_env(env_id, n_envs, env_kwargs, action_mask)
    return open_for_training(
        actors, partial(open_env, env_id, actors.lanes, dict(env_kwargs), action_mask), action_mask
    )


def environment_for(
    blueprint: Blueprint,
    env: EnvLike,
    action_mask: str | None = None,
    actors: Actors = None,
    preset_env: PresetEnv | None = None,
) -> Any:
    """Returns the stream of an environment for a model that was made for `blueprint`; the blueprint if `env` is None.

    The id of `preset_env` has its keywords, and as many lanes as the model.

    Raises:
        SpaceError: the spaces differ.
    """
    if env is None:
        return blueprint
    if preset_env is not None and preset_env.is_named(env):
        settings = {"actors": actors, "action_mask": action_mask}
        lanes = min(blueprint.num_envs, MAX_LANES)  # a file may ask for any number
        env = open_training_env(preset_env.env_id, lanes, preset_env.keywords, settings)
    stacked = blueprint.frame_stack > 1 or has_stacks_of(env, blueprint)
    frame_stack = blueprint.frame_stack if stacked else None
    stream = open_for_training(actors, env, action_mask, frame_stack)
    for name in ("observation_space", "action_space", "frame_stack"):  # the number of lanes may differ
        ours, theirs = getattr(blueprint, name), getattr(stream.blueprint, name)
        if ours != theirs:
            raise SpaceError(
                f"{name} of the environment must be {ours}, as of the model, got {theirs}. Give such an environment, or make a "
                f"new model for this one."
            )
    return stream


def epsilon_schedule(initial: float, final: float, fraction: float) -> Linear:
    """Returns SB3's three exploration arguments as one schedule.

    Raises:
        ConfigurationError: one of them is not in [0, 1].
    """
    return Linear(
        check_float("exploration_initial_eps", initial, 0.0, 1.0),
        check_float("exploration_final_eps", final, 0.0, 1.0),
        fraction=check_float("exploration_fraction", fraction, 0.0, 1.0),
    )


def adam_eps(policy_kwargs: Settings | None, eps: float) -> Kwargs:
    """Returns `policy_kwargs` with an epsilon for Adam, unless they configure the optimizer."""
    kwargs = check_mapping("policy_kwargs", policy_kwargs)
    if not kwargs.keys() & {"optimizer_class", "optimizer_kwargs"}:
        kwargs["optimizer_kwargs"] = {"eps": eps}
    return kwargs


def own_features(policy: str | type[QPolicy], policy_kwargs: Settings | None, **by_kind: Settings) -> Kwargs:
    """Returns `policy_kwargs` with an algorithm's own features extractor, unless they configure one.

    Args:
        policy: alias or class of a policy of Q-values.
        policy_kwargs: keywords of the policy.
        by_kind: for this library's policies of a kind, "image" or "dict": keywords with the features extractor.
    """
    kwargs, chosen = check_mapping("policy_kwargs", policy_kwargs), policy_class(policy, VALUE_POLICIES, QPolicy)
    if chosen in VALUE_POLICIES.values() and not kwargs.keys() & {
        "features_extractor_class",
        "features_extractor_kwargs",
    }:
        kwargs |= by_kind.get(chosen.kind, {})
    return kwargs


class PolicyConfig(Generic[P]):
    """The networks to make and their optimizer; checked before the environment is opened.

    Args:
        policy: alias or class.
        policy_kwargs: keywords of the policy and of the optimizer.
        aliases: policies by alias.
        family: parent of all policies allowed.
        config: keywords of the policy that the algorithm sets.

    Attributes:
        policy: the class.
        optimizer: keywords of the optimizer.

    Raises:
        ConfigurationError: an unknown alias or keyword.
    """

    def __init__(
        self,
        policy: str | type[P],
        policy_kwargs: Settings | None,
        aliases: Mapping[str, type[P]],
        family: type[P],
        **config: object,
    ) -> None:
        self.policy = policy_class(policy, aliases, family)
        arguments, self.optimizer = split_policy_kwargs(self.policy, policy_kwargs)
        self.arguments = {**arguments, **config}

    def build(self, blueprint: Blueprint, rng: Generators) -> P:
        """Returns the networks for an environment, on the CPU; the generators' `init_seed` determines their weights."""
        arguments = self.arguments
        if blueprint.frame_stack > 1 and ("channels" in arguments or not _reads_channels_first(blueprint)):
            arguments = {**arguments, "channels": "first"}  # the model stacks frames [C, H, W] along their first axis
        with torch_seeded(rng.init_seed):
            return self.policy(blueprint.observation_space, blueprint.action_space, **arguments)

    def mode(self, policy: P, device: torch.device, torch_compile: bool) -> Mode:
        """Returns how updates run. Those of recurrent policies run eagerly on the CPU: a trace would contain each time
        step, and be no faster than torch's kernels for whole sequences, whose results differ by rounding.

        Raises:
            ConfigurationError: `torch_compile` with a recurrent policy.
        """
        if self.policy.recurrent and torch_compile:
            raise ConfigurationError(
                "torch_compile must be False for recurrent policies, got True: the compiler would unroll each step. Remove it."
            )
        if self.policy.recurrent and device.type == "cpu":
            return "eager"
        return choose_mode([policy], device, torch_compile)


def _reads_channels_first(blueprint: Blueprint) -> bool:
    """Returns True where the shape of a frame stack alone says `[C, H, W]`."""
    space = blueprint.observation_space
    try:
        return isinstance(space, spaces.Box) and not image_channels_last(space)
    except SpaceError:
        return False


class QPolicyConfig(PolicyConfig[QPolicy]):
    """The networks of a Q-learning algorithm.

    Args:
        policy: alias or class.
        policy_kwargs: keywords of the policy and of the optimizer.
        network: dueling, noisy, distribution.
        has_target: False for algorithms without a target network.

    Raises:
        ConfigurationError: an unknown alias or keyword.
    """

    def __init__(
        self,
        policy: str | type[QPolicy],
        policy_kwargs: Settings | None,
        network: QNetworkConfig,
        has_target: bool = True,
    ) -> None:
        super().__init__(policy, policy_kwargs, VALUE_POLICIES, QPolicy, config=network)
        self.has_target = has_target

    def build(self, blueprint: Blueprint, rng: Generators) -> QPolicy:
        policy = super().build(blueprint, rng)
        if policy.config.iterations and not shared_outputs(policy.q_net):
            raise ConfigurationError(
                f"{type(policy.q_net).__name__} must have several heads with target='shared', got one. Make it from its `config`, "
                f"with the output layer that `make_head` of the distribution gets, or set target='copy'."
            )
        if policy.config.ensemble and not any(isinstance(part, EnsembleOutputs) for part in policy.q_net.modules()):
            raise ConfigurationError(
                f"{type(policy.q_net).__name__} must have several members with ensemble, got one. Derive it from QNetwork, or set "
                f"ensemble=False."
            )
        if not self.has_target:
            del policy.q_net_target
        return policy

    def sequences(self, sequences: object) -> Sequences | None:
        """Returns the sequences that a recurrent policy learns from; None for a feed-forward policy.

        Raises:
            ConfigurationError: settings for a feed-forward policy, or out of range.
        """
        if not self.policy.recurrent:
            if sequences is not None:
                raise ConfigurationError(
                    f"sequences must be None for feed-forward policies, got {sequences!r}. Remove it, or use "
                    f"policy='MlpLstmPolicy', 'CnnLstmPolicy' or 'MultiInputLstmPolicy'."
                )
            return None
        if sequences is False:
            raise ConfigurationError("sequences must be None or settings for a recurrent policy, got False. Remove it.")
        return check_switch("sequences", True if sequences is None else sequences, Sequences)
