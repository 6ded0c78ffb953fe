"""Names of parameters in state dicts that differ from the attributes of a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn


def keep_state_names(module: nn.Module, names: Mapping[str, str]) -> None:
    """Saves and loads children of a module under other names, so that model files keep their layout.

    Args:
        module: module whose `state_dict` and `load_state_dict` change.
        names: attribute of a child to its name in state dicts, a dotted path.
    """
    stored = {f"{attribute}.": f"{name}." for attribute, name in names.items()}
    loaded = {name: attribute for attribute, name in stored.items()}

    def save(_: nn.Module, state: dict[str, Any], prefix: str, *further: Any) -> None:
        _rename(state, prefix, stored)

    def load(_: nn.Module, state: dict[str, Any], prefix: str, *further: Any) -> None:
        _rename(state, prefix, loaded)

    module.register_state_dict_post_hook(save)  # type: ignore[no-untyped-call]  # of torch
    module.register_load_state_dict_pre_hook(load)  # type: ignore[no-untyped-call]


def _rename(state: dict[str, Any], prefix: str, names: Mapping[str, str]) -> None:
    """Renames the keys that begin with `prefix` and one of `names`, in place and in order."""
    items = list(state.items())
    state.clear()
    for key, value in items:
        old = next((old for old in names if key.startswith(prefix + old)), "")
        state[prefix + names[old] + key[len(prefix + old) :] if old else key] = value
