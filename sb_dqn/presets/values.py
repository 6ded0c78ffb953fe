"""Text to value, the same for preset files and for `--set name=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$")
_TUPLE = re.compile(r"\([^()]*,[^()]*\)$")


def parse_value(text: str) -> Any:
    """The value that `text` writes as a YAML or Python literal; a plain word is a string.

    `1e-4` is a number here (YAML 1.1 reads a string) and `None`, `True` and tuples mean what they mean in Python.

    Raises:
        ValueError: `text` opens a list, dict or string and does not close it, or has a tuple where YAML knows none.
    """
    import ast

    import yaml

    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        pass
    try:
        value = plain(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r} is neither a YAML nor a Python value") from error
    if _torn(value):
        square = text.strip().replace("(", "[").replace(")", "]")
        raise ValueError(
            f"{text.strip()!r} is no Python value, and in YAML a pair is [0, 1.0], not (0, 1.0): say {square}"
        )
    return value


def _torn(value: Any) -> bool:
    """Whether a tuple was read as words: YAML splits it at its commas, or takes it whole for one."""
    match value:
        case str():
            return value.startswith("(") and (")" not in value or _TUPLE.match(value) is not None)
        case Mapping():
            return any(_torn(inner) for pair in value.items() for inner in pair)
        case list():
            return any(_torn(inner) for inner in value)
    return False


def plain(value: Any) -> Any:
    """`value` with every string that writes a number turned into that number, at any depth."""
    match value:
        case str() if _NUMBER.match(value):
            return float(value)
        case Mapping():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
    return value
