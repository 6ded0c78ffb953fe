"""The keywords of `policy_kwargs` that every family of policies takes, checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces
from torch import nn

from sb_dqn.checkpoint.values import ACTIVATIONS, OPTIMIZERS
from sb_dqn.checks import check_bool, check_choice, check_int, check_mapping
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.extractors import EXTRACTORS, BaseFeaturesExtractor, CombinedExtractor
from sb_dqn.nn.optimizers import RMSpropTFLike
from sb_dqn.policies.base import Features, default_extractor
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
class FeaturesPlan:
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

    def with_hidden(self) -> FeaturesPlan:
        """The same, our CNNs with their hidden layer unless the user said otherwise."""
        if self.hidden is not None:
            self.kwargs.setdefault("features_dim", self.hidden)
        return self

    def make(self) -> Features:
        """New features."""
        return Features(self.space, self.extractor, self.kwargs, self.normalize_images, self.channels)


def plan_features(
    space: spaces.Space[Any],
    features_extractor_class: type[BaseFeaturesExtractor] | None,
    features_extractor_kwargs: Mapping[str, Any] | None,
    normalize_images: bool,
    channels: Channels,
    **norms: bool,
) -> FeaturesPlan:
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
    plan = FeaturesPlan(space, extractor, kwargs, normalize_images, channels)
    if plan.hidden is not None or extractor is CombinedExtractor:
        kwargs.setdefault("normalized_image", not normalize_images)
    if plan.hidden is not None:
        for norm, wanted in norms.items():
            if wanted:
                switch_on(norm, extractor, kwargs)
    return plan


def check_channels(given: Channels, space: spaces.Space[Any]) -> None:
    """Refuses anything but "first", "last", one of them by key of the observation, or None.

    Raises:
        ConfigurationError: another value, or a key that the observation lacks.
    """
    name = "policy_kwargs['channels']"
    if isinstance(given, Mapping):
        for key, value in given.items():
            check_choice(f"key of {name}", key, tuple(flatten_space(space)))
            check_choice(f"{name}[{key!r}]", value, ("first", "last"))
    elif given is not None:
        check_choice(name, given, ("first", "last"))


def is_image_space(space: spaces.Space[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an observation space is one image and nothing else, for a policy with these keywords."""
    leaves = flatten_space(space)
    return set(leaves) == {"obs"} and is_image(leaves["obs"], kwargs.get("normalize_images") is False)


def check_one_image(space: spaces.Space[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses a CnnPolicy for what is no image, unless it has a features extractor of its own.

    Raises:
        ConfigurationError: it is for no image.
    """
    if "features_extractor_class" not in kwargs and not is_image_space(space, kwargs):
        raise ConfigurationError(
            f"CnnPolicy needs one image (uint8, bounds 0..255, three axes), not {space}; use 'MlpPolicy' for vectors, "
            f"'MultiInputPolicy' for a Dict, policy_kwargs={{'normalize_images': False}} for images of other numbers, or give "
            f"a features_extractor_class"
        )


def check_dict(space: spaces.Space[Any]) -> None:
    """Refuses a MultiInputPolicy for what is no Dict.

    Raises:
        ConfigurationError: it is none.
    """
    if not isinstance(space, spaces.Dict):
        raise ConfigurationError(
            f"MultiInputPolicy needs a Dict observation space, not {space}; use 'CnnPolicy' for one image "
            f"and 'MlpPolicy' for vectors"
        )


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
    if isinstance(given, (str, Mapping)) or _holds_dict(given) or not isinstance(given, Sequence):
        raise ConfigurationError(f"{name}={given!r} is not allowed: give a list of widths, e.g. [64, 64]")
    return [check_int(f"{name} entry", width, 1) for width in given]


def refuse_dict_in_list(net_arch: Any, towers: tuple[str, str]) -> None:
    """Refuses the form that Stable-Baselines3 had before version 1.8, and names the one that works.

    Args:
        net_arch: as it was given.
        towers: what the two entries of a dict are called.

    Raises:
        ConfigurationError: it is a list that holds a dict.
    """
    if not _holds_dict(net_arch):
        return
    shared = [width for width in net_arch if not isinstance(width, Mapping)]
    given = next(entry for entry in net_arch if isinstance(entry, Mapping))
    form = ", ".join(f"{name}={_joined(shared, given.get(name, []))}" for name in towers)
    raise ConfigurationError(
        f"policy_kwargs['net_arch'] must be a list of widths or a dict, got {net_arch!r}. Give dict({form}); the two share no layer"
    )


def _joined(shared: list[Any], widths: Any) -> Any:
    return [*shared, *widths] if isinstance(widths, (list, tuple)) else widths


def _holds_dict(given: Any) -> bool:
    return isinstance(given, (list, tuple)) and any(isinstance(entry, Mapping) for entry in given)


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
