"""The channel axis of images in model files: as it was when the model was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from sb_dqn.errors import SpaceError
from sb_dqn.spaces import flatten_space, image_channels_last, is_bytes, is_image, leaf_shape
from sb_dqn.types import Blueprint


def with_saved_channels(
    arguments: Mapping[str, Any], blueprint: Blueprint, saved: Mapping[str, str] | None
) -> dict[str, Any]:
    """Returns the arguments of a model file with `policy_kwargs["channels"]` where the shape alone would say otherwise.

    Args:
        arguments: of the constructor.
        blueprint: spaces of the model.
        saved: "first" or "last" by key of each image; None in files from before they held it.
    """
    kwargs = arguments.get("policy_kwargs") or {}
    given = kwargs.get("channels")
    if isinstance(given, str) or blueprint.frame_stack > 1:
        return dict(arguments)
    normalized = kwargs.get("normalize_images") is False
    images = {
        key: leaf
        for key, leaf in flatten_space(blueprint.observation_space).items()
        if isinstance(leaf, spaces.Box) and is_image(leaf, normalized) and key not in (given or {})
    }
    trained = {key: _formerly(leaf) for key, leaf in images.items()} if saved is None else saved
    differing = {key: trained[key] for key, leaf in images.items() if key in trained and trained[key] != _now(leaf)}
    if not differing:
        return dict(arguments)
    return {**arguments, "policy_kwargs": {**kwargs, "channels": {**(given or {}), **differing}}}


def _now(image: spaces.Box) -> str | None:
    try:
        return "last" if image_channels_last(image) else "first"
    except SpaceError:
        return None


def _formerly(image: spaces.Box) -> str:
    """The rule of files without `images`: bytes had their channels last if that axis was 1, 3 or 4."""
    first, middle, last = leaf_shape(image)
    if is_bytes(image):
        return "last" if last in (1, 3, 4) else "first"
    if middle in (first, last):
        return "last" if first == middle else "first"
    return "last" if last < first else "first"
