"""Policies that act by the value of each action."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.extractors import BaseFeaturesExtractor
from sb_dqn.nn.noise import Noise
from sb_dqn.policies.aliases import OfADict, OfAnImage, OfVectors
from sb_dqn.policies.base import Features, Policy
from sb_dqn.policies.keywords import check_activation, check_widths, is_image_space, plan_features
from sb_dqn.policies.network import Design, QNetwork, Torso
from sb_dqn.spaces import ActionShape, Channels


class QPolicy(Policy):
    """An online net and its target.

    Args:
        observation_space: of one lane, as the nets see it.
        action_space: Discrete, MultiDiscrete or MultiBinary.
        net_arch: widths of the linear layers after the features; None: [64, 64], or [] after a CNN, whose own linear layer
            is the first hidden one.
        activation_fn: between them.
        features_extractor_class: None asks the space.
        features_extractor_kwargs: its keyword arguments.
        normalize_images: divide images by 255.
        channels: "first" or "last", for all images or by key of a Dict; None decides by their shape.
        layer_norm: normalise before each activation, in our CNNs too.
        spectral_norm: divide weights by their largest singular value (Miyato et al. 2018, arXiv 1802.05957): of our CNNs'
            convolutions, or, without a CNN, of the hidden layers.
        scale_trunk_gradient: with dueling, scale what flows back below the two streams by 1/sqrt(2).
        design: dueling, noisy and distribution; the algorithm's switches, not for `policy_kwargs`.

    Raises:
        ConfigurationError: a keyword is out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        net_arch: Sequence[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        channels: Channels = None,
        layer_norm: bool = False,
        spectral_norm: bool = False,
        scale_trunk_gradient: bool = False,
        design: Design | None = None,
    ) -> None:
        super().__init__(observation_space, action_space)
        self.actions = ActionShape.of(action_space)
        self.design = design or Design()
        if check_bool("policy_kwargs['scale_trunk_gradient']", scale_trunk_gradient) and not self.design.dueling:
            raise ConfigurationError(
                "policy_kwargs['scale_trunk_gradient']=True belongs to dueling=True; give both or none"
            )
        widths = self.net_arch = check_widths(net_arch, self._default_net_arch(features_extractor_class))
        plan = self._features = plan_features(
            observation_space, features_extractor_class, features_extractor_kwargs, normalize_images, channels,
            layer_norm=layer_norm, spectral_norm=spectral_norm,
        )  # fmt: skip
        own_cnn = plan.hidden is not None
        if own_cnn:  # its linear layer is a hidden layer like all others
            hidden = plan.kwargs.pop("features_dim", plan.hidden)
            widths = widths if hidden is None else [check_int("features_dim", hidden, 1), *widths]
            plan.kwargs["features_dim"] = None
        elif spectral_norm and self.design.noisy is not None:
            raise ConfigurationError(
                "policy_kwargs['spectral_norm']=True bounds weights that noisy=True keeps moving; give one"
            )
        self._torso = Torso(
            widths, check_activation(activation_fn), layer_norm, spectral_norm and not own_cnn, scale_trunk_gradient
        )
        self.q_net = self.make_q_net()
        self.q_net_target = copy.deepcopy(self.q_net)
        self.q_net_target.requires_grad_(False)

    def make_q_net(self) -> QNetwork:
        """A new net; own policy classes override this."""
        return QNetwork(self.make_features(), self._torso, self.actions, self.design)

    def make_features(self) -> Features:
        """New features, as the keywords say."""
        return self._features.make()

    def values(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """What actions are chosen by, `[N, (D,) A]`; illegal ones lie below all others."""
        return self.q_net(obs, mask, noise, acting=True).q  # type: ignore[no-any-return]  # nn.Module.__call__

    def greedy(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        return self.values(obs, mask, noise).argmax(-1)

    def with_net(self, net: nn.Module) -> QPolicy:
        """This policy, asking another online net, for instance a copy of its own in another precision."""
        other = copy.copy(self)
        other._modules = {**self._modules, "q_net": net}
        return other

    def make_noise(self, rows: int) -> Noise | None:
        """Room for the random numbers of acting on `rows` observations."""
        device = next(self.q_net.parameters()).device
        return self.q_net.make_noise(rows, self.design.distribution.num_acting, device, per_row=True)

    def _default_net_arch(self, extractor: type[BaseFeaturesExtractor] | None) -> list[int]:
        # a lone image ends in the CNN's own linear layer; vectors and mixtures need layers of ours
        return [] if extractor is None and is_image_space(self.observation_space, {}) else [64, 64]


class MlpPolicy(OfVectors, QPolicy):
    """For vectors and whole numbers: the observation in one row, an image's pixels too, two layers of 64."""


class CnnPolicy(OfAnImage, QPolicy):
    """For one image: the Nature CNN, then the head."""


class MultiInputPolicy(OfADict, QPolicy):
    """For a Dict: each key through its own extractor, side by side."""
