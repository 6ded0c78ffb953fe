"""The exceptions of this package: what went wrong tells the type, how to mend it tells the message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


class ConfigurationError(ValueError):
    """An argument, or a combination of arguments, that cannot work; raised at construction."""


class SpaceError(ConfigurationError):
    """An observation, an action or a space that does not fit."""


class MissingPart(ConfigurationError, AttributeError):
    """A part of a model that it does not have yet; an `AttributeError` too, so that `hasattr` says no."""


class EnvironmentFault(RuntimeError):
    """The environment raised, answered NaN, or broke its own contract; names lane and step."""


class CheckpointError(ValueError):
    """A file that is damaged, foreign, or not trusted; names the member and the check that failed."""


class MemoryBudgetError(MemoryError):
    """An allocation that does not fit into the memory at hand, refused before it is made."""


def nearest(given: str, allowed: Iterable[str], count: int = 3, cutoff: float = 0.5) -> str:
    """`" Did you mean 'a' or 'b'?"` for the names nearest to `given`, or an empty string."""
    close = difflib.get_close_matches(given, list(allowed), n=count, cutoff=cutoff)
    return f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""


def no_attribute(owner: object, name: str, elsewhere: Mapping[str, str], known: Iterable[str] = ()) -> AttributeError:
    """The error of a name that an object lacks: what stands for it here, or the names of its own that are close."""
    hint = f" {elsewhere[name]}" if name in elsewhere else nearest(name, known, cutoff=0.75)
    return AttributeError(f"{type(owner).__name__} has no attribute {name!r}.{hint}")
