"""Argument checks: each returns the plain Python value or raises `ConfigurationError`."""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.types import Kwargs, Settings

S = TypeVar("S")
LONG_LIST = 8
"""Number of allowed keys up to which an error lists them all; above it, the three nearest."""


def check_int(name: str, value: object, low: float, high: int | None = None, also: Collection[int] = ()) -> int:
    """Returns `value` as an int between `low` and `high` (both included), or one of `also`.

    Args:
        name: argument name, for the message.
        value: value to check; floats without a fraction, such as 1e6, are accepted.
        low: smallest allowed value; -inf for no limit.
        high: largest allowed value; None for no limit.
        also: further allowed values.

    Raises:
        ConfigurationError: the value is not an integer, or out of range.
    """
    allowed = f"an integer{_range(low, high)}" + "".join(f" or {extra}" for extra in also)
    try:
        number = value if type(value) is int else _to_int(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name} must be {allowed}, got {value!r}. Pass an integer.") from None
    if number not in also and (number < low or (high is not None and number > high)):
        fix = f"Use {low} or more" if number < low else f"Use {high} or less"
        raise ConfigurationError(f"{name} must be {allowed}, got {value!r}. {fix}.")
    return number


def check_float(
    name: str, value: Any, low: float, high: float = math.inf, *, above: bool = False, below: bool = False
) -> float:
    """Returns `value` as a finite float between `low` and `high`.

    Args:
        name: argument name, for the message.
        value: value to check.
        low: smallest allowed value; -inf for no limit.
        high: largest allowed value; inf for no limit.
        above: True to exclude `low`.
        below: True to exclude `high`.

    Raises:
        ConfigurationError: the value is not a number, NaN, infinite, or out of range.
    """
    try:
        number = math.nan if _is_bool_or_text(value) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    in_range = (number > low if above else number >= low) and (number < high if below else number <= high)
    if not in_range or math.isinf(number):
        limits = [f"{'>' if above else '>='} {low:g}"] if low > -math.inf else []
        limits += [f"{'<' if below else '<='} {high:g}"] if high < math.inf else []
        kind = "a number" if low > -math.inf else "a finite number"
        allowed = " ".join([kind, " and ".join(limits)]).strip()
        raise ConfigurationError(
            f"{name} must be {allowed}, got {value!r}. {_float_fix(number, low, high, above, below)}."
        )
    return number


def set_fields(config: object, **checked: object) -> None:
    """Sets fields of a dataclass, frozen or not, to what their checks returned; for its `__post_init__`."""
    for name, value in checked.items():
        object.__setattr__(config, name, value)


def check_output_path(path: Path, kind: str, endings: Iterable[str]) -> None:
    """Checks the ending and the folder of a file to write.

    Args:
        path: path of the file.
        kind: kind of file, for the message.
        endings: allowed endings in lower case, such as ".png".

    Raises:
        ConfigurationError: the ending is not allowed, or the folder does not exist.
    """
    allowed = list(endings)
    if path.suffix.lower() not in allowed:
        raise ConfigurationError(f"the name of a {kind} must end in {', '.join(allowed)}, got {path}. Rename it.")
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"the folder of a {kind} must exist, got {path}, but {path.parent} does not exist. Create it, or choose another folder."
        )


def check_choice(name: str, value: object, allowed: Collection[str]) -> str:
    """Returns `value` if it is one of `allowed`.

    Raises:
        ConfigurationError: it is not; the message suggests the nearest names.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ConfigurationError(
            f"{name} must be one of {sorted(allowed)}, got {value!r}. Use one of them.{nearest(str(value), allowed)}"
        )
    return str(value)


def check_bool(name: str, value: object) -> bool:
    """Returns `value` as a bool if it is True or False (Python's or NumPy's).

    Raises:
        ConfigurationError: it is neither.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ConfigurationError(f"{name} must be True or False, got {value!r}. Pass a bool.")
    return bool(value)


def check_path(name: str, value: object) -> str | None:
    """Returns the path `value` as a str, or None for None.

    Raises:
        ConfigurationError: it is neither a path nor None.
    """
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise ConfigurationError(f"{name} must be a path or None, got {value!r}. Pass a str, a Path or None.")
    return None if value is None else os.fspath(value)


def check_names(name: str, value: object) -> tuple[str, ...]:
    """Returns `value` as a tuple of strings; a single str is refused, since iterating it would give letters.

    Raises:
        ConfigurationError: it is not an iterable of strings.
    """
    if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(item, str) for item in value):
        raise ConfigurationError(
            f"{name} must be a tuple of names, such as ('is_success',), got {value!r}. Pass a tuple of str."
        )
    return tuple(value)


def check_callable(name: str, value: object, *arguments: str) -> Callable[..., Any]:
    """Returns `value` if it can be called with these arguments, as far as its signature is known.

    Raises:
        ConfigurationError: it is not callable, or needs more or fewer arguments.
    """
    allowed = f"a function ({', '.join(arguments)})"
    if not callable(value):
        raise ConfigurationError(f"{name} must be {allowed}, got {value!r}. Pass a function.")
    function: Callable[..., Any] = value
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have no signature
        return function
    try:
        signature.bind(*arguments)
    except TypeError:
        raise ConfigurationError(
            f"{name} must be {allowed}, got {value!r} with the signature {signature}. Change its parameters."
        ) from None
    return function


def check_mapping(name: str, value: object) -> Kwargs:
    """Returns `value` as a dict, empty for None.

    Raises:
        ConfigurationError: it is not a mapping.
    """
    if value is not None and not isinstance(value, Mapping):
        raise ConfigurationError(f"{name} must be a dict of keyword arguments or None, got {value!r}. Pass a dict.")
    return dict(value or {})


def check_keys(name: str, value: Settings | None, allowed: Collection[str]) -> Kwargs:
    """Returns `value` as a dict whose keys are all in `allowed`.

    Raises:
        ConfigurationError: a key is unknown; the message suggests the nearest names.
    """
    options = check_mapping(name, value)
    for key in options:
        if key not in allowed:
            listed = f"its {len(allowed)} documented ones" if len(allowed) > LONG_LIST else sorted(allowed)
            raise ConfigurationError(
                f"keys of {name} must be among {listed}, got {key!r}. Use one of them.{nearest(str(key), allowed)}"
            )
    return options


def check_switch(
    name: str, value: object, settings: type[S], text: str | None = None, number: str | None = None
) -> S | None:
    """Returns the settings of an option: None for False, the defaults for True, the defaults updated by a dict.

    Args:
        name: argument name, for the message.
        value: True, False, a dict, or an object of `settings`.
        settings: dataclass that checks its fields.
        text: field that a str sets; None if a str is not allowed.
        number: field that a number sets; None if a number is not allowed.

    Raises:
        ConfigurationError: the value is none of these, or a field is unknown or out of range.
    """
    if value is False:
        return None
    if value is True:
        return settings()
    if isinstance(value, settings):
        return value
    if text is not None and isinstance(value, str):
        value = {text: value}
    if number is not None and isinstance(value, (int, float)):
        value = {number: value}
    names = [field.name for field in fields(settings)]  # type: ignore[arg-type]  # a dataclass
    if not isinstance(value, Mapping):
        raise ConfigurationError(
            f"{name} must be True, False or a dict with any of the keys {', '.join(names)}"
            + (f" (or a str for {text!r})" if text else "")
            + f", got {value!r}. Pass one of these."
        )
    return settings(**check_keys(name, value, names))


def merge_defaults(value: object, defaults: Settings) -> Any:
    """Applies an algorithm's own defaults to a switch: they replace True and fill the missing keys of a dict."""
    if value is True:
        return dict(defaults)
    return {**defaults, **value} if isinstance(value, Mapping) else value


def _to_int(value: Any) -> int:
    if _is_bool_or_text(value):
        raise TypeError
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
        if number.is_integer():  # 1e6 is a float in Python
            return int(number)
        raise


def _is_bool_or_text(value: object) -> bool:
    """Returns True for bools and texts, which `float` would convert: `float(True)`, `float("1")`."""
    return isinstance(value, (bool, str, bytes)) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _float_fix(number: float, low: float, high: float, above: bool, below: bool) -> str:
    """Returns the fix for a number out of range, without its full stop."""
    if math.isnan(number) or (math.isinf(number) and low == -math.inf):
        return "Pass a finite number"
    if number < low or (above and number == low):
        return f"Use a number above {low:g}" if above else f"Use {low:g} or more"
    if high == math.inf:
        return "Pass a finite number"
    return f"Use a number below {high:g}" if below else f"Use {high:g} or less"


def _range(low: float, high: int | None) -> str:
    if low == -math.inf:
        return "" if high is None else f" <= {high}"
    return f" >= {low}" if high is None else f" from {low} to {high}"
