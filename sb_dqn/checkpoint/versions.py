"""Compares the version of the package that wrote a file with the version that reads it."""

from __future__ import annotations

import re
import warnings
from typing import Any

from sb_dqn.errors import user_stacklevel
from sb_dqn.version import __version__

RELEASE = re.compile(r"\d{1,9}(\.\d{1,9}){0,9}")


def warn_of_newer(written_by: Any, label: str) -> None:
    """Warns of a file that a newer version of the package wrote; its format can still be read.

    Args:
        written_by: version in the file; anything else is ignored.
        label: the file, for the message.
    """
    if _release(written_by) > _release(__version__):
        warnings.warn(
            f"{label} was written by sb_dqn {written_by[:40]}, which is newer than the installed {__version__}; what that version "
            f"added may be refused or go unread. Update: pip install -U sb_dqn.",
            stacklevel=user_stacklevel(),
        )


def _release(version: Any) -> tuple[int, ...]:
    """Returns the numbers at the front, without zeros at the end: 1.2.0rc1 gives (1, 2); () if there are none."""
    found = RELEASE.match(version) if isinstance(version, str) else None
    numbers = [] if found is None else [int(number) for number in found.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
