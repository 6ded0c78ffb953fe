"""Methods of Stable-Baselines3's policies for the policies of this library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any
from weakref import ReferenceType

import torch
from stable_baselines3.common.policies import BaseModel, BasePolicy
from torch import Tensor

from sb_dqn.checkpoint import atomic_write, model_info
from sb_dqn.errors import CheckpointError, ConfigurationError, with_article
from sb_dqn.nn.heads.policy_heads import GaussianHead, SquashedHead
from sb_dqn.policies import ACTOR_CRITIC_POLICIES, SAC_POLICIES, VALUE_POLICIES
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from sb_dqn.policies.q_policy import QPolicy
from sb_dqn.policies.sac import SACPolicy

Obs = Any
"""A tensor `[N, *shape]`, or a dict of tensors for a Dict space."""


def flat(obs: Obs) -> dict[str, Tensor]:
    """Returns observations as the networks of this library take them."""
    return dict(obs) if isinstance(obs, Mapping) else {"obs": obs}


def to_actions(head: Any, sample: Tensor) -> Tensor:
    """Returns the actions of samples of a distribution, in the shape of the space; those of a Gaussian are not clipped."""
    is_gaussian = isinstance(head, GaussianHead) and not isinstance(head, SquashedHead)
    actions: Tensor = sample.reshape(-1, *head.shape) if is_gaussian else head.to_action(sample)
    return actions


def to_samples(head: Any, actions: Tensor) -> Tensor:
    """Returns the samples of actions `[N, *shape]`; the inverse of `to_actions`."""
    sample = actions.flatten(1) if actions.dim() > 1 else actions
    if isinstance(head, SquashedHead):
        bound = 1.0 - torch.finfo(sample.dtype).eps
        return (2.0 * (sample - head.low) / (head.high - head.low) - 1.0).clamp(-bound, bound).atanh()
    if isinstance(head, GaussianHead):
        return sample
    return sample.long().squeeze(-1) if sample.dim() > 1 and sample.shape[-1] == 1 else sample.long()


class PolicyMethods:
    """Methods that all of their policies have."""

    _model: ReferenceType[Any]
    """The model, which must outlive its policy."""
    observation_space: Any
    action_space: Any

    obs_to_tensor = BaseModel.obs_to_tensor
    is_vectorized_observation = BaseModel.is_vectorized_observation
    scale_action = BasePolicy.scale_action
    unscale_action = BasePolicy.unscale_action

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        device: torch.device = self._model().device  # type: ignore[union-attr]
        return device

    @property
    def optimizer(self) -> Any:
        """The optimizer of the model; `step` follows the gradients that `backward` adds to the parameters of the policy."""
        return self._model().learner.optimizer  # type: ignore[union-attr]

    @property
    def squash_output(self) -> bool:
        """False: `predict` returns actions in the units of the space."""
        return False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Refuses to make a policy without its model.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"a policy of sb_dqn.sb3 must be made by its algorithm, got a call of {type(self).__name__}. Read model.policy, or use "
            f"the class of stable_baselines3."
        )

    def save(self, path: Any) -> None:
        """Writes the model of the policy to exactly this path, without a replay buffer; `load` of the model reads it, too."""
        model: Any = self._model()
        if isinstance(path, (str, Path)) and not model.rank:
            with atomic_write(Path(path)) as file:
                model.save(file)
        else:
            model.save(path)

    @classmethod
    def load(cls, path: Any, device: Any = "auto") -> Any:
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

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the actions and the next state; see `predict` of the model."""
        return self._model().predict(*args, **kwargs)  # type: ignore[union-attr]

    def set_training_mode(self, mode: bool) -> None:
        """Does nothing: the training loop sets the mode of the networks."""


class QMethods(PolicyMethods):
    """Methods of their DQN policies."""

    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Returns the best actions `[N]`."""
        return self._predict(obs, deterministic)

    def _predict(self, obs: Obs, deterministic: bool = True) -> Tensor:
        policy: Any = self
        actions: Tensor = policy.greedy(flat(obs))
        return actions


class SACMethods(PolicyMethods):
    """Parts of their SAC policies."""

    actor = property(attrgetter("nets.actor"))
    critic = property(attrgetter("nets.critics"))
    critic_target = property(attrgetter("critics_target"))


class ActorCriticMethods(PolicyMethods):
    """Methods and parts of their actor-critic policies."""

    features_extractor = property(attrgetter("net.features.extractor"))
    pi_features_extractor = features_extractor
    action_net = property(attrgetter("net.action_head.outputs"))
    value_net = property(attrgetter("net.value_head"))

    @property
    def vf_features_extractor(self) -> Any:
        """The features extractor of the value."""
        net: Any = self.net  # type: ignore[attr-defined]  # of the policy
        return (net.value_features or net.features).extractor

    def forward(self, obs: Obs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Returns actions, values `[N, 1]` and log-probabilities `[N]`; actions of a Gaussian are not clipped to the bounds."""
        policy: Any = self
        output = policy.net(flat(obs))
        drawn = torch.as_tensor(policy.draw(self._model().rng.predict, len(output.value)))  # type: ignore[union-attr]
        distribution = output.policy
        sample = distribution.mode() if deterministic else distribution.sample(drawn.to(output.value.device))
        return to_actions(policy.action_head, sample), output.value.unsqueeze(-1), distribution.log_prob(sample)

    def _predict(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return self.forward(obs, deterministic)[0]

    def predict_values(self, obs: Obs) -> Tensor:
        """Returns values `[N, 1]`."""
        policy: Any = self
        values: Tensor = policy.net.value(flat(obs))
        return values.unsqueeze(-1)

    def evaluate_actions(
        self, obs: Obs, actions: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns values `[N, 1]`, log-probabilities `[N]` of actions, and entropies `[N]`."""
        policy: Any = self
        output = policy.net(flat(obs), action_masks)
        values = output.value.unsqueeze(-1)
        sample = to_samples(policy.action_head, actions)
        return values, output.policy.log_prob(sample), output.policy.entropy(sample)

    def get_distribution(self, obs: Obs) -> Any:
        """Returns the distribution over actions; it has `sample`, `mode`, `log_prob` and `entropy`."""
        policy: Any = self
        return policy.net.policy(flat(obs))


FAMILIES: dict[str, tuple[Any, Mapping[str, Any]]] = {
    **dict.fromkeys(("dqn", "qrdqn"), (QMethods, VALUE_POLICIES)),
    **dict.fromkeys(("a2c", "ppo", "ppo_mask", "ppo_recurrent"), (ActorCriticMethods, ACTOR_CRITIC_POLICIES)),
    "sac": (SACMethods, SAC_POLICIES),
}
"""Methods and policies of this library, by the package of the algorithm."""

BasePolicy.register(PolicyMethods)


class HasExtractor:
    """A network whose features extractor has the name of theirs."""

    features: Any

    @property
    def features_extractor(self) -> Any:
        """The features extractor."""
        return self.features.extractor


class TakesTensors(HasExtractor):
    """A Q-network that maps a tensor of observations to a tensor of action values, as theirs do."""

    def __call__(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
        call: Any = super().__call__  # type: ignore[misc]  # that of nn.Module
        return call({"obs": obs}).q if isinstance(obs, Tensor) else call(obs, *args, **kwargs)


@cache
def _with(methods: Any, cls: Any) -> type[Any]:
    """Returns a subclass of `cls` that has further methods."""
    return type(cls.__name__, (methods, cls), {"__module__": __name__, "__doc__": cls.__doc__})


def policy_classes(package: str) -> dict[str, type[Any]]:
    """Returns the policies of an algorithm by alias; none for a package of other algorithms.

    Args:
        package: name of the algorithm's package in Stable-Baselines3 or its contrib package, such as "ppo".
    """
    methods, policies = FAMILIES.get(package, (PolicyMethods, {}))
    return {alias: _with(methods, cls) for alias, cls in policies.items()}


def _add(methods: Any, module: Any) -> None:
    cls: Any = type(module)
    module.__class__ = _with(methods, cls)


def add_their_methods(policy: Any, model: ReferenceType[Any]) -> None:
    """Gives a policy of this library the methods of theirs."""
    methods: Any = PolicyMethods
    parts: list[tuple[Any, str, Any]] = []
    if isinstance(policy, QPolicy):
        methods = QMethods
        parts = [(policy, name, TakesTensors) for name in ("q_net", "q_net_target")]
    elif isinstance(policy, ActorCriticPolicy):
        methods = ActorCriticMethods
    elif isinstance(policy, SACPolicy):
        methods = SACMethods
        parts = [(policy.nets, "actor", HasExtractor), (policy.nets, "critics", HasExtractor)]
        parts += [(policy, "critics_target", HasExtractor)]
    for owner, name, further in parts:
        net: Any = owner._modules.get(name)
        if net is not None:
            _add(further, net)
    _add(methods, policy)
    policy.__dict__["_model"] = model
