"""The `custom_objects` passed to `load`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from sb_dqn.errors import nearest


class CustomObjects(dict[str, Any]):
    """Replacements by argument name; records the names that were looked up.

    Args:
        objects: replacements by name.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        super().__init__(objects)
        self.looked_up: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.looked_up.add(str(name))
        return super().__contains__(name)

    def warn_of_unused(self, names: Collection[str], known: Collection[str]) -> None:
        """Warns for each of `names` that was never looked up: a misspelt name would otherwise have no effect unnoticed.

        Args:
            names: names to check.
            known: argument names in the file, for the message.
        """
        for name in sorted(set(names) - self.looked_up):
            warnings.warn(
                f"keys of custom_objects must be among {sorted(known)}, got {name!r}, which replaces nothing. Use one of "
                f"them.{nearest(name, known)}",
                stacklevel=3,
            )
