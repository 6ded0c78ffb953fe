"""The policy: what a model thinks with. Abstract here; leaves live beside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError, no_attribute
from sb_dqn.nn.extractors import (
    EXTRACTORS,
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    default_cnn,
    make_extractor,
)
from sb_dqn.nn.noise import Noise
from sb_dqn.nn.preprocess import Pixels, Preprocess
from sb_dqn.spaces import Channels, is_image

VALUES = "Call model.policy.net({'obs': tensor}) of an actor-critic: its .value, and a distribution .policy with log_prob and entropy"
ELSEWHERE = {
    "predict": "Call model.predict",
    "obs_to_tensor": "Nets take a flat dict of tensors [N, *shape], {'obs': tensor} for a lone observation",
    "optimizer": "Read model.learner.optimizer",
    "device": "Read model.device",
    "set_training_mode": "There is none: nets stay as in eval(), noise is handed to them with each call",
    "features_extractor": "Read the features of the net: model.policy.q_net.features of a Q-agent, model.policy.net.features of an "
    "actor-critic",
    "features_dim": "Read it off the features of the net: model.policy.q_net.features.features_dim, for example",
    "extract_features": "Call the features of the net: model.policy.q_net.features(obs), for example",
    "lr_schedule": "Read model.rate_schedule",
    "save": "Call model.save",
    "load": "Call the load of the algorithm, DQN.load for example",
    "q_net": "This policy has no values of actions: see policy.net, or policy.nets of SAC",
    "predict_values": VALUES,
    "evaluate_actions": VALUES,
    "get_distribution": "Call policy.distribution(obs, mask), where actions are drawn",
    "mlp_extractor": "Read policy.net",
    "action_net": "Read policy.net.action_head",
    "value_net": "Read policy.net",
    "scale_action": "There is none: actions of a Box leave predict in its own units",
    "unscale_action": "There is none: actions of a Box leave predict in its own units",
}
"""Names of Stable-Baselines3's policies, and what stands for them here."""


class Policy(nn.Module, ABC):
    """Networks for one pair of spaces.

    Args:
        observation_space: of one lane, as the networks see it (with its frame stack).
        action_space: of one lane.
    """

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space

    if not TYPE_CHECKING:  # for a type checker every name would be one of a policy

        def __getattr__(self, name: str) -> Any:
            """A net or a tensor, which torch keeps apart from attributes.

            Raises:
                AttributeError: there is none of that name.
            """
            try:
                return super().__getattr__(name)
            except AttributeError:
                raise no_attribute(self, name, ELSEWHERE) from None

    recurrent: ClassVar[bool] = False
    """Whether it remembers: it then answers step by step (`RecurrentQPolicy.step`)."""

    @property
    def reads_reward(self) -> bool:
        """Whether the last reward is an input."""
        return False

    @abstractmethod
    def greedy(self, obs: dict[str, Tensor], mask: Tensor | None = None, noise: Noise | None = None) -> Tensor:
        """The best action, of choices int64 and 0-based, for each observation of a flat dict of `[N, *shape]` tensors.

        Args:
            obs: observations.
            mask: `[N, (D,) A]` bool, legal actions; None: all.
            noise: random numbers of the nets; None: none.

        Returns:
            `[N]`, or `[N, D]` for MultiDiscrete, or of a Box `[N, *shape]` float32.
        """

    def make_noise(self, rows: int) -> Noise | None:
        """Room for the random numbers of acting on `rows` observations; None where the nets need none."""
        return None


class Features(nn.Module):
    """Preprocessing and a features extractor: a flat dict of stored observations to `[N, features_dim]`.

    Args:
        observation_space: of one lane.
        extractor_class: made for the preprocessed space.
        extractor_kwargs: its keyword arguments beside the space.
        normalize_images: divide images by 255.
        channels: "first" or "last", for all images or by key of a Dict; None decides by their shape.

    Raises:
        ConfigurationError: the extractor refuses its arguments, has no `features_dim`, or answers in another width.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        extractor_class: type[BaseFeaturesExtractor],
        extractor_kwargs: Mapping[str, Any],
        normalize_images: bool,
        channels: Channels,
    ) -> None:
        super().__init__()
        self.preprocess = Preprocess(observation_space, normalize_images, channels)
        leaves = self.preprocess.feature_spaces()
        self.is_dict = isinstance(observation_space, spaces.Dict)
        space: spaces.Space[Any] = spaces.Dict(leaves) if self.is_dict else leaves["obs"]
        self.extractor = make_extractor(extractor_class, space, dict(extractor_kwargs))
        if getattr(self.extractor, "reads_bytes", False):  # a user's may be of another family
            self.preprocess.leave_bytes()
        self.dtype = torch.float32
        if type(self.extractor) not in EXTRACTORS.values():
            self._check_width(leaves)

    def _check_width(self, leaves: Mapping[str, spaces.Space[Any]]) -> None:
        zeros = {key: torch.zeros(1, *(leaf.shape or ())) for key, leaf in leaves.items()}
        learning = {part: part.training for part in self.extractor.modules()}  # a user may have set some to eval
        with torch.no_grad():  # and without moving what a batch norm remembers
            found = self.extractor.eval()(zeros if self.is_dict else zeros["obs"])
        for part, before in learning.items():
            part.training = before
        if found.shape != (1, self.features_dim):
            raise ConfigurationError(
                f"{type(self.extractor).__name__} says features_dim={self.features_dim}, and of one observation its answer has shape "
                f"{list(found.shape)}; it must be [1, {self.features_dim}]"
            )

    @property
    def features_dim(self) -> int:
        return self.extractor.features_dim

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        x = self.preprocess(obs, self.dtype)
        return self.extractor(x if self.is_dict else x["obs"])  # type: ignore[no-any-return]  # nn.Module.__call__


def default_extractor(
    observation_space: spaces.Space[Any], channels: Channels = None, normalized: bool = False
) -> type[BaseFeaturesExtractor]:
    """A CNN that fits the size of an image, CombinedExtractor for a Dict, FlattenExtractor for the rest."""
    if isinstance(observation_space, spaces.Dict):
        return CombinedExtractor
    (leaf,) = Preprocess(observation_space, not normalized, channels).feature_spaces().values()
    return default_cnn(leaf) if is_image(leaf, normalized) else FlattenExtractor


def images_of(policy: nn.Module) -> dict[str, Pixels]:
    """Returns how each image of the observation is read, by key."""
    return {
        key: image
        for part in policy.modules()
        if isinstance(part, Features)
        for key, image in part.preprocess.images.items()
    }


def describe_images(policy: nn.Module) -> list[str]:
    """Returns one line for each image of the observation: which axis holds the channels, and the network behind it."""
    lines: dict[str, None] = {}  # a set in order: target nets read the same images
    for part in policy.modules():
        if isinstance(part, Features):
            networks = part.extractor.networks() if isinstance(part.extractor, CombinedExtractor) else {}
            for key, image in part.preprocess.images.items():
                network = type(networks.get(key, part.extractor)).__name__
                lines[f"image {key!r} of shape {image.describe()}, {network}"] = None
    return list(lines)
