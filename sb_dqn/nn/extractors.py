"""Features extractors, with Stable-Baselines3's contract: built for a space, they say their `features_dim`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_choice
from sb_dqn.nn.base import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.nn.convolutions import ImageExtractor, MinAtarCNN, NatureCNN
from sb_dqn.nn.hadamax import HadamaxCNN
from sb_dqn.nn.impala import ImpalaCNN
from sb_dqn.spaces import is_image

__all__ = [
    "EXTRACTORS", "BaseFeaturesExtractor", "CombinedExtractor", "FlattenExtractor", "HadamaxCNN", "ImageExtractor",
    "ImpalaCNN", "MinAtarCNN", "NatureCNN", "default_cnn",
]  # fmt: skip

NATURE_PIXELS = 36
"""The Nature CNN leaves nothing of a smaller image."""


def default_cnn(space: spaces.Space[Any]) -> type[NatureCNN] | type[MinAtarCNN]:
    """NatureCNN for an image `[C, H, W]` that is large enough for it, else MinAtarCNN."""
    return NatureCNN if min((space.shape or (0,))[-2:]) >= NATURE_PIXELS else MinAtarCNN


class CombinedExtractor(BaseFeaturesExtractor):
    """One extractor per key of a Dict, side by side: a CNN for images, the row itself for the rest.

    Args:
        observation_space: Dict of leaves, after preprocessing.
        cnn_output_dim: width of each CNN's features.
        normalized_image: take any Box of three axes for an image.
        cnn_class: of each CNN, or its name; None: by the size of the image.
        cnn_kwargs: its keywords.

    Raises:
        ConfigurationError: there is no CNN of that name.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        cnn_class: type[BaseFeaturesExtractor] | str | None = None,
        cnn_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(cnn_class, str):
            check_choice("features_extractor_kwargs['cnn_class']", cnn_class, tuple(EXTRACTORS))
            cnn_class = EXTRACTORS[cnn_class]
        kwargs = {"features_dim": cnn_output_dim, "normalized_image": normalized_image, **(cnn_kwargs or {})}
        parts: dict[str, BaseFeaturesExtractor] = {
            key: (cnn_class or default_cnn(leaf))(leaf, **kwargs)
            if is_image(leaf, normalized_image)
            else FlattenExtractor(leaf)
            for key, leaf in observation_space.spaces.items()
        }
        super().__init__(observation_space, sum(part.features_dim for part in parts.values()))
        # a module's name may not hold a dot; the paths of nested keys may
        self.keys = list(parts)
        self.parts = nn.ModuleList(parts.values())

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)], -1)


EXTRACTORS: dict[str, type[BaseFeaturesExtractor]] = {
    extractor.__name__: extractor
    for extractor in (FlattenExtractor, NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN, CombinedExtractor)
}
"""Classes that a checkpoint may name without trust."""
