"""Arguments and options of the same form in several commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Any], Any]


def number_option(*names: str, least: int = 1, **attributes: Any) -> Decorator:
    """Returns an option for an integer from `least` on; with a `default`, the help shows it."""
    return click.option(*names, type=click.IntRange(least), show_default="default" in attributes, **attributes)


def path_option(*names: str, **attributes: Any) -> Decorator:
    """Returns an option for a path."""
    return click.option(*names, type=click.Path(path_type=Path), **attributes)


def folder_option(*names: str, **attributes: Any) -> Decorator:
    """Returns an option for a folder, which may be a new one."""
    return click.option(*names, type=click.Path(path_type=Path, file_okay=False), **attributes)


def settings_option(*names: str, help: str) -> Decorator:  # as in click
    """Returns an option for NAME=VALUE that may be given several times."""
    return click.option(*names, multiple=True, metavar="NAME=VALUE", help=f"{help}; repeatable.")


run_argument = click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
