"""The files of the package and of its documentation, read and parsed once for all tests of their text."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "sb_dqn"


@cache
def sources() -> dict[str, str]:
    """Returns the source of each file of the package, by its path below the root."""
    return {name_of(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def texts() -> dict[str, str]:
    """Returns the text of each page of the documentation, by its path below the root."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/pages").rglob("*.md"))]
    return {name_of(path): path.read_text(encoding="utf-8") for path in pages}


@cache
def parsed(source: str) -> ast.Module:
    """Returns the syntax tree of a source; it is shared, so it must not be changed."""
    return ast.parse(source)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def module_name(path: Path) -> str:
    """Returns the dotted name of a file of the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
