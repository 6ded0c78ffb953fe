"""Text to value, the same for preset files and for `--set name=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$")


def parse_value(text: str) -> Any:
    """The value that `text` writes as a YAML or Python literal; a plain word is a string.

    `1e-4` is a number here (YAML 1.1 reads a string) and `None`, `True` and tuples mean what they mean in Python.

    Raises:
        ValueError: `text` opens a list, dict or string and does not close it.
    """
    import ast

    import yaml

    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        pass
    try:
        return plain(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r} is neither a YAML nor a Python value") from error


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
