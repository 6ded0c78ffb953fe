"""Importing the modules of Stable-Baselines3 and its contrib package below `sb_dqn.sb3`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

ROOM = __package__
"""Name of the package that has the classes of this library."""
PACKAGES = ("stable_baselines3", "sb3_contrib")


def their_module(name: str) -> ModuleType:
    """Returns a module of Stable-Baselines3 or its contrib package.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"{package} must be installed for sb_dqn.sb3, got none. Run pip install 'sb_dqn[sb3]'.", name=package
        ) from None


class _Copy(Loader):
    """Makes a module with the names of theirs, and the classes of this library in place of their namesakes.

    Args:
        sources: names of the modules to copy; of a name in several, the first counts.
    """

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = sources

    def exec_module(self, module: ModuleType) -> None:
        for source in reversed(self.sources):
            theirs = their_module(source)
            names = {name: value for name, value in vars(theirs).items() if not name.startswith("__")}
            submodules = [name for name, value in names.items() if getattr(value, "__name__", "") == f"{source}.{name}"]
            vars(module).update({name: names[name] for name in names.keys() - set(submodules)})
            module.__doc__ = theirs.__doc__
            if (listed := vars(theirs).get("__all__")) is not None:
                vars(module)["__all__"] = list(dict.fromkeys([*vars(module).get("__all__", ()), *listed]))
        room: Any = sys.modules[ROOM]
        for name in vars(module).keys() & room.REPLACED.keys():
            setattr(module, name, getattr(room, name))
        self._replace_policies(module)
        vars(module)["__getattr__"] = partial(submodule, module.__name__)

    def _replace_policies(self, module: ModuleType) -> None:
        """Puts the policies of this library in the place of those of an algorithm, under all their names."""
        package = module.__name__.removeprefix(f"{ROOM}.").partition(".")[0]
        for alias, ours in import_module(f"{ROOM}.policy").policy_classes(package).items():
            if (theirs := vars(module).get(alias)) is not None:
                vars(module).update({name: ours for name, value in vars(module).items() if value is theirs})


def submodule(parent: str, name: str) -> ModuleType:
    """Imports a submodule that is read as an attribute.

    Raises:
        AttributeError: there is none.
    """
    if not name.startswith("__"):  # the import system itself asks for `__path__`
        with suppress(ModuleNotFoundError):
            return import_module(f"{parent}.{name}")
    raise AttributeError(f"module {parent!r} has no attribute {name!r}")


class Finder(MetaPathFinder):
    """Finds `sb_dqn.sb3.common.callbacks` as a copy of `stable_baselines3.common.callbacks`, of sb3_contrib's, or of both."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of a module below the room; None for other modules."""
        inside = fullname.removeprefix(ROOM + ".")
        if inside == fullname:
            return None
        specs = {f"{package}.{inside}": _spec_of(f"{package}.{inside}") for package in PACKAGES}
        sources = [source for source, spec in specs.items() if spec is not None]
        if not sources:
            return None
        is_package = any(spec is not None and spec.submodule_search_locations is not None for spec in specs.values())
        return ModuleSpec(fullname, _Copy(sources), origin=sources[0], is_package=is_package)


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name)
    except ModuleNotFoundError:  # the package, or a parent of the module
        return None


def install() -> None:
    """Makes the modules of Stable-Baselines3 importable below `ROOM`, with the classes of this library."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())
