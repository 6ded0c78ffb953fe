"""Exceptions of this package. The type names the kind of fault, the message how to fix it."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unicodedata import category

_PACKAGE = str(Path(__file__).parent)


class ConfigurationError(ValueError):
    """Invalid argument or combination of arguments; raised at construction."""


class SpaceError(ConfigurationError):
    """Observation, action or space that is not supported or does not match."""


class MissingPart(ConfigurationError, AttributeError):
    """Access to a part that a model does not have yet; an `AttributeError` too, so that `hasattr` returns False."""


class EnvironmentFault(RuntimeError):
    """Failure of an environment: it raised, returned NaN, or broke its own contract. The message has lane and step.

    Args:
        message: describes the failure.
        crashed: True if it raised or its process ended, where another environment may do better.
    """

    def __init__(self, message: str, *, crashed: bool = False) -> None:
        super().__init__(message)
        self.crashed = crashed


class LearnerLost(RuntimeError):
    """End of another learner of a run with several; the message names it."""


class CheckpointError(ValueError):
    """Damaged, foreign or untrusted file; the message names the member and the failed check."""


class MissingFileError(CheckpointError, FileNotFoundError):
    """File of a model or of a replay buffer that does not exist."""


class MemoryBudgetError(MemoryError):
    """Allocation that does not fit into the available memory of the host or of a device."""


@contextmanager
def explained(label: object, rule: str, fix: str, kind: type[Exception] = OSError) -> Iterator[None]:
    """Raises errors, by default of the file system, as `ConfigurationError`: "{label} must be {rule}, got: {reason}. {fix}"."""
    try:
        yield
    except kind as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{label} must be {rule}, got: {reason}. {fix}") from error


@contextmanager
def checkpoint_errors(
    what: str,
    passed: tuple[type[Exception], ...] = (CheckpointError, ConfigurationError, EnvironmentFault),
    fix: str = "The file is damaged. Load another copy.",
) -> Iterator[None]:
    """Turns the exceptions of malformed data into a `CheckpointError`, but not those in `passed`."""
    try:
        yield
    except passed:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, AssertionError, RuntimeError, ArithmeticError) as error:
        raise CheckpointError(f"{what} ({type(error).__name__}: {error}). {fix}") from error


def import_extra(module: str, extra: str, purpose: str, otherwise: str = "") -> Any:
    """Imports a module of a package that an extra of this one installs.

    Args:
        module: name of the module.
        extra: name of the extra.
        purpose: what it is needed for, such as "for plots".
        otherwise: what else helps, such as ", or write a .gif file".

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ConfigurationError(
            f'{package} must be installed {purpose}, got none ({error}). Run pip install "sb_dqn[{extra}]"{otherwise}.'
        ) from None


def nearest(name: str, allowed: Iterable[str], cutoff: float = 0.5) -> str:
    """Returns `" Did you mean 'a' or 'b'?"` with up to three names closest to `name`, or those it abbreviates, or an empty string."""
    names = list(allowed)
    close = difflib.get_close_matches(name, names, cutoff=cutoff)
    if not close:
        close = [other for other in names if _abbreviates(name, other)][:3]
    return f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""


def _abbreviates(name: str, other: str) -> bool:
    """Returns True if each letter of `name` begins a word of `other`, as in "lr" and "learning_rate"."""
    return bool(name) and name == "".join(word[:1] for word in other.split("_"))


def printable(text: str) -> str:
    r"""Returns a text with control characters, which a terminal would obey, as escapes such as \x1b; lines and tabs stay."""
    if text.isprintable():
        return text
    unsafe = {each for each in text if category(each) in ("Cc", "Cf", "Cs")} - {"\n", "\t"}
    return text.translate({ord(each): repr(each)[1:-1] for each in unsafe})


def with_article(name: str) -> str:
    """Returns the name of a class after "a" or "an", by how it is spoken: an A2C, a PPO, an IQN, a Rainbow, a REINFORCE."""
    spelled = name[1:2].isupper() or name[1:2].isdigit()  # letter by letter, at least the first
    vowels = "AEFHILMNORSX" if spelled and name != "REINFORCE" else "AEIOU"
    return f"{'an' if name[:1].upper() in vowels else 'a'} {name}"


def no_attribute(owner: object, name: str, elsewhere: Mapping[str, str], known: Iterable[str] = ()) -> AttributeError:
    """Returns the error for a missing attribute, with the hint in `elsewhere` or the closest names in `known`."""
    hint = f" {elsewhere[name]}." if name in elsewhere else nearest(name, known, cutoff=0.75)
    return AttributeError(f"{type(owner).__name__} has no attribute {name!r}.{hint}")


def user_stacklevel() -> int:
    """Returns the `stacklevel` of `warnings.warn` for the first caller outside this package, called in the same function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
