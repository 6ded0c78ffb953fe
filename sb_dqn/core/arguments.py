"""Constructor arguments: the keywords that a class accepts, and the values of one call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from sb_dqn.core.sb3_compat import HER, UNUSED_KEYWORDS, wants_her
from sb_dqn.errors import ConfigurationError, nearest

KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


NOT_SETTINGS = ("return_model",)
"""Keywords for subclasses, whose values are objects that no settings file can hold."""


def constructor_arguments(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Returns the settings of a class: its keyword arguments by name, without `policy`, `env` and `NOT_SETTINGS`."""
    return {name: parameter for name, parameter in _keywords(cls).items() if name not in NOT_SETTINGS}


def _keywords(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Returns all keyword arguments of a class by name, without `policy` and `env`.

    A constructor that ends in `**kwargs` also accepts those of its parent, except the ones in `cls.replaced_arguments`.
    """
    found: dict[str, inspect.Parameter] = {}
    for parent in cls.__mro__:
        if "__init__" not in parent.__dict__:
            continue
        parameters = inspect.signature(parent.__dict__["__init__"]).parameters.values()
        found = {each.name: each for each in parameters if each.kind in KEYWORDS} | found
        if all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters):
            break
    hidden = {"self", "policy", "env", *cls.replaced_arguments}
    return {name: parameter for name, parameter in found.items() if name not in hidden}


def complete_signature(cls: type[Any]) -> inspect.Signature:
    """Returns the signature of a class with every keyword of its parents, for `help`, editors and `bind_arguments`."""
    own = inspect.signature(cls.__init__).parameters
    found = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("policy", "env")]
    for name, parameter in _keywords(cls).items():
        kind = own[name].kind if name in own else inspect.Parameter.KEYWORD_ONLY
        found.append(parameter.replace(kind=kind))
    return inspect.Signature(sorted(found, key=lambda each: each.kind))


def check_keywords(cls: type[Any], keywords: Mapping[str, Any]) -> None:
    """Checks that a class accepts keywords.

    Raises:
        ConfigurationError: a keyword is unknown. The message names the closest ones, or the reason for SB3's.
    """
    allowed = constructor_arguments(cls)
    for name, value in keywords.items():
        if name in cls.replaced_arguments:
            raise ConfigurationError(
                f"{name} must be unset for {cls.__name__}, got {value!r}. {cls.replaced_arguments[name]}."
            )
        if name in allowed or name in _keywords(cls):
            continue
        if name in UNUSED_KEYWORDS:
            reason, fix = HER if wants_her(name, value) else (UNUSED_KEYWORDS[name], "Leave it out")
            raise ConfigurationError(f"{name} must be unset for {cls.__name__}, got {value!r}: {reason}. {fix}.")
        raise ConfigurationError(
            f"arguments of {cls.__name__} must be among those that help({cls.__name__}) lists, got {name!r}. Use one of them."
            f"{nearest(name, allowed)}"
        )


def bind_arguments(cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call of `cls(*args, **kwargs)` by name, defaults included, without `env`.

    Raises:
        ConfigurationError: a keyword is unknown.
        TypeError: `policy` or `env` is missing, or there are too many positional arguments.
    """
    check_keywords(cls, {name: value for name, value in kwargs.items() if name not in ("policy", "env")})
    signature = complete_signature(cls)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    recorded = {name: value for name, value in bound.arguments.items() if name != "env"}
    for name, value in recorded.items():  # 1e6 is allowed for 1_000_000
        whole = isinstance(value, float) and value.is_integer()
        if whole and str(signature.parameters[name].annotation).startswith("int"):
            recorded[name] = int(value)
    if recorded.get("return_model", ...) is None:  # of a subclass that makes its own
        del recorded["return_model"]
    return recorded
