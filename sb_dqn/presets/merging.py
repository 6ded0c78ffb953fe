"""Settings of a preset with other ones over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MERGED = ("features_extractor_kwargs", "optimizer_kwargs")
"""Dicts within `policy_kwargs` that are merged key by key, like `policy_kwargs` itself."""


def merge_settings(preset: Mapping[str, Any], assigned: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the preset's settings with `assigned` over them.

    `policy_kwargs` are merged, so that another width keeps the preset's layer norm; null removes a key of the preset.
    """
    settings = {**preset, **assigned}
    base, override = preset.get("policy_kwargs"), assigned.get("policy_kwargs")
    if isinstance(base, Mapping) and isinstance(override, Mapping):
        merged = merge_policy_kwargs(base, override)
        removed = {name for name in base if merged[name] is None}
        settings["policy_kwargs"] = {name: value for name, value in merged.items() if name not in removed}
    return settings


def merge_policy_kwargs(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `policy_kwargs` with `override` over `base`; the dicts of `MERGED` are merged key by key."""
    inner = {
        name: {**base[name], **override[name]}
        for name in MERGED
        if isinstance(base.get(name), Mapping) and isinstance(override.get(name), Mapping)
    }
    return {**base, **override, **inner}
