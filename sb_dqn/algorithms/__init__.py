"""Algorithms. Each file is a constructor that names the parts of one algorithm; `registry.py` lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sb_dqn.algorithms.registry import MODULES, NAMES, algorithm_class

if TYPE_CHECKING:
    from sb_dqn.algorithms.registry import *  # noqa: F403

    ALGORITHMS: dict[str, Any]
    """Every class by its name."""


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return algorithm_class(name)
    if name == "ALGORITHMS":
        return {each: algorithm_class(each) for each in NAMES}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*MODULES, "ALGORITHMS"])
