"""Classes in a model file that the running program has imported already."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from sb_dqn.checkpoint import find_checkpoint, model_info
from sb_dqn.checkpoint.encoding.state_tree import TAG
from sb_dqn.checkpoint.format.sb3_zip import is_sb3_zip


def imported_modules_of(path: Any) -> dict[str, type[nn.Module]]:
    """Returns the `nn.Module` classes that a model file names by import path, by dotted argument name.

    Only modules that are imported already are looked into, so that loading imports and runs nothing.
    """
    if is_sb3_zip(path):
        return {}
    arguments = model_info(find_checkpoint(path)).get("arguments")
    found = {name: _class_at(str(data.get("path"))) for name, data in _imports("", arguments)}
    return {name: cls for name, cls in found.items() if cls is not None}


def _imports(name: str, data: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the nested entries that are import paths, with their dotted names."""
    if not isinstance(data, dict):
        return
    if data.get(TAG) == "import":
        yield name, data
        return
    for key, inner in data.items():
        yield from _imports(f"{name}.{key}".lstrip("."), inner)


def _class_at(path: str) -> type[nn.Module] | None:
    module, _, qualname = path.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = vars(found).get(part) if isinstance(found, (type, type(sys))) else None
    return found if isinstance(found, type) and issubclass(found, nn.Module) else None
