"""The keywords of `policy_kwargs` that every family of policies takes, checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces
from torch import nn

from sb_dqn.checkpoint.encoding.constructor_arguments import ACTIVATIONS, OPTIMIZERS
from sb_dqn.checks import check_bool, check_choice, check_int, check_mapping
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.parameters.optimizers import RMSpropTFLike
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.features import (
    EXTRACTORS,
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    default_extractor,
)
from sb_dqn.policies.base import Kind
from sb_dqn.spaces import Channels, flatten_space, is_image

NAMED: Mapping[str, Mapping[str, type]] = {
    "features_extractor_class": EXTRACTORS,
    "activation_fn": {cls.__name__: cls for cls in ACTIVATIONS},
    "optimizer_class": {cls.__name__: cls for cls in (*OPTIMIZERS, RMSpropTFLike)},
}
"""Classes that may be given by their name, since presets and the command line are text."""


def classes_of_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given`, with the classes that names in it stand for.

    Raises:
        ConfigurationError: a name of none.
    """
    found = dict(given)
    for key, classes in NAMED.items():
        if isinstance(name := found.get(key), str):
            if name not in classes:
                raise ConfigurationError(
                    f"policy_kwargs[{key!r}]={name!r} is unknown: allowed are {sorted(classes)} or a class.{nearest(name, classes)}"
                )
            found[key] = classes[name]
    return found


@dataclass(frozen=True)
class FeaturesConfig:
    """Which features are to be made of an observation.

    Args:
        space: of one lane.
        extractor: class.
        kwargs: its keyword arguments, the plan's own dict.
        normalize_images, channels: see `Features`.
    """

    space: spaces.Space[Any]
    extractor: Any
    kwargs: dict[str, Any]
    normalize_images: bool
    channels: Channels

    @property
    def hidden(self) -> int | None:
        """Width of the hidden layer that one of our CNNs has in its paper; None for all other extractors."""
        width: int | None = getattr(self.extractor, "__dict__", {}).get("HIDDEN")
        return width

    def with_hidden(self) -> FeaturesConfig:
        """The same, our CNNs with their hidden layer unless the user said otherwise."""
        if self.hidden is not None:
            self.kwargs.setdefault("features_dim", self.hidden)
        return self

    def make(self) -> Features:
        """New features."""
        return Features(self.space, self.extractor, self.kwargs, self.normalize_images, self.channels)


def features_config(
    space: spaces.Space[Any],
    features_extractor_class: type[BaseFeaturesExtractor] | None,
    features_extractor_kwargs: Mapping[str, Any] | None,
    normalize_images: bool,
    channels: Channels,
    **norms: bool,
) -> FeaturesConfig:
    """The keywords about features, checked; the norms asked for are switched on in our CNNs.

    Raises:
        ConfigurationError: one of them is out of its range, or one of our CNNs has no such norm.
    """
    check_bool("policy_kwargs['normalize_images']", normalize_images)
    check_channels(channels, space)
    for norm, wanted in norms.items():
        check_bool(f"policy_kwargs[{norm!r}]", wanted)
    extractor = features_extractor_class or default_extractor(space, channels, not normalize_images)
    kwargs = check_mapping("features_extractor_kwargs", features_extractor_kwargs)
    config = FeaturesConfig(space, extractor, kwargs, normalize_images, channels)
    if config.hidden is not None or extractor is CombinedExtractor:
        kwargs.setdefault("normalized_image", not normalize_images)
    if config.hidden is not None:
        for norm, wanted in norms.items():
            if wanted:
                switch_on(norm, extractor, kwargs)
    return config


def check_channels(channels: Channels, space: spaces.Space[Any]) -> None:
    """Checks that `channels` is "first", "last", a dict of these by key of the observation, or None.

    Raises:
        ConfigurationError: another value, or a key that the observation lacks.
    """
    name = "policy_kwargs['channels']"
    if isinstance(channels, Mapping):
        for key, value in channels.items():
            check_choice(f"key of {name}", key, tuple(flatten_space(space)))
            check_choice(f"{name}[{key!r}]", value, ("first", "last"))
    elif channels is not None:
        check_choice(name, channels, ("first", "last"))


def is_image_space(space: spaces.Space[Any], normalize_images: Any = True) -> bool:
    """Returns True if an observation space is a single image, for a policy with this `normalize_images`."""
    leaves = flatten_space(space)
    return set(leaves) == {"obs"} and is_image(leaves["obs"], normalize_images is False)


def extractor_of_kind(
    kind: Kind,
    space: spaces.Space[Any],
    features_extractor_class: type[BaseFeaturesExtractor] | None,
    normalize_images: Any,
) -> type[BaseFeaturesExtractor] | None:
    """Returns the features extractor class of a policy of some `kind`; None: chosen by the space.

    Raises:
        ConfigurationError: the policy is not for this observation space.
    """
    if kind == "dict" and not isinstance(space, spaces.Dict):
        raise ConfigurationError(
            f"observation_space must be a Dict for MultiInputPolicy, got {space}. Use 'CnnPolicy' for one image and "
            f"'MlpPolicy' for vectors."
        )
    if features_extractor_class is not None:
        return features_extractor_class
    if kind == "image" and not is_image_space(space, normalize_images):
        raise ConfigurationError(
            f"observation_space must be one image (uint8, bounds 0..255, three axes) for CnnPolicy, got {space}. Use "
            f"'MlpPolicy' for vectors, 'MultiInputPolicy' for a Dict, policy_kwargs={{'normalize_images': False}} for images "
            f"of other numbers, or give a features_extractor_class."
        )
    if kind == "vector" and not isinstance(space, spaces.Dict):
        return FlattenExtractor
    return None


def switch_on(norm: str, extractor: type[BaseFeaturesExtractor], kwargs: dict[str, Any]) -> None:
    """Asks one of our CNNs for a norm, unless it has one of its own kind or the user said which.

    Raises:
        ConfigurationError: it has no such norm.
    """
    taken = inspect.signature(extractor).parameters
    if norm not in taken:
        raise ConfigurationError(f"policy_kwargs[{norm!r}]=True: {extractor.__name__} has no {norm}; leave it out")
    if taken[norm].default is False:
        kwargs.setdefault(norm, True)


def check_widths(given: Sequence[int] | None, default: list[int], name: str = "policy_kwargs['net_arch']") -> list[int]:
    """Widths of hidden layers, the default for None.

    Raises:
        ConfigurationError: no list of whole numbers from 1 up.
    """
    if given is None:
        return default
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        raise ConfigurationError(f"{name}={given!r} is not allowed: give a list of widths, e.g. [64, 64]")
    return [check_int(f"{name} entry", width, 1) for width in given]


def check_activation(given: Any) -> type[nn.Module]:
    """A class of modules, or what makes one, such as a partial of a class.

    Raises:
        ConfigurationError: it is neither.
    """
    made = None
    with suppress(TypeError):  # what a function says without its argument
        made = given()
    if isinstance(given, nn.Module) or not isinstance(made, nn.Module):
        raise ConfigurationError(
            f"policy_kwargs['activation_fn']={given!r} is not allowed: give a class, e.g. torch.nn.ReLU"
        )
    made_by: type[nn.Module] = given
    return made_by
