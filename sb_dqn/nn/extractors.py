"""Features extractors, with Stable-Baselines3's contract: built for a space, they say their `features_dim`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from sb_dqn.checks import check_choice, check_int, check_mapping
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.base import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.nn.convolutions import ImageExtractor, MinAtarCNN, NatureCNN
from sb_dqn.nn.hadamax import HadamaxCNN
from sb_dqn.nn.impala import ImpalaCNN
from sb_dqn.spaces import is_image

__all__ = [
    "EXTRACTORS", "BaseFeaturesExtractor", "CombinedExtractor", "FlattenExtractor", "HadamaxCNN", "ImageExtractor",
    "ImpalaCNN", "MinAtarCNN", "NatureCNN", "default_cnn", "make_extractor",
]  # fmt: skip

NATURE_PIXELS = 36
"""The Nature CNN leaves nothing of a smaller image."""


def default_cnn(space: spaces.Space[Any]) -> type[NatureCNN] | type[MinAtarCNN]:
    """NatureCNN for an image `[C, H, W]` that is large enough for it, else MinAtarCNN."""
    return NatureCNN if min((space.shape or (0,))[-2:]) >= NATURE_PIXELS else MinAtarCNN


def make_extractor(
    chosen: Any,
    space: spaces.Space[Any],
    kwargs: dict[str, Any],
    names: tuple[str, str] = ("features_extractor_class", "features_extractor_kwargs"),
) -> BaseFeaturesExtractor:
    """An extractor of a class that a user may have chosen.

    Args:
        chosen: the class.
        space: that it is made for.
        kwargs: its further arguments.
        names: of the keywords that `chosen` and `kwargs` came by, for messages.

    Raises:
        ConfigurationError: it is no such class, or does not take these arguments.
    """
    if not callable(chosen) or isinstance(chosen, nn.Module):
        raise ConfigurationError(f"{names[0]}={chosen!r} is not allowed: give a subclass of BaseFeaturesExtractor")
    name = getattr(chosen, "__name__", repr(chosen))
    try:
        extractor: BaseFeaturesExtractor = chosen(space, **kwargs)
    except TypeError as error:
        allowed = list(inspect.signature(chosen).parameters)[1:]
        unknown = next((str(key) for key in kwargs if key not in allowed), "")
        raise ConfigurationError(
            f"{names[0]}={name} does not take {names[1]}={kwargs}: {error}; allowed are {allowed}.{nearest(unknown, allowed)}"
        ) from error
    if getattr(extractor, "features_dim", None) is None:
        raise ConfigurationError(
            f"{names[0]}={name} has no features_dim; derive it from BaseFeaturesExtractor and give the width of its output "
            f"to super().__init__(observation_space, features_dim)"
        )
    return extractor


class CombinedExtractor(BaseFeaturesExtractor):
    """One extractor per key of a Dict, side by side: a CNN for images, the row itself for the rest.

    Args:
        observation_space: Dict of leaves, after preprocessing.
        cnn_output_dim: width of each CNN's features.
        normalized_image: take any Box of three axes for an image.
        cnn_class: of each CNN, or its name; None: by the size of the image.
        cnn_kwargs: its keywords.

    Raises:
        ConfigurationError: there is no CNN of that name, or it does not take these arguments.
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
            check_choice("features_extractor_kwargs['cnn_class']", cnn_class, CNNS)
            cnn_class = EXTRACTORS[cnn_class]
        further = check_mapping("features_extractor_kwargs['cnn_kwargs']", cnn_kwargs)
        leaves = observation_space.spaces
        images = [key for key, leaf in leaves.items() if is_image(leaf, normalized_image)]
        width = check_int("features_extractor_kwargs['cnn_output_dim']", cnn_output_dim, 1)
        kwargs = {"features_dim": width, "normalized_image": normalized_image, **further}
        names = "features_extractor_kwargs['cnn_class']", "cnn_kwargs"
        parts: dict[str, BaseFeaturesExtractor] = {
            key: make_extractor(cnn_class or default_cnn(leaf), leaf, kwargs, names)
            if key in images
            else FlattenExtractor(leaf)
            for key, leaf in leaves.items()
        }
        super().__init__(observation_space, sum(part.features_dim for part in parts.values()))
        # a module's name may not hold a dot; the paths of nested keys may
        self.keys = list(parts)
        self.parts = nn.ModuleList(parts.values())

    def networks(self) -> dict[str, nn.Module]:
        """Returns the extractor of each key."""
        return dict(zip(self.keys, self.parts, strict=True))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)], -1)


EXTRACTORS: dict[str, type[BaseFeaturesExtractor]] = {
    extractor.__name__: extractor
    for extractor in (FlattenExtractor, NatureCNN, MinAtarCNN, ImpalaCNN, HadamaxCNN, CombinedExtractor)
}
"""Classes that a checkpoint may name without trust."""
CNNS = tuple(name for name, extractor in EXTRACTORS.items() if issubclass(extractor, ImageExtractor))
"""Those for images."""
