"""Policy classes of users that derive from those of Stable-Baselines3."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from stable_baselines3.common import torch_layers
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.policy_heads import SquashedHead
from sb_dqn.nn.heads.state_dependent import StateDependentHead
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.policies.actor_critic_network import TowersConfig
from sb_dqn.sb3.distributions import sb3_distribution, to_samples
from sb_dqn.spaces import Space, as_observation

ADAPTED = ("__init__", "_build_mlp_extractor")
"""Methods of a policy class that a user may override."""
ACTING = ("forward", "predict_values")
"""Further methods of a policy class of A2C and PPO that a user may override: they are called while acting, not by the loss."""
OWN_PARTS = (
    "features_extractor", "pi_features_extractor", "vf_features_extractor", "mlp_extractor", "action_net",
    "value_net",
)  # fmt: skip
"""Modules of Stable-Baselines3's actor-critics."""
DEFAULT_EXTRACTORS = (torch_layers.FlattenExtractor, torch_layers.NatureCNN, torch_layers.CombinedExtractor)
"""Features extractors that have counterparts here, which are chosen by the space."""
DEFAULT_OPTIMIZER: tuple[dict[str, float], ...] = ({}, {"eps": 1e-5})
"""Arguments of Adam in policies whose class does not choose an optimizer."""


def their_policies(package: str) -> Any:
    """Returns the module of Stable-Baselines3 or its contrib package with the policies of an algorithm."""
    root = "sb3_contrib" if package in ("qrdqn", "ppo_mask", "ppo_recurrent") else "stable_baselines3"
    return import_module(f"{root}.{package}.policies")


def library_class(cls: type[Any], package: str) -> tuple[str, type[Any]]:
    """Returns the alias of the class of Stable-Baselines3 from which a user's class derives, and that class.

    Args:
        cls: the user's class.
        package: name of the algorithm's package, such as "ppo".

    Raises:
        ConfigurationError: it derives from the policies of another algorithm, or overrides a method that is never called here.
    """
    policies = their_policies(package)
    ending = "LstmPolicy" if package == "ppo_recurrent" else "Policy"
    aliases = {getattr(policies, kind + ending): kind + ending for kind in ("Mlp", "Cnn", "MultiInput")}
    base = next((parent for parent in cls.__mro__ if parent in aliases), None)
    if base is None:
        raise ConfigurationError(
            f"policy must derive from one of {', '.join(known.__name__ for known in aliases)}, got {cls.__name__}. Derive it from "
            f"one of them, or from a class of sb_dqn.policies."
        )
    further = cls.__mro__[: cls.__mro__.index(base)]
    overridden = {
        name
        for parent in further
        for name, value in vars(parent).items()
        if (callable(value) or isinstance(value, property)) and (name == "__init__" or not name.startswith("__"))
    }
    allowed = (*ADAPTED, *ACTING) if package in ("a2c", "ppo") else ADAPTED
    if unused := sorted(name for name in overridden if name in dir(base) and name not in allowed):
        raise ConfigurationError(
            f"{cls.__name__} must override {', '.join(allowed)} only, got {', '.join(unused)}, which the networks of this library "
            f"do not call. Move its networks to _build_mlp_extractor or to a features_extractor_class, or derive it from a class of "
            f"sb_dqn.policies."
        )
    return aliases[base], base


class Tower(nn.Module):
    """One of the two paths through a user's `mlp_extractor`.

    Args:
        module: `mlp_extractor`, with `forward_actor`, `forward_critic`, `latent_dim_pi` and `latent_dim_vf`.
        path: name of the method.
        out_features: width of its output.
    """

    def __init__(self, module: nn.Module, path: str, out_features: int) -> None:
        super().__init__()
        self.module = module
        self.path = path
        self.out_features = out_features

    def forward(self, x: Tensor) -> Tensor:
        return getattr(self.module, self.path)(x)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class OwnTowers(TowersConfig):
    """The hidden layers of a user's `mlp_extractor`."""

    module: Any = None

    def make(self, pi_features: int, vf_features: int) -> tuple[Any, Any]:
        module = self.module
        return (
            Tower(module, "forward_actor", module.latent_dim_pi),
            Tower(module, "forward_critic", module.latent_dim_vf),
        )


class _Start:
    """Ends the chain of constructors of this library before that of the user's class."""

    def __init__(self) -> None:
        nn.Module.__init__(self)  # type: ignore[arg-type]  # a base of each class with this one


class ActsByForward:
    """Actor-critic of a user's class that overrides methods in `ACTING`, which this class calls while acting."""

    action_head: Any
    net: Any
    observation_space: Space
    action_space: Space
    predict_values: Any
    forward: Any

    def take_attributes(self, policy: Any) -> None:
        """Takes the attributes that the constructor of the user's class has set in `policy`.

        Raises:
            ConfigurationError: it has further networks, or its actions are squashed or have state-dependent noise.
        """
        name, head = type(policy).__name__, self.action_head
        if further := sorted((policy._modules.keys() | policy._parameters.keys()) - {*OWN_PARTS, "log_std"}):
            raise ConfigurationError(
                f"the layers of {name} must be built in _build_mlp_extractor, got {', '.join(further)}, which would not be trained. "
                f"Move them there."
            )
        if isinstance(head, (SquashedHead, StateDependentHead)):
            raise ConfigurationError(
                f"use_sde and squash_output must be False with {name}, which overrides {' or '.join(ACTING)}, got True. Remove them."
            )
        known = dir(type(self))
        vars(self).update(
            {key: value for key, value in vars(policy).items() if key not in vars(self) and key not in known}
        )

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Any:
        """Returns the distribution of the output of the policy's tower, for `super().forward` of the user's class."""
        return sb3_distribution(self.action_head(latent_pi, None), self.action_space)

    def act(self, obs: dict[str, Tensor], mask: Tensor | None, drawn: Tensor) -> tuple[Tensor, ...]:
        """Returns actions and outputs, see `ActorCriticPolicy.act`; they are sampled by torch's global generator."""
        actions, value, log_prob = self.forward(as_observation(obs, self.observation_space))
        sample = to_samples(self.action_head, actions)
        extras = (sample,) if self.action_head.extras else ()
        return self.action_head.to_action(sample), value.flatten(), log_prob, *extras

    def value_step(self, obs: dict[str, Tensor], mask: Tensor | None) -> tuple[Tensor, ...]:
        """Returns values `[N]`, see `ActorCriticPolicy.value_step`."""
        return (self.predict_values(as_observation(obs, self.observation_space)).flatten(),)


@cache
def adapted(cls: Any, base: Any, native: Any) -> type[Any]:
    """Returns a policy of this library with the settings and the `mlp_extractor` of a user's class.

    Args:
        cls: the user's class.
        base: class of Stable-Baselines3 that it derives from.
        native: class of this library to derive from.
    """
    theirs = _keywords(cls) - {"self", "observation_space", "action_space", "lr_schedule"}
    ours = _keywords(native)
    has_own_layers = _differs("_build_mlp_extractor", cls, base)
    acting = {name: getattr(cls, name) for name in ACTING if _differs(name, cls, base)}

    def __init__(self: Any, observation_space: Space, action_space: Space, **kwargs: Any) -> None:
        passed = {name: value for name, value in kwargs.items() if name in theirs}
        policy = cls(observation_space, action_space, lambda _: 0.0, **passed)
        settings = {name: value for name, value in _settings(cls, policy).items() if name in ours}
        rest = {name: value for name, value in kwargs.items() if name in ours and name not in settings}
        self.__dict__["own_layers"] = _checked(cls, policy.mlp_extractor) if has_own_layers else None
        native.__init__(self, observation_space, action_space, **settings, **rest)
        if acting:
            self.take_attributes(policy)

    def make_net(self: Any, features: Any, towers: TowersConfig, make_head: Any, ortho_init: bool) -> Any:
        module = self.__dict__.pop("own_layers")
        if module is not None:
            towers = OwnTowers(towers.pi, towers.vf, module=module)
        return native.make_net(self, features, towers, make_head, ortho_init)

    names = sorted(theirs & ours | _keywords(cls) - _keywords(base))
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    __init__.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # the keywords of policy_kwargs
    body = {
        "__module__": native.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__init__": __init__,
    }
    if issubclass(native, ActorCriticPolicy):
        body |= {"make_net": make_net, **acting}
    if acting:  # as `super()` in the user's methods needs a real subclass
        return type(cls.__name__, (ActsByForward, native, _Start, cls), body)
    found: type[Any] = type(cls.__name__, (native,), body)
    cls.register(found)  # for isinstance
    return found


def _differs(name: str, cls: object, base: object) -> bool:
    return getattr(cls, name, None) is not getattr(base, name, None)


def _keywords(cls: type[Any]) -> set[str]:
    """Returns the names of the arguments of all constructors of a class."""
    found: set[str] = set()
    for parent in cls.__mro__:
        if parent is not nn.Module and isinstance(init := vars(parent).get("__init__"), type(_keywords)):
            named = inspect.signature(init).parameters.values()
            found |= {each.name for each in named if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
    return found


def _settings(cls: type[Any], policy: Any) -> dict[str, Any]:
    """Returns the settings that a policy of Stable-Baselines3 was made with, without those that are None."""
    settings = dict(policy._get_constructor_parameters())
    if settings["optimizer_class"] is not torch.optim.Adam or settings["optimizer_kwargs"] not in DEFAULT_OPTIMIZER:
        raise ConfigurationError(
            f"the optimizer must be given in policy_kwargs, got {settings['optimizer_class'].__name__} with "
            f"{settings['optimizer_kwargs']} in {cls.__name__}. Pass policy_kwargs=dict(optimizer_class=..., optimizer_kwargs=...)."
        )
    if settings["features_extractor_class"] in DEFAULT_EXTRACTORS and not settings["features_extractor_kwargs"]:
        settings["features_extractor_class"] = None
    if isinstance(getattr(policy, "share_features_extractor", None), bool):
        settings["share_features_extractor"] = policy.share_features_extractor
    if (lstm := getattr(policy, "lstm_actor", None)) is not None:
        recurrent = {
            "lstm_hidden_size": lstm.hidden_size,
            "n_lstm_layers": lstm.num_layers,
            "shared_lstm": policy.shared_lstm,
            "critic_lstm": policy.enable_critic_lstm or policy.shared_lstm,
        }
        settings |= recurrent
    for name in ("observation_space", "action_space", "lr_schedule", "use_sde", "optimizer_class", "optimizer_kwargs"):
        settings.pop(name, None)
    return {name: value for name, value in settings.items() if value is not None}


def _checked(cls: type[Any], module: object) -> nn.Module:
    """Returns a user's `mlp_extractor`."""
    names = ("forward_actor", "forward_critic", "latent_dim_pi", "latent_dim_vf")
    missing = [name for name in names if name not in dir(module)]
    if missing or not isinstance(module, nn.Module):
        raise ConfigurationError(
            f"mlp_extractor of {cls.__name__} must be a module with {', '.join(names)}, got {type(module).__name__} without "
            f"{', '.join(missing) or 'being one'}. Add them."
        )
    return module
