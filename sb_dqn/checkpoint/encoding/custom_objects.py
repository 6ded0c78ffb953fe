"""What a user hands in for what a file says."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from sb_dqn.errors import nearest


class CustomObjects(dict[str, Any]):
    """Objects by the name of what they replace; remembers which names a file asked for."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.asked: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    def warn_of_unused(self, names: Collection[str], known: Collection[str]) -> None:
        """Warns of those of `names` that the file did not ask for: a slip of the pen would change nothing in silence."""
        for name in sorted(set(names) - self.asked):
            warnings.warn(
                f"custom_objects: the file has no {name!r}, so nothing is replaced by it.{nearest(name, known)} "
                f"It has {sorted(known)}",
                stacklevel=3,
            )
