"""Marks tests that `scripts/test` leaves out: further cases of what others show, and slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

FULL = pytest.mark.full
SLOW = pytest.mark.slow
PARAM: Any = type(pytest.param())


def a_few(cases: Iterable[Any], *kept: Any) -> list[Any]:
    """Returns arguments of `parametrize` in which all cases but the kept ones are marked `full`.

    Args:
        cases: values of one argument, tuples of the values of several, or results of `pytest.param`.
        kept: cases, or first values of cases, which keep all cases that begin with them.

    Raises:
        ValueError: no case is one of those to keep.
    """
    found = [case if isinstance(case, PARAM) else _param(case) for case in cases]
    for name in kept:
        if not any(_is(case, name) for case in found):
            raise ValueError(f"kept must be among the cases, got {name!r}. Name a case that is there.")
    return [case if any(_is(case, name) for name in kept) else _marked(case) for case in found]


def first_few(cases: Iterable[Any], count: int) -> list[Any]:
    """Returns arguments of `parametrize` in which all cases after the first `count` are marked `full`.

    Raises:
        ValueError: there are fewer cases.
    """
    found = [case if isinstance(case, PARAM) else _param(case) for case in cases]
    if len(found) < count:
        raise ValueError(f"count must be at most the number of cases {len(found)}, got {count}. Keep fewer.")
    return found[:count] + [_marked(case) for case in found[count:]]


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)


def _marked(case: Any) -> Any:
    return pytest.param(*case.values, marks=[*case.marks, FULL], id=case.id)


def _is(case: Any, name: Any) -> bool:
    return bool(case.values == (name if isinstance(name, tuple) else (name,)) or case.values[0] == name)


ON_DEVICES_IN_FULL = pytest.mark.parametrize("storage", a_few(["host", "device"], "host"), indirect=True)
"""For tests of the fixture `storage` of tests/buffers."""
