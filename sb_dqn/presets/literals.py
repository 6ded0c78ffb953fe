"""Parsing of YAML and Python literals in preset files and in `--set name=value`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sb_dqn.errors import ConfigurationError

_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?$")
_TUPLE = re.compile(r"\([^()]*,[^()]*\)$")


MAX_VALUES = 100_000
"""Values in a YAML text of a user, each alias counted as often as it stands."""


def load_yaml(text: str) -> Any:
    """Parses YAML; numbers that are strings in YAML 1.1 (`1e-4`) are converted at any depth.

    Raises:
        yaml.YAMLError: the text is not YAML, is nested too deeply, or its aliases stand for too many values.
    """
    import yaml

    try:
        value = yaml.safe_load(text)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    found, reached = 0, [value]
    while reached and found <= MAX_VALUES:
        found += 1
        match reached.pop():
            case Mapping() as inner:
                reached += [*inner.keys(), *inner.values()]
            case list() as inner:
                reached += inner
    if reached:
        raise yaml.YAMLError(f"more than {MAX_VALUES:,} values, or an alias that contains itself")
    return plain(value)


def load_yaml_file(path: Path, what: str) -> Any:
    """Parses the file `path` by `load_yaml`; `what` names its content in messages.

    Raises:
        ConfigurationError: it cannot be read, or is not YAML.
    """
    import yaml

    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise ConfigurationError(
            f"{what} must be a readable YAML file, got {path} ({reason}). Check the path and the file."
        ) from error


def parse_value(text: str) -> Any:
    """Parses `text` as a YAML or Python literal; a plain word is a string.

    `1e-4` is a number (a string in YAML 1.1); `None`, `True` and tuples have their meaning in Python.

    Raises:
        ValueError: a list, dict or string in `text` is not closed, or a YAML value contains a tuple.
    """
    import ast

    import yaml

    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        pass
    try:
        value = load_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(
            f"value must be a YAML or Python literal, got {text!r}. Quote text, and close brackets."
        ) from error
    if _has_tuple(value):
        with_lists = text.strip().replace("(", "[").replace(")", "]")
        raise ValueError(
            f"value must be a YAML or Python literal, got {text.strip()!r}. Write {with_lists}, "
            f"since YAML has lists instead of tuples."
        )
    return value


def _has_tuple(value: object) -> bool:
    """Returns True if a tuple was parsed as strings: YAML splits it at its commas, or reads it as one string."""
    match value:
        case str():
            return value.startswith("(") and (")" not in value or _TUPLE.match(value) is not None)
        case Mapping():
            return any(_has_tuple(inner) for pair in value.items() for inner in pair)
        case list():
            return any(_has_tuple(inner) for inner in value)
    return False


def plain(value: object) -> Any:
    """Returns `value` with every numeric string converted to a number, at any depth."""
    match value:
        case str() if _NUMBER.match(value):
            return float(value)
        case Mapping():
            return {key: plain(inner) for key, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
    return value
