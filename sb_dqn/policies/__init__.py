"""Policies of each family, by alias or class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from sb_dqn.checks import check_keys, check_mapping
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.policies.actor_critic import ACTOR_CRITIC_POLICIES, ActorCriticPolicy, RecurrentActorCriticPolicy
from sb_dqn.policies.base import Policy
from sb_dqn.policies.policy_kwargs import classes_of_names
from sb_dqn.policies.q_policy import (
    VALUE_POLICIES,
    CnnLstmPolicy,
    CnnPolicy,
    MlpLstmPolicy,
    MlpPolicy,
    MultiInputLstmPolicy,
    MultiInputPolicy,
    QPolicy,
    RecurrentQPolicy,
)
from sb_dqn.policies.sac import SAC_POLICIES, SACPolicy
from sb_dqn.types import Kwargs, Settings

P = TypeVar("P", bound=Policy)
OPTIMIZER_KEYS = ("optimizer_class", "optimizer_kwargs", "decay_matrices_only")

__all__ = [
    "ACTOR_CRITIC_POLICIES",
    "SAC_POLICIES",
    "VALUE_POLICIES",
    "ActorCriticPolicy",
    "CnnLstmPolicy",
    "CnnPolicy",
    "MlpLstmPolicy",
    "MlpPolicy",
    "MultiInputLstmPolicy",
    "MultiInputPolicy",
    "Policy",
    "QPolicy",
    "RecurrentActorCriticPolicy",
    "RecurrentQPolicy",
    "SACPolicy",
    "policy_class",
    "split_policy_kwargs",
]


def policy_class(policy: str | type[P], aliases: Mapping[str, type[P]], family: type[P]) -> type[P]:
    """Returns the class of an alias, or the class itself.

    Raises:
        ConfigurationError: unknown alias, or no subclass of `family`.
    """
    found: Any = aliases.get(policy, policy) if isinstance(policy, str) else policy
    if not (isinstance(found, type) and issubclass(found, family)):
        hint = nearest(policy, aliases) if isinstance(policy, str) else ""
        raise ConfigurationError(
            f"policy must be one of {sorted(aliases)} or a subclass of {family.__name__}, got {policy!r}. Give one of them.{hint}"
        )
    chosen: type[P] = found
    return chosen


ALGORITHM_ARGUMENTS = (
    "batch_size", "double_q", "dueling", "gamma", "kappa", "learning_rate", "max_grad_norm", "munchausen", "n_atoms", "n_cosines",
    "n_fractions", "n_quantiles", "n_steps", "n_taus", "noisy", "prioritized_replay", "risk", "tau", "v_max", "v_min",
)  # fmt: skip
"""Arguments of algorithms that users may expect in `policy_kwargs`, as in other libraries."""


def split_policy_kwargs(chosen: type[Policy], policy_kwargs: Settings | None) -> tuple[Kwargs, Kwargs]:
    """Returns the keywords of the policy and those of the optimizer, with classes in place of their names.

    Raises:
        ConfigurationError: unknown keyword or name.
    """
    allowed: set[str] = set()
    for parent in chosen.__mro__:
        allowed |= {
            name
            for name, parameter in inspect.signature(vars(parent).get("__init__", parent)).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        }
        if parent is Policy:
            break
    allowed -= {"self", "observation_space", "action_space", "config", "recurrent_config", "use_sde", "value_bins"}
    misplaced = [
        key
        for key in check_mapping("policy_kwargs", policy_kwargs)
        if key in ALGORITHM_ARGUMENTS and key not in allowed
    ]
    if misplaced:
        raise ConfigurationError(
            f"policy_kwargs must not have {misplaced[0]!r}, an argument of the algorithm's constructor, got it. Pass it there."
        )
    kwargs = classes_of_names(check_keys("policy_kwargs", policy_kwargs, allowed | set(OPTIMIZER_KEYS)))
    optimizer = {key: kwargs.pop(key) for key in OPTIMIZER_KEYS if key in kwargs}
    return kwargs, optimizer
