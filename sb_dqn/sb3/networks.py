"""Networks that are called as those of Stable-Baselines3 are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from sb_dqn.checkpoint.format.zip_reader import Target
from sb_dqn.policies.q_network import QNetwork
from sb_dqn.policies.sac_network import Actor, Critics

Obs = Any
"""A tensor `[N, *shape]`, or a dict of tensors for a Dict space."""


def flat(obs: Obs) -> dict[str, Tensor]:
    """Returns observations as the networks of this library take them."""
    return dict(obs) if isinstance(obs, Mapping) else {"obs": obs}


class HasModel:
    """A network with `predict`, `save` and `load`, which are those of its policy."""

    place: str
    """Where a policy has such a network, such as "nets.actor"."""
    _model: Callable[[], Any]
    """A weak reference to the model, which must outlive the network."""

    def __getstate__(self) -> dict[str, Any]:
        """Returns the network without its model, for copies and pickles."""
        return {name: value for name, value in vars(self).items() if name != "_model"}

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> Any:
        """Returns the actions and the next state; see `predict` of the model."""
        return self._model().predict(observation, state, episode_start, deterministic)

    def save(self, path: Target) -> None:
        """Writes the model of the network; see `save` of the policy."""
        self._model().policy.save(path)

    @classmethod
    def load(cls, path: Target, device: object = "auto") -> Any:
        """Returns the network of a file that `save` wrote, with the model that `predict` needs; see `load` of the policy."""
        policies: Any = import_module("sb_dqn.sb3.policy")
        policy = policies.PolicyMethods.load(path, device)
        network = attrgetter(cls.place)(policy)
        network.__dict__["_owner"] = policy._model()
        return network


class HasExtractor:
    """A network whose features extractor has the name of theirs."""

    features: Any

    @property
    def features_extractor(self) -> Any:
        """The features extractor."""
        return self.features.extractor

    @property
    def features_dim(self) -> int:
        """Width of the features."""
        width: int = self.features.features_dim
        return width

    def extract_features(self, obs: Obs, features_extractor: object = None) -> Tensor:
        """Returns features `[N, H]`."""
        features: Tensor = self.features(flat(obs))
        return features


class SB3QNetwork(HasModel, HasExtractor, QNetwork):
    """A Q-network that maps a tensor of observations to a tensor of action values `[N, A]`."""

    place = "q_net"

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        """Returns the best actions and the next state; see `predict` of the model."""
        return super().predict(observation, state, episode_start, deterministic=True)

    def forward(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obs, Tensor):
            return super().forward({"obs": obs}, *args, **kwargs).q
        return super().forward(obs, *args, **kwargs)


class QuantileNet:
    """The Q-network of QRDQN as a function from observations to quantiles; it has the attributes of the network.

    Args:
        net: the network.
    """

    def __init__(self, net: SB3QNetwork) -> None:
        self.net = net

    @classmethod
    def load(cls, path: Target, device: object = "auto") -> QuantileNet:
        """Returns the network of a file; see `HasModel.load`."""
        return cls(SB3QNetwork.load(path, device))

    def __getattr__(self, name: str) -> Any:
        if name == "net":  # while it is copied
            raise AttributeError(name)
        return getattr(self.net, name)

    def __call__(self, obs: Obs) -> Tensor:
        """Returns quantiles `[N, M, A]`."""
        quantiles: Tensor = self.net(flat(obs)).quantiles
        return quantiles.transpose(-1, -2)


class SB3Critics(HasExtractor, Critics):
    """Critics that map observations and actions to a tuple of values."""

    def forward(self, obs: Obs, actions: Tensor) -> tuple[Tensor, ...]:
        """Returns values `[N, 1]` of each critic.

        Args:
            obs: observations.
            actions: `[N, D]`, scaled to bounds of -1 and 1.
        """
        values: tuple[Tensor, ...] = self.stacks(torch.cat([self.features(flat(obs)), actions], -1)).unbind(0)
        return values

    def q1_forward(self, obs: Obs, actions: Tensor) -> Tensor:
        """Returns values `[N, 1]` of the first critic; see `forward`."""
        return self(obs, actions)[0]  # type: ignore[no-any-return]  # nn.Module.__call__


class SB3Actor(HasModel, HasExtractor, Actor):
    """An actor that maps observations to actions, which are scaled to bounds of -1 and 1."""

    place = "nets.actor"

    owner: SB3Critics
    """Critics, which have the features if they are shared."""

    @property
    def features_extractor(self) -> Any:
        return (self.features or self.owner.features).extractor

    def _distribution(self, obs: Obs) -> Any:
        features = self.owner.features(flat(obs)).detach() if self.features is None else self.features(flat(obs))
        return self.head(self.tower(features))

    def _draw(self, distribution: Any) -> Tensor:
        mean = distribution.mean
        return distribution.sample(torch.randn(len(mean), self.head.width, device=mean.device))  # type: ignore[no-any-return]

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Returns actions `[N, D]`."""
        distribution = self._distribution(obs)
        u: Tensor = distribution.mode() if deterministic else self._draw(distribution)
        return u.tanh()

    def action_log_prob(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Returns sampled actions `[N, D]` and their log-densities `[N]`."""
        distribution = self._distribution(obs)
        u = self._draw(distribution)
        return u.tanh(), distribution.log_prob(u)

    def get_std(self) -> Tensor:
        """Returns the standard deviations `[L, D]` of the weights of state-dependent noise."""
        return self.head.std()  # type: ignore[operator,no-any-return]  # nn.Module

    def get_action_dist_params(self, obs: Obs) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns mean and log standard deviation `[N, D]` before tanh, and an empty dict."""
        distribution = self._distribution(obs)
        distribution = getattr(distribution, "marginal", distribution)
        return distribution.mean, distribution.log_std.expand_as(distribution.mean), {}
