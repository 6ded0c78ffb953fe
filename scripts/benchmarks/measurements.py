"""Data classes of the benchmarks: `Measurement` and `Benchmark`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scripts.benchmarks.table import Comparison


@dataclass(frozen=True)
class Measurement:
    """One call in a process of its own.

    Its figures become the series `name`, or `name key` for each figure that has a key of its own.
    """

    name: str
    function: str
    """`module.function` of this folder."""
    arguments: Mapping[str, Any]
    peer: str | None = None
    """The package that it needs beside ours."""


@dataclass(frozen=True)
class Benchmark:
    """Measurements that are taken in turn, round by round, and what is read off them."""

    name: str
    unit: str
    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...] = ()
    less_is_better: bool = False
