"""Constructor arguments: the keywords that a class accepts, their meaning, and the values of one call."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import numpy as np

from sb_dqn.core.keywords import shared_keywords
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.sb3_names import HER, UNUSED_KEYWORDS, wants_her
from sb_dqn.types import Kwargs, Settings

KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


NOT_SETTINGS = ("return_model",)
"""Keywords for subclasses, whose values are objects that no settings file can hold."""


def constructor_arguments(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Returns the settings of a class: its keyword arguments by name, without `policy`, `env` and `NOT_SETTINGS`."""
    return {name: parameter for name, parameter in _keywords(cls).items() if name not in NOT_SETTINGS}


def changed_arguments(cls: type[Any], arguments: Settings) -> Kwargs:
    """Returns the arguments that differ from the defaults of a class, without those that it sets itself."""
    defaults = {name: parameter.default for name, parameter in constructor_arguments(cls).items()}
    return {
        name: value
        for name, value in arguments.items()
        if name not in cls.replaced_arguments and not (name in defaults and _equal(value, defaults[name]))
    }


def _equal(one: object, other: object) -> bool:
    """Returns True if two arguments are the same; arrays and objects of unlike types differ."""
    return type(one) is type(other) and bool(np.all(one == other))


def _keywords(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Returns all keyword arguments of a class by name, without `policy` and `env`.

    A constructor that ends in `**kwargs` also accepts the shared keywords of the `TypedDict` that it unpacks there, and those of
    its parent, except the ones in `cls.replaced_arguments`. `cls.defaults` has the defaults that differ from those of the parents.
    """
    found: dict[str, inspect.Parameter] = {}
    for parent in cls.__mro__:
        if "__init__" not in parent.__dict__:
            continue
        parameters = inspect.signature(parent.__dict__["__init__"]).parameters.values()
        own = {each.name: each for each in parameters if each.kind in KEYWORDS}
        unpacked = _unpacked(parent)
        shared = {} if unpacked is None else shared_keywords(unpacked)
        found = own | {name: _parameter(name, hint) for name, hint in shared.items() if name not in own} | found
        ends = all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters)
        if ends or (unpacked is not None and unpacked.__optional_keys__ <= found.keys()):
            break
    hidden = {"self", "policy", "env", *cls.replaced_arguments}
    return {
        name: each.replace(default=cls.defaults.get(name, each.default))
        for name, each in found.items()
        if name not in hidden
    }


def _unpacked(cls: type[Any]) -> Any:
    """Returns the `TypedDict` that the constructor of a class unpacks in `**kwargs`; None if there is none."""
    init = cls.__dict__["__init__"]
    for each in inspect.signature(init).parameters.values():
        named = re.fullmatch(r"Unpack\[(\w+)\]", str(each.annotation))
        if each.kind is inspect.Parameter.VAR_KEYWORD and named:
            return init.__globals__[named[1]]
    return None


def _parameter(name: str, hint: Any) -> inspect.Parameter:
    """Returns a shared keyword as a parameter."""
    annotation = re.sub(r"\b(?:collections\.abc|typing)\.", "", inspect.formatannotation(hint.__origin__))
    default = hint.__metadata__[0]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def complete_signature(cls: type[Any]) -> inspect.Signature:
    """Returns the signature of a class with every keyword of its parents, for `help`, editors and `bind_arguments`."""
    own = inspect.signature(cls.__init__).parameters
    found = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("policy", "env")]
    for name, parameter in _keywords(cls).items():
        kind = own[name].kind if name in own else inspect.Parameter.KEYWORD_ONLY
        found.append(parameter.replace(kind=kind))
    return inspect.Signature(sorted(found, key=lambda each: each.kind))


def complete_docstring(cls: type[Any]) -> str | None:
    """Returns the docstring of a class with the meaning of every keyword of its parents, for `help` and the documentation."""
    own = cls.__dict__.get("__doc__")
    if own is None:  # also under python -OO
        return None
    meanings: dict[str, str] = {}
    for parent in reversed(cls.__mro__):
        if "__init__" in parent.__dict__ and (unpacked := _unpacked(parent)) is not None:
            meanings |= {name: _entry(name, hint.__metadata__[1]) for name, hint in shared_keywords(unpacked).items()}
        meanings |= _described(parent.__dict__.get("__doc__"))
    without_further = re.sub(r"\n    (?:kwargs|shared): .*", "", inspect.cleandoc(own))
    head, _, rest = without_further.partition("\n\nRaises:\n")
    written = _described(own)
    missing = dict.fromkeys(
        meanings[name] for name in ("policy", "env", *_keywords(cls)) if name in meanings and name not in written
    )
    head += "" if not missing or "\nArgs:\n" in head else "\n\nArgs:"
    return "\n".join([head, *missing]) + (f"\n\nRaises:\n{rest}" if rest else "")


ENTRY = re.compile(r"^    (\w+(?:, \w+)*): .*(?:\n {8}.*)*$", re.MULTILINE)
"""Entry of the section `Args:` of a docstring."""


def _described(docstring: str | None) -> dict[str, str]:
    """Returns the entries of the section `Args:` by the names that they describe."""
    _, _, section = inspect.cleandoc(docstring or "").partition("\nArgs:\n")
    entries = ENTRY.finditer(section.partition("\n\n")[0])
    return {name: entry[0] for entry in entries for name in entry[1].split(", ")}


def _entry(name: str, meaning: str) -> str:
    return textwrap.fill(f"{name}: {meaning}", 120, initial_indent=" " * 4, subsequent_indent=" " * 8)


def check_keywords(cls: type[Any], keywords: Settings) -> None:
    """Checks that a class accepts keywords.

    Raises:
        ConfigurationError: a keyword is unknown. The message names the closest ones, or the reason for SB3's.
    """
    allowed = _keywords(cls)
    for name, value in keywords.items():
        if name in cls.replaced_arguments:
            raise ConfigurationError(
                f"{name} must be unset for {cls.__name__}, got {value!r}. {cls.replaced_arguments[name]}."
            )
        if name in allowed:
            continue
        if name in UNUSED_KEYWORDS:
            reason, fix = HER if wants_her(name, value) else (UNUSED_KEYWORDS[name], "Leave it out")
            raise ConfigurationError(f"{name} must be unset for {cls.__name__}, got {value!r}: {reason}. {fix}.")
        raise ConfigurationError(
            f"arguments of {cls.__name__} must be among those that help({cls.__name__}) lists, got {name!r}. Use one of them."
            f"{nearest(name, allowed)}"
        )


def bind_arguments(cls: type[Any], args: tuple[Any, ...], kwargs: Settings) -> Kwargs:
    """Returns the arguments of a call of `cls(*args, **kwargs)` by name, defaults included, without `env`.

    Raises:
        ConfigurationError: a keyword is unknown.
        TypeError: `policy` or `env` is missing, or there are too many positional arguments.
    """
    check_keywords(cls, {name: value for name, value in kwargs.items() if name not in ("policy", "env")})
    signature = complete_signature(cls)
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    found = {name: value for name, value in bound.arguments.items() if name != "env"}
    for name, value in found.items():  # 1e6 is allowed for 1_000_000
        whole = isinstance(value, float) and value.is_integer()
        if whole and str(signature.parameters[name].annotation).startswith("int"):
            found[name] = int(value)
    if found.get("return_model", ...) is None:  # of a subclass that makes its own
        del found["return_model"]
    return found
