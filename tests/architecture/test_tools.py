"""The tools of the command line exist once: a run, a score and a setup have one class, and figures are drawn in one room."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable

import pytest

from tests.architecture.package import parsed, sources
from tests.marks import SLOW

ONCE = ("Run", "Score", "Setup")
USER_FIGURES = "sb_dqn/logger/entries.py"
"""Closes figures that a user has drawn and logged."""


def classes(source: str) -> list[str]:
    return [node.name for node in ast.walk(parsed(source)) if isinstance(node, ast.ClassDef)]


def defined_again(sources: Iterable[str]) -> list[str]:
    """Names of `ONCE` that have not exactly one class."""
    counts = Counter(name for source in sources for name in classes(source))
    return [name for name in ONCE if counts[name] != 1]


def draws(source: str) -> bool:
    """True for a file that imports matplotlib, or writes elements of SVG."""
    for node in ast.walk(parsed(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.partition(".")[0] == "matplotlib" for name in names):
            return True
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and ("<svg" in node.value or "<path" in node.value)
        ):
            return True
    return False


def test_a_run_a_score_and_a_setup_have_one_class() -> None:
    assert defined_again(sources().values()) == []


@SLOW
def test_figures_are_drawn_in_one_room() -> None:
    drawing = {path for path, source in sources().items() if draws(source)} - {USER_FIGURES}
    assert {path.rpartition("/")[0] for path in drawing} == {"sb_dqn/plotting"}


# The detectors themselves: what they must see, and what they must let pass.


def test_a_second_class_is_seen() -> None:
    ours = [f"class {name}: ..." for name in ONCE]
    assert defined_again(ours) == []
    assert defined_again([*ours, "def f():\n    class Run: ..."]) == ["Run"]
    assert defined_again([*ours[1:], "class RunOptions: ..."]) == ["Run"]


@pytest.mark.parametrize(
    ("source", "seen"),
    [
        ("import matplotlib.figure", True),
        ("def f():\n    from matplotlib import pyplot", True),
        ("text = f'<svg viewBox=\"{1}\">'", True),
        ("from sb_dqn.plotting import new_figure", False),
        ("path = 'curve.svg'", False),
    ],
)
def test_drawing_is_seen(source: str, seen: bool) -> None:
    assert draws(source) is seen
