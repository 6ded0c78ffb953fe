"""Registry of features extractors, the default ones, and the one for Dict observations."""

from __future__ import annotations

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_choice, check_int, check_mapping
from sb_dqn.nn.torsos.convolutions import ImageExtractor, MinAtarCNN, NatureCNN
from sb_dqn.nn.torsos.feature_extractor import (
    BaseFeaturesExtractor,
    Features,
    FlattenExtractor,
    Pixels,
    Preprocess,
    make_extractor,
)
from sb_dqn.nn.torsos.hadamax import HadamaxCNN
from sb_dqn.nn.torsos.impala import ImpalaCNN
from sb_dqn.nn.torsos.residual_mlp import MultiSkipMLP, SimBa
from sb_dqn.spaces import Channels, Space, is_image
from sb_dqn.types import Settings

NATURE_PIXELS = 36
"""Smallest height and width for the Nature CNN, in pixels."""


def default_cnn(space: Space) -> type[NatureCNN] | type[MinAtarCNN]:
    """Returns NatureCNN for an image `[C, H, W]` that is large enough for it, else MinAtarCNN."""
    return NatureCNN if min((space.shape or (0,))[-2:]) >= NATURE_PIXELS else MinAtarCNN


def default_extractor(
    observation_space: Space, channels: Channels = None, normalized: bool = False
) -> type[BaseFeaturesExtractor]:
    """Returns a CNN by the size of an image, CombinedExtractor for a Dict, FlattenExtractor for anything else."""
    if isinstance(observation_space, spaces.Dict):
        return CombinedExtractor
    (leaf,) = Preprocess(observation_space, not normalized, channels).feature_spaces().values()
    return default_cnn(leaf) if is_image(leaf, normalized) else FlattenExtractor


class CombinedExtractor(BaseFeaturesExtractor):
    """One features extractor per key of a Dict, their outputs concatenated: a CNN for images, flattening for other keys.

    Args:
        observation_space: Dict of leaves, after preprocessing.
        cnn_output_dim: width of each CNN's features.
        normalized_image: True treats any Box of three axes as an image.
        cnn_class: class of each CNN, or its name. If None, the size of the image decides.
        cnn_kwargs: keyword arguments of each CNN.

    Raises:
        ConfigurationError: unknown name, or the class refuses the arguments.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        cnn_class: type[BaseFeaturesExtractor] | str | None = None,
        cnn_kwargs: Settings | None = None,
    ) -> None:
        if isinstance(cnn_class, str):
            check_choice("features_extractor_kwargs['cnn_class']", cnn_class, CNNS)
            cnn_class = EXTRACTORS[cnn_class]
        extra_kwargs = check_mapping("features_extractor_kwargs['cnn_kwargs']", cnn_kwargs)
        leaves = observation_space.spaces
        images = [key for key, leaf in leaves.items() if is_image(leaf, normalized_image)]
        width = check_int("features_extractor_kwargs['cnn_output_dim']", cnn_output_dim, 1)
        kwargs = {"features_dim": width, "normalized_image": normalized_image, **extra_kwargs}
        names = "features_extractor_kwargs['cnn_class']", "cnn_kwargs"
        parts: dict[str, BaseFeaturesExtractor] = {
            key: make_extractor(cnn_class or default_cnn(leaf), leaf, kwargs, names)
            if key in images
            else FlattenExtractor(leaf)
            for key, leaf in leaves.items()
        }
        super().__init__(observation_space, sum(part.features_dim for part in parts.values()))
        # names of modules must not contain dots, which the paths of nested keys do
        self.keys = list(parts)
        self.parts = nn.ModuleList(parts.values())

    def networks(self) -> dict[str, nn.Module]:
        """Returns the extractor of each key."""
        return dict(zip(self.keys, self.parts, strict=True))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)], -1)


BUILT_IN = (FlattenExtractor, NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN, CombinedExtractor, SimBa, MultiSkipMLP)
EXTRACTORS: dict[str, type[BaseFeaturesExtractor]] = {extractor.__name__: extractor for extractor in BUILT_IN}
"""Classes that a checkpoint may name without `trust`."""
CNNS = tuple(name for name, extractor in EXTRACTORS.items() if issubclass(extractor, ImageExtractor))
"""Names of the features extractors for images."""


def images_of(policy: nn.Module) -> dict[str, Pixels]:
    """Returns the preprocessing of each image of the observation, by key."""
    return {
        key: image
        for part in policy.modules()
        if isinstance(part, Features)
        for key, image in part.preprocess.images.items()
    }


def describe_images(policy: nn.Module) -> list[str]:
    """Returns one line for each image of the observation: the axis of its channels, and its network."""
    lines: dict[str, None] = {}  # an ordered set: target networks read the same images
    for part in policy.modules():
        if isinstance(part, Features):
            networks = part.extractor.networks() if isinstance(part.extractor, CombinedExtractor) else {}
            for key, image in part.preprocess.images.items():
                network = type(networks.get(key, part.extractor)).__name__
                lines[f"image {key!r} of shape {image.describe()}, {network}"] = None
    return list(lines)
