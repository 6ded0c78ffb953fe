"""Methods of Stable-Baselines3's policies for the policies of this library."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import new_class
from typing import Any

import torch
from stable_baselines3.common.policies import BaseModel, BasePolicy
from torch import Tensor, nn

from sb_dqn.acting.predictor import batch_masks
from sb_dqn.checkpoint import atomic_write, model_info
from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.errors import CheckpointError, ConfigurationError, with_article
from sb_dqn.policies import ACTOR_CRITIC_POLICIES, SAC_POLICIES, VALUE_POLICIES
from sb_dqn.policies.base import Policy
from sb_dqn.sb3.distributions import sb3_distribution, to_actions, to_samples
from sb_dqn.sb3.networks import Obs, QuantileNet, SB3Actor, SB3Critics, SB3QNetwork, flat
from sb_dqn.sb3.own_policies import adapted, library_class, their_policies
from sb_dqn.sb3_files.parameters import native_parameters
from sb_dqn.spaces import Space
from sb_dqn.types import Settings, State


class PolicyMethods:
    """Methods that all of their policies have."""

    _model: Callable[[], Any]
    """A weak reference to the model, which must outlive its policy."""
    observation_space: Space
    action_space: Space

    obs_to_tensor = BaseModel.obs_to_tensor
    is_vectorized_observation = BaseModel.is_vectorized_observation
    scale_action = BasePolicy.scale_action
    unscale_action = BasePolicy.unscale_action

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        device: torch.device = self._model().device
        return device

    @property
    def optimizer(self) -> Any:
        """The optimizer of the model; `step` follows the gradients that `backward` adds to the parameters of the policy."""
        return self._model().learner.optimizer

    @property
    def squash_output(self) -> bool:
        """False: `predict` returns actions in the units of the space."""
        return False

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Refuses to make a policy without its model.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"a policy of sb_dqn.sb3 must be made by its algorithm, got a call of {type(self).__name__}. Read model.policy, or use "
            f"the class of stable_baselines3."
        )

    def save(self, path: Target) -> None:
        """Writes the model of the policy to exactly this path, without a replay buffer; `load` of the model reads it, too."""
        model: Any = self._model()
        if isinstance(path, (str, Path)) and not model.rank:
            with atomic_write(Path(path)) as file:
                model.save(file)
        else:
            model.save(path)

    @classmethod
    def load(cls, path: Target, device: object = "auto") -> Any:
        """Returns the policy of a file that `save` wrote to exactly this path, with the model that `predict` needs.

        Raises:
            CheckpointError: there is no such file, or it is damaged, of another library, or of another kind of policy.
        """
        if isinstance(path, (str, Path)) and not Path(path).is_file():
            zipped = Path(f"{path}.zip")
            hint = f"Pass {str(zipped)!r}, if it is meant." if zipped.is_file() else "Check the path."
            raise CheckpointError(f"path must be that of policy.save, got {str(path)!r}, which is no file. {hint}")
        name = str(model_info(path).get("class"))
        room = import_module("sb_dqn.sb3")
        if name not in room.ALGORITHMS:
            raise CheckpointError(
                f"the file must hold one of {', '.join(room.ALGORITHMS)}, got {with_article(name)}. Load it with {name}.load."
            )
        model = getattr(room, name).load(path, device=device)
        if not isinstance(model.policy, cls):
            raise CheckpointError(
                f"the file must hold {with_article(cls.__name__)}, got {with_article(type(model.policy).__name__)}. Load it with "
                f"{name}.load."
            )
        model.policy.__dict__["_owner"] = model  # the reference of the policy is weak
        return model.policy

    def load_state_dict(self, state_dict: State, strict: bool = True, assign: bool = False) -> Any:
        """Copies parameters by the names of `state_dict()`, or by those of the same policy of Stable-Baselines3.

        Raises:
            RuntimeError: names or shapes differ.
        """
        policy: Any = super()
        if not state_dict.keys() & policy.state_dict().keys():
            try:
                state_dict = native_parameters(self._model(), state_dict) or state_dict
            except (KeyError, ValueError) as error:
                raise RuntimeError(
                    f"state_dict must be that of a whole {type(self).__name__} with the same layers, got others ({error}). Use the "
                    f"same policy_kwargs."
                ) from error
        return policy.load_state_dict(state_dict, strict, assign)

    def predict(self, *args: object, **kwargs: object) -> Any:
        """Returns the actions and the next state; see `predict` of the model."""
        return self._model().predict(*args, **kwargs)

    def set_training_mode(self, mode: bool) -> None:
        """Does nothing: the training loop sets the mode of the networks."""

    def reset_noise(self, n_envs: int = 1) -> None:
        """Does nothing: `learn` and `predict` draw the noise of state-dependent exploration themselves."""


class QMethods(PolicyMethods):
    """Methods of their DQN policies."""

    network_class = SB3QNetwork
    q_net: SB3QNetwork
    q_net_target: SB3QNetwork

    @property
    def quantile_net(self) -> QuantileNet:
        """Network of QRDQN, which maps observations to quantiles `[N, M, A]`."""
        return QuantileNet(self.q_net)

    @property
    def quantile_net_target(self) -> QuantileNet:
        """Target network of QRDQN."""
        return QuantileNet(self.q_net_target)

    def extract_features(self, obs: Obs) -> Tensor:
        """Returns features `[N, H]`."""
        return self.q_net.extract_features(obs)

    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Returns the best actions `[N]`."""
        return self._predict(obs, deterministic)

    def _predict(self, obs: Obs, deterministic: bool = True) -> Tensor:
        policy: Any = self
        actions: Tensor = policy.greedy(flat(obs))
        return actions


class SACMethods(PolicyMethods):
    """Methods and parts of their SAC policies."""

    actor_class = SB3Actor
    critics_class = SB3Critics
    nets: Any
    actor = property(attrgetter("nets.actor"))
    critic = property(attrgetter("nets.critics"))
    critic_target = property(attrgetter("critics_target"))

    def make_nets(self, temperature: object) -> Any:
        """Returns new networks; an actor without features of its own knows the critics that have them."""
        nets = super().make_nets(temperature)  # type: ignore[misc]  # of the policy
        nets.actor.__dict__["owner"] = nets.critics  # no submodule, whose parameters would count twice
        return nets

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions `[N, D]` scaled to bounds of -1 and 1."""
        actions: Tensor = self.nets.actor(obs, deterministic)
        return actions

    _predict = forward


class ActorCriticMethods(PolicyMethods):
    """Methods and parts of their actor-critic policies."""

    net: Any
    action_head: Any
    draw: Any
    features_extractor = property(attrgetter("net.features.extractor"))
    pi_features_extractor = features_extractor
    action_net = property(attrgetter("net.action_head.outputs"))
    value_net = property(attrgetter("net.value_head"))

    @property
    def mlp_extractor(self) -> Any:
        """Layers between features and heads: the module of an own policy class, or the two towers."""
        net = self.net
        return getattr(net.policy_tower, "module", None) or MlpExtractor(net.policy_tower, net.value_tower)

    def extract_features(self, obs: Obs, features_extractor: Any = None) -> Any:
        """Returns features `[N, H]`; a pair of them, for policy and value, if each has its own extractor."""
        if features_extractor is not None:
            return features_extractor(obs)
        pi = self.net.features(flat(obs))
        return pi if self.net.value_features is None else (pi, self.net.value_features(flat(obs)))

    @property
    def vf_features_extractor(self) -> Any:
        """The features extractor of the value."""
        return (self.net.value_features or self.net.features).extractor

    def forward(self, obs: Obs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Returns actions, values `[N, 1]` and log-probabilities `[N]`; actions of a Gaussian are not clipped to the bounds."""
        output = self.net(flat(obs))
        drawn = torch.as_tensor(self.draw(self._model().rng.predict, len(output.value)))
        distribution = output.policy
        sample = distribution.mode() if deterministic else distribution.sample(drawn.to(output.value.device))
        return to_actions(self.action_head, sample), output.value.unsqueeze(-1), distribution.log_prob(sample)

    def _predict(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return self.forward(obs, deterministic)[0]

    def predict_values(self, obs: Obs) -> Tensor:
        """Returns values `[N, 1]`."""
        values: Tensor = self.net.value(flat(obs))
        return values.unsqueeze(-1)

    def _masks(self, obs: Obs, action_masks: Any) -> Tensor | None:
        """Returns masks of a form that `predict` takes as `[N, (D,) A]`; None: all actions are legal."""
        if action_masks is None:
            return None
        count, masks = len(next(iter(flat(obs).values()))), torch.as_tensor(action_masks).cpu().numpy()
        return torch.from_numpy(batch_masks(self._model().predictor.actions, masks, count, empty=True)).to(self.device)

    def evaluate_actions(
        self, obs: Obs, actions: Tensor, action_masks: object = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns values `[N, 1]`, log-probabilities `[N]` of actions, and entropies `[N]`."""
        output = self.net(flat(obs), self._masks(obs, action_masks))
        values = output.value.unsqueeze(-1)
        sample = to_samples(self.action_head, actions)
        return values, output.policy.log_prob(sample), output.policy.entropy(sample)

    def get_distribution(self, obs: Obs, action_masks: object = None) -> Any:
        """Returns the distribution over actions as an object of Stable-Baselines3 or its contrib package."""
        mask = self._masks(obs, action_masks)
        return sb3_distribution(self.net.policy(flat(obs), mask), self.action_space, mask)


FAMILIES: dict[str, tuple[Any, Settings]] = {
    **dict.fromkeys(("dqn", "qrdqn"), (QMethods, VALUE_POLICIES)),
    **dict.fromkeys(("a2c", "ppo", "ppo_mask", "ppo_recurrent"), (ActorCriticMethods, ACTOR_CRITIC_POLICIES)),
    "sac": (SACMethods, SAC_POLICIES),
}
"""Methods and policies of this library, by the package of the algorithm."""

BasePolicy.register(PolicyMethods)


class MlpExtractor:
    """The two towers of an actor-critic under the names of Stable-Baselines3.

    Args:
        policy_net: layers of the policy.
        value_net: layers of the value.
    """

    def __init__(self, policy_net: nn.Module, value_net: nn.Module) -> None:
        self.policy_net, self.value_net = policy_net, value_net
        self.forward_actor, self.forward_critic = policy_net, value_net
        self.latent_dim_pi, self.latent_dim_vf = policy_net.out_features, value_net.out_features

    def __call__(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy_net(features), self.value_net(features)


class PolicyType(ABCMeta):
    """Type of the policies that programs import; a subclass of one derives from the class of Stable-Baselines3 instead."""

    theirs: Any
    """The class of Stable-Baselines3; None: there is none."""

    def __new__(mcs, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **kwargs: object) -> Any:
        if namespace.get("__module__") == __name__:
            return super().__new__(mcs, name, bases, namespace)
        theirs = [base.theirs if isinstance(base, PolicyType) else base for base in bases]
        if None in theirs:
            raise ConfigurationError(
                f"a policy class must derive from one that Stable-Baselines3 has, got {name}, which derives from "
                f"{bases[theirs.index(None)].__name__}. Derive it from a class of sb_dqn.policies."
            )
        return new_class(name, tuple(theirs), kwargs, lambda body: body.update(namespace))


@cache
def _with(methods: Any, cls: Any, theirs: Any = None) -> type[Any]:
    """Returns a subclass of `cls` that has further methods.

    Args:
        methods: methods of Stable-Baselines3's policies.
        cls: policy of this library.
        theirs: class of Stable-Baselines3 of the same name; None: there is none.
    """
    made: type[Any] = PolicyType(
        cls.__name__, (methods, cls), {"__module__": __name__, "__doc__": cls.__doc__, "theirs": theirs}
    )
    return made


def policy_classes(package: str) -> dict[str, type[Any]]:
    """Returns the policies of an algorithm by alias; none for a package of other algorithms.

    Args:
        package: name of the algorithm's package in Stable-Baselines3 or its contrib package, such as "ppo".
    """
    if package not in FAMILIES:
        return {}
    methods, policies = FAMILIES[package]
    module = their_policies(package)
    return {alias: _with(methods, cls, getattr(module, alias, None)) for alias, cls in policies.items()}


@cache
def constructible(cls: Any) -> type[Any]:
    """Returns a subclass of a class of `policy_classes` that the constructor of a model may call."""
    native = next(base for base in cls.__mro__ if issubclass(base, Policy) and not issubclass(base, PolicyMethods))
    made: type[Any] = PolicyType(
        cls.__name__, (cls,), {"__module__": __name__, "__doc__": cls.__doc__, "__init__": native.__init__}
    )
    return made


def class_to_construct(package: str, policy: Any) -> Any:
    """Returns the class of a policy with the methods of Stable-Baselines3.

    Args:
        package: see `policy_classes`.
        policy: alias; class of `sb_dqn.policies`; or a user's class that derives from one of Stable-Baselines3.

    Raises:
        ConfigurationError: see `library_class`.
    """
    classes: dict[str, Any] = policy_classes(package)
    if isinstance(policy, str):
        return constructible(classes[policy]) if policy in classes else policy
    if not isinstance(policy, type):
        return policy
    if issubclass(policy, Policy):
        known: Any = policy if issubclass(policy, PolicyMethods) else _with(FAMILIES[package][0], policy)
        return constructible(known)
    if issubclass(policy, BasePolicy):
        alias, base = library_class(policy, package)
        root: Any = base
        native: Any = constructible(classes[alias])
        return adapted(policy, root, native)
    return policy
