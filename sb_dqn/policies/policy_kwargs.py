"""Checks of the keywords in `policy_kwargs` that all families of policies share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from gymnasium import spaces
from torch import nn

from sb_dqn.checkpoint.encoding.constructor_arguments import ACTIVATIONS, OPTIMIZERS
from sb_dqn.checks import check_bool, check_choice, check_int, check_keys, check_mapping
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.parameters.optimizers import RMSpropTFLike
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor, Features, FlattenExtractor
from sb_dqn.nn.torsos.features import EXTRACTORS, CombinedExtractor, default_extractor
from sb_dqn.policies.base import Kind
from sb_dqn.spaces import Channels, Space, flatten_space, is_image
from sb_dqn.types import Kwargs, Settings

Widths = Sequence[int] | Mapping[str, Sequence[int]]
CLASSES: Mapping[str, Mapping[str, type]] = {
    "features_extractor_class": EXTRACTORS,
    "activation_fn": {cls.__name__: cls for cls in ACTIVATIONS},
    "optimizer_class": {cls.__name__: cls for cls in (*OPTIMIZERS, RMSpropTFLike)},
}
"""Classes by name, for presets and the command line, which are text."""


def classes_of_names(kwargs: Settings) -> Kwargs:
    """Returns keywords with classes in place of their names.

    Raises:
        ConfigurationError: unknown name.
    """
    resolved = dict(kwargs)
    for key, classes in CLASSES.items():
        if isinstance(name := resolved.get(key), str):
            if name not in classes:
                raise ConfigurationError(
                    f"policy_kwargs[{key!r}] must be a class or one of {sorted(classes)}, got {name!r}. Give one of them."
                    f"{nearest(name, classes)}"
                )
            resolved[key] = classes[name]
    return resolved


def features_maker(
    space: Space,
    features_extractor_class: type[BaseFeaturesExtractor] | None,
    features_extractor_kwargs: Settings | None,
    normalize_images: bool,
    channels: Channels,
    **norms: bool,
) -> tuple[Callable[[], Features], Kwargs, int | None]:
    """Checks the keywords of features.

    Args:
        space: observation space of one lane.
        features_extractor_class: class of the features extractor. If None, the observation space determines it.
        features_extractor_kwargs: its keyword arguments.
        normalize_images: see `Features`.
        channels: see `Features`.
        norms: norms by keyword; those that are True are enabled in a CNN of this package.

    Returns:
        A function that makes new features; the keyword arguments of the features extractor, which may be changed before; and of a
        CNN of this package the width of the hidden layer in its paper, else None.

    Raises:
        ConfigurationError: a keyword is out of range, or the CNN has no such norm.
    """
    check_bool("policy_kwargs['normalize_images']", normalize_images)
    check_channels(channels, space)
    for norm, enabled in norms.items():
        check_bool(f"policy_kwargs[{norm!r}]", enabled)
    extractor = features_extractor_class or default_extractor(space, channels, not normalize_images)
    kwargs = check_mapping("features_extractor_kwargs", features_extractor_kwargs)
    hidden: int | None = getattr(extractor, "__dict__", {}).get("HIDDEN")
    if hidden is not None or extractor is CombinedExtractor:
        kwargs.setdefault("normalized_image", not normalize_images)
    if hidden is not None:
        for norm, enabled in norms.items():
            if enabled:
                enable_norm(norm, extractor, kwargs)
    return partial(Features, space, extractor, kwargs, normalize_images, channels), kwargs, hidden


def check_channels(channels: Channels, space: Space) -> None:
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


def is_image_space(space: Space, normalize_images: object = True) -> bool:
    """Returns True if an observation space is a single image, for a policy with this `normalize_images`."""
    leaves = flatten_space(space)
    return set(leaves) == {"obs"} and is_image(leaves["obs"], normalize_images is False)


def extractor_of_kind(
    kind: Kind,
    space: Space,
    features_extractor_class: type[BaseFeaturesExtractor] | None,
    normalize_images: object,
) -> type[BaseFeaturesExtractor] | None:
    """Returns the features extractor class of a policy of some `kind`, or None if the space decides.

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


def enable_norm(norm: str, extractor: type[BaseFeaturesExtractor], kwargs: Kwargs) -> None:
    """Enables a norm of a CNN of this package in its `kwargs`, unless its default or the user chose another kind.

    Raises:
        ConfigurationError: the CNN has no such norm.
    """
    parameters = inspect.signature(extractor).parameters
    if norm not in parameters:
        raise ConfigurationError(
            f"policy_kwargs[{norm!r}] must be False for {extractor.__name__}, which has no {norm}, got True. Leave it out."
        )
    if parameters[norm].default is False:
        kwargs.setdefault(norm, True)


def check_widths(
    widths: Sequence[int] | None, default: list[int], name: str = "policy_kwargs['net_arch']"
) -> list[int]:
    """Returns the widths of hidden layers, which are `default` if `widths` is None.

    Raises:
        ConfigurationError: `widths` is not a list of integers >= 1.
    """
    if widths is None:
        return default
    if isinstance(widths, (str, Mapping)) or _holds_dict(widths) or not isinstance(widths, Sequence):
        raise ConfigurationError(f"{name} must be a list of widths, got {widths!r}. Give for example [64, 64].")
    return [check_int(f"{name} entry", width, 1) for width in widths]


def tower_widths(
    net_arch: Widths | None, towers: tuple[str, str], default: list[int], whole: bool = True
) -> tuple[list[int], list[int]]:
    """Returns the widths of the hidden layers of two towers.

    Args:
        net_arch: a list for both, or a dict by the names of the towers.
        towers: names of the towers.
        default: widths of both for None.
        whole: if True, a dict must have both towers; otherwise a tower that it lacks has no hidden layer.

    Raises:
        ConfigurationError: neither a list nor a dict of the two; the form before Stable-Baselines3 1.8, a list with a dict, has a
            message with the form that works.
    """
    name = "policy_kwargs['net_arch']"
    if isinstance(net_arch, Mapping):
        widths_of = check_keys(name, net_arch, towers)
        if whole and set(widths_of) != set(towers):
            form = ", ".join(f"{tower}=[...]" for tower in towers)
            raise ConfigurationError(
                f"{name} must be a list or a dict of {' and '.join(towers)}, got {net_arch!r}. Give dict({form})."
            )
        pi, other = (check_widths(widths_of.get(tower, []), default, f"{name}[{tower!r}]") for tower in towers)
        return pi, other
    if _holds_dict(net_arch):
        entries: Any = net_arch
        shared = [width for width in entries if not isinstance(width, Mapping)]
        separate = next(entry for entry in entries if isinstance(entry, Mapping))
        form = ", ".join(f"{tower}={_joined(shared, separate.get(tower, []))}" for tower in towers)
        raise ConfigurationError(
            f"{name} must be a list of widths or a dict, got {net_arch!r}. Give dict({form}), whose parts share no layer."
        )
    widths = check_widths(net_arch, default)
    return widths, list(widths)


def _joined(shared: list[int], widths: object) -> object:
    return [*shared, *widths] if isinstance(widths, (list, tuple)) else widths


def _holds_dict(net_arch: object) -> bool:
    return isinstance(net_arch, (list, tuple)) and any(isinstance(entry, Mapping) for entry in net_arch)


def check_activation(activation_fn: Any) -> type[nn.Module]:
    """Returns a class of modules, or a callable that makes one, such as a partial of a class.

    Raises:
        ConfigurationError: `activation_fn` is neither of these.
    """
    module = None
    with suppress(TypeError):  # raised by functions without their argument
        module = activation_fn()
    if isinstance(activation_fn, nn.Module) or not isinstance(module, nn.Module):
        raise ConfigurationError(
            f"policy_kwargs['activation_fn'] must be a class of modules, got {activation_fn!r}. Give for example torch.nn.ReLU."
        )
    checked: type[nn.Module] = activation_fn
    return checked


def sde_settings(use_sde: bool, full_std: bool, use_expln: bool, action_space: Space) -> Kwargs | None:
    """Returns the arguments of heads with state-dependent exploration, or None without it.

    Raises:
        ConfigurationError: it is on and the action space is no Box, or an argument is no bool.
    """
    settings = {
        name: check_bool(f"policy_kwargs[{name!r}]", value)
        for name, value in (("full_std", full_std), ("use_expln", use_expln))
    }
    if not use_sde:
        return None
    if not isinstance(action_space, spaces.Box):
        raise ConfigurationError(
            f"use_sde must be False for discrete actions, got True with {action_space}. Leave it out."
        )
    return settings
