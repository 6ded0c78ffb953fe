"""Extension of griffe: classes of algorithms with the docstrings of the running package, which describe shared keywords, too."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe


class CompleteDocstrings(griffe.Extension):
    """Replaces docstring and parameters of a class that has completed them when it was made."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called by griffe for each class that it has read."""
        if not cls.path.startswith("sb_dqn.algorithms.") or cls.docstring is None:
            return
        made = getattr(import_module(cls.module.path), cls.name)
        cls.docstring.value = inspect.getdoc(made) or ""
