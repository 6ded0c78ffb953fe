"""Docstrings begin with a verb or a noun, and neither names nor prose use words that few readers know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.package import parsed, sources, texts

OPENING = re.compile(r"(What|Whether|How|Of|With|As|For|Which|When|Where)\b")
VAGUE = {"told", "asked", "given", "believed", "met"}
ARCHAIC = re.compile(
    r"\b(anew|beside|whatever|mend|mended|thereby|hence|so many|of one's own|as such|hands? over|by itself|in silence)\b",
    re.I,
)
BRITISH = re.compile(
    r"(optimis|prioritis|normalis|initialis|vectoris|synchronis)(e|ing|ation)|colour|neighbour|behaviour", re.I
)


def opens_oddly(source: str) -> list[str]:
    """Returns the docstrings that begin with a question word or a preposition."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) or "" for node in ast.walk(parsed(source)) if isinstance(node, documented))
    return [text for text in found if OPENING.match(text)]


def names(source: str) -> Iterator[str]:
    """Yields the names that a module defines: variables, attributes, parameters, functions and classes."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


def vague(source: str) -> list[str]:
    return [name for name in names(source) if VAGUE & set(name.lower().split("_"))]


def odd_words(text: str) -> list[str]:
    return [match[0] for pattern in (ARCHAIC, BRITISH) for match in pattern.finditer(text)]


def test_library() -> None:
    checks = (opens_oddly, vague, odd_words)
    assert [
        f"{name}: {fault}" for name, source in sources().items() for check in checks for fault in check(source)
    ] == []


def test_documentation() -> None:
    assert [f"{name}: {word}" for name, text in texts().items() for word in odd_words(text)] == []


def test_what_is_found() -> None:
    assert opens_oddly('"""What is sampled."""') == ["What is sampled."]
    assert opens_oddly('def f():\n    """Asks nobody."""') == []
    assert vague("def f(told): self.asked = forgiven = 1") == ["told", "asked"]
    assert odd_words("Draws anew, whatever the Colour") == ["anew", "whatever", "Colour"]
