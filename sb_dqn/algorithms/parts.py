"""From scalars at the door to checked parts: what every Q-agent's constructor does alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import torch
from gymnasium import spaces

from sb_dqn.accelerate import Mode, choose_mode
from sb_dqn.algorithms.outside import resolve_device
from sb_dqn.checks import check_float, check_int, check_switch
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.policies import VALUE_POLICIES, QPolicy, policy_class, split_policy_kwargs
from sb_dqn.policies.base import Policy
from sb_dqn.policies.network import Design
from sb_dqn.replay.sequences import Sequences
from sb_dqn.rng import Generators, torch_seeded
from sb_dqn.schedules import Linear
from sb_dqn.spaces import image_channels_last
from sb_dqn.types import Blueprint

P = TypeVar("P", bound=Policy)


def epsilon_schedule(initial: float, final: float, fraction: float) -> Linear:
    """Stable-Baselines3's three arguments as one schedule.

    Raises:
        ConfigurationError: one of them is not in [0, 1], or epsilon would rise.
    """
    found = Linear(
        check_float("exploration_initial_eps", initial, 0.0, 1.0),
        check_float("exploration_final_eps", final, 0.0, 1.0),
        fraction=check_float("exploration_fraction", fraction, 0.0, 1.0),
    )
    if found.rises():
        raise ConfigurationError(
            f"exploration_initial_eps={initial!r} is below exploration_final_eps={final!r}, and exploration never rises; give an "
            f"initial epsilon of at least {final!r}"
        )
    return found


def gradient_bound(max_grad_norm: float | None) -> float | None:
    """A positive number, or None.

    Raises:
        ConfigurationError: neither.
    """
    if max_grad_norm is None:
        return None
    try:
        return check_float("max_grad_norm", max_grad_norm, 0.0, above=True)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}, or None for no bound") from None


def random_streams(seed: int | None, device: torch.device, buffer_device: str | None = None) -> Generators:
    """The random streams of a model, beside its nets and its replay.

    Raises:
        ConfigurationError: the seed is no whole number from 0 up.
    """
    return Generators(
        None if seed is None else check_int("seed", seed, 0, 2**63 - 1),
        device,
        resolve_device(buffer_device, "buffer_device") if buffer_device else device,
    )


class PolicyPlan(Generic[P]):
    """Which nets are to be made; checked before the environment is opened.

    Args:
        policy: alias or class.
        policy_kwargs: of the policy and of the optimiser.
        aliases: of the family of policies.
        family: parent of all its classes.
        further: keywords of the policy that the algorithm decides.

    Raises:
        ConfigurationError: an unknown alias or key.
    """

    def __init__(
        self,
        policy: str | type[P],
        policy_kwargs: Mapping[str, Any] | None,
        aliases: Mapping[str, type[P]],
        family: type[P],
        **further: Any,
    ) -> None:
        self.policy = policy_class(policy, aliases, family)
        arguments, self.optimizer = split_policy_kwargs(self.policy, policy_kwargs)
        self.arguments = {**arguments, **further}

    def build(self, blueprint: Blueprint, rng: Generators, device: torch.device) -> P:
        """The nets for an environment, from the stream of random numbers that initialises."""
        arguments = self.arguments
        if blueprint.frame_stack > 1 and ("channels" in arguments or not _reads_channels_first(blueprint)):
            arguments = {**arguments, "channels": "first"}  # the model stacks frames [C, H, W] along their first axis
        with torch_seeded(rng.init_seed):
            return self.policy(blueprint.observation_space, blueprint.action_space, **arguments).to(device)

    def mode(self, nets: P, device: torch.device, torch_compile: bool) -> Mode:
        """How the update is run. A recording of a sequence holds each of its steps: it takes long to make, and is no
        faster than the kernels that torch has for whole sequences.

        Raises:
            ConfigurationError: `torch_compile` with a recurrent policy.
        """
        if not self.policy.recurrent:
            return choose_mode([nets], device, torch_compile)
        if torch_compile:
            raise ConfigurationError(
                "torch_compile=True is not for recurrent policies: the compiler would unroll each step"
            )
        return "eager"


def _reads_channels_first(blueprint: Blueprint) -> bool:
    """Returns True where the shape of a frame stack alone says `[C, H, W]`."""
    space = blueprint.observation_space
    try:
        return isinstance(space, spaces.Box) and not image_channels_last(space)
    except SpaceError:
        return False


class NetPlan(PolicyPlan[QPolicy]):
    """The nets of a Q-agent.

    Args:
        policy: alias or class.
        policy_kwargs: of the policy and of the optimiser.
        design: dueling, noisy, distribution.

    Raises:
        ConfigurationError: an unknown alias or key.
    """

    def __init__(self, policy: str | type[QPolicy], policy_kwargs: Mapping[str, Any] | None, design: Design) -> None:
        super().__init__(policy, policy_kwargs, VALUE_POLICIES, QPolicy, design=design)

    def sequences(self, given: Any) -> Sequences | None:
        """What a recurrent policy is trained on; None for one without a memory.

        Raises:
            ConfigurationError: settings without a memory, or out of range.
        """
        if not self.policy.recurrent:
            if given is not None:
                raise ConfigurationError(
                    f"sequences={given!r} is for recurrent policies; give policy='MlpLstmPolicy', 'CnnLstmPolicy' or "
                    f"'MultiInputLstmPolicy', or leave it out"
                )
            return None
        if given is False:
            raise ConfigurationError("sequences=False: a policy with a memory learns from sequences; leave it out")
        return check_switch("sequences", True if given is None else given, Sequences)
