"""Arguments at the door: each check returns the plain Python value, or says what was given, what is allowed, and the fix."""

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

S = TypeVar("S")


def check_int(name: str, value: Any, low: float, high: int | None = None, also: Collection[int] = ()) -> int:
    """`value` as an int in `low..high`, or one of `also`; a `low` of -inf allows all of them.

    Raises:
        ConfigurationError: not a whole number, or out of range.
    """
    allowed = f"a whole number{_range(low, high)}" + "".join(f" or {extra}" for extra in also)
    try:
        number = value if type(value) is int else _whole(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{name}={value!r} is not allowed: give {allowed}") from None
    if number not in also and (number < low or (high is not None and number > high)):
        raise ConfigurationError(f"{name}={value!r} is not allowed: give {allowed}")
    return number


def check_float(
    name: str, value: Any, low: float, high: float = math.inf, *, above: bool = False, below: bool = False
) -> float:
    """`value` as a finite float in [low, high]; `above` and `below` make the ends open.

    Raises:
        ConfigurationError: not a number, NaN, infinite, or out of range.
    """
    try:
        number = math.nan if _no_number(value) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    fits = (number > low if above else number >= low) and (number < high if below else number <= high)
    if not fits or math.isinf(number):
        ends = [f"{'above' if above else 'from'} {low:g}"] if low > -math.inf else []
        ends += [f"{'below' if below else 'up to'} {high:g}"] if high < math.inf else []
        kind = "a number" if low > -math.inf else "a finite number"
        raise ConfigurationError(
            f"{name}={value!r} is not allowed: give {' '.join([kind, ' and '.join(ends)]).strip()}"
        )
    return number


def check_target(path: Path, kind: str, endings: Iterable[str]) -> None:
    """A file that is to be written: its ending says a format, and its folder is there.

    Args:
        path: of the file.
        kind: what it is to be, for the message.
        endings: that are known, in lower case.

    Raises:
        ConfigurationError: another ending, or no such folder.
    """
    known = list(endings)
    if path.suffix.lower() not in known:
        raise ConfigurationError(f"{path} is no name of a {kind}: its ending says the format; give {', '.join(known)}")
    if not path.parent.is_dir():
        raise ConfigurationError(
            f"{path} cannot be written: there is no folder {path.parent}; make it, or name another"
        )


def check_choice(name: str, value: Any, allowed: Collection[str]) -> str:
    """`value` if it is one of `allowed`.

    Raises:
        ConfigurationError: it is not; the nearest names are offered.
    """
    if not isinstance(value, str) or value not in allowed:
        raise ConfigurationError(
            f"{name}={value!r} is unknown: allowed are {sorted(allowed)}.{nearest(str(value), allowed)}"
        )
    return str(value)


def check_bool(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        ConfigurationError: it is neither.
    """
    if type(value).__name__ not in ("bool", "bool_"):
        raise ConfigurationError(f"{name}={value!r} is not allowed: give True or False")
    return bool(value)


def check_path(name: str, value: Any) -> str | None:
    """`value` as the text of a path, or None.

    Raises:
        ConfigurationError: it is neither.
    """
    if value is not None and not isinstance(value, (str, os.PathLike)):
        raise ConfigurationError(f"{name}={value!r} is not allowed: give a path, or None")
    return None if value is None else os.fspath(value)


def check_names(name: str, given: Any) -> tuple[str, ...]:
    """`given` as a tuple of texts; a text alone would be read letter by letter.

    Raises:
        ConfigurationError: it is no list of them.
    """
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(one, str) for one in given):
        raise ConfigurationError(f"{name}={given!r} is not allowed: give a tuple of names, such as ('is_success',)")
    return tuple(given)


def check_called(name: str, value: Any, *arguments: str) -> Callable[..., Any]:
    """`value` if it can be called with so many arguments, as far as its signature tells.

    Raises:
        ConfigurationError: it cannot be called, or takes more or fewer.
    """
    wanted = f"a function ({', '.join(arguments)})"
    if not callable(value):
        raise ConfigurationError(f"{name}={value!r} is not allowed: give {wanted}")
    called: Callable[..., Any] = value
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # of builtins, some of which tell nothing
        return called
    try:
        signature.bind(*arguments)
    except TypeError:
        raise ConfigurationError(
            f"{name}={value!r} takes {signature}, and is called with {len(arguments)}: give {wanted}"
        ) from None
    return called


def check_mapping(name: str, given: Any) -> dict[str, Any]:
    """`given` as a dict, empty for None.

    Raises:
        ConfigurationError: it is no mapping.
    """
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError(f"{name}={given!r} is not allowed: give a dict of keyword arguments, or None")
    return dict(given or {})


def check_keys(name: str, given: Mapping[str, Any] | None, allowed: Collection[str]) -> dict[str, Any]:
    """`given` as a dict whose keys are all `allowed`.

    Raises:
        ConfigurationError: a key is unknown; the nearest ones are offered.
    """
    found = check_mapping(name, given)
    for key in found:
        if key not in allowed:
            raise ConfigurationError(
                f"{name} has no {key!r}; allowed are {sorted(allowed)}.{nearest(str(key), allowed)}"
            )
    return found


def check_switch(name: str, value: Any, settings: type[S], text: str | None = None) -> S | None:
    """A switch with settings: None for False, the defaults for True, or a dict of what differs from them.

    Args:
        name: of the argument.
        value: True, False, a dict, or the settings themselves.
        settings: dataclass that checks its fields.
        text: the field that a text alone stands for, if any.

    Raises:
        ConfigurationError: none of these, or a field is unknown or out of range.
    """
    if value is False:
        return None
    if value is True:
        return settings()
    if isinstance(value, settings):
        return value
    if text is not None and isinstance(value, str):
        value = {text: value}
    if not isinstance(value, Mapping):
        names = [field.name for field in fields(settings)]  # type: ignore[arg-type]  # a dataclass
        raise ConfigurationError(
            f"{name}={value!r} is not allowed: give True, False or a dict of settings: {', '.join(names)}"
            + (f" (a text alone is its {text!r})" if text else "")
        )
    return settings(**check_keys(name, value, [field.name for field in fields(settings)]))  # type: ignore[arg-type]  # a dataclass


def over_defaults(given: Any, defaults: Mapping[str, Any]) -> Any:
    """A switch of a class that has settings of its own: they hold for True, and below what a dict says."""
    if given is True:
        return dict(defaults)
    return {**defaults, **given} if isinstance(given, Mapping) else given


def _whole(value: Any) -> int:
    if _no_number(value):
        raise TypeError
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
        if number.is_integer():  # 1e6 is a whole number to everybody but Python
            return int(number)
        raise


def _no_number(value: Any) -> bool:
    """Truths and texts, which Python would convert: `float(True)`, `float("1")`."""
    return isinstance(value, (bool, str, bytes)) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def _range(low: float, high: int | None) -> str:
    if low == -math.inf:
        return "" if high is None else f" up to {high}"
    return f" from {low} up" if high is None else f" from {low} to {high}"
