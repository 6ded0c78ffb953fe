"""Command-line syntax of algorithm names and of settings as `name=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sb_dqn.algorithms import registry
from sb_dqn.errors import nearest
from sb_dqn.presets import parse_value
from sb_dqn.presets.catalogue import MERGED

if TYPE_CHECKING:
    from sb_dqn.types import Kwargs


def canonical(name: str) -> str:
    """Returns the class name for `name`, ignoring case, hyphens and underscores.

    Raises:
        click.BadParameter: no algorithm has that name. The message lists the closest names.
    """
    by_lower = {each.lower(): registry.ALIASES.get(each, each) for each in registry.MODULES}
    key = name.lower().replace("-", "").replace("_", "")
    if key not in by_lower:
        raise click.BadParameter(
            f"must be one of {', '.join(registry.NAMES)}, got {name!r}. Use one of them.{nearest(key, by_lower)}",
            param_hint="ALGO",
        )
    return by_lower[key]


def algorithm_class(name: str) -> Any:
    """Returns the algorithm class for `name`; imports torch."""
    return registry.algorithm_class(canonical(name))


def parse_assignments(assignments: Iterable[str], option: str = "--set") -> Kwargs:
    """Parses `["gamma=0.98", ...]` into a dict; values are YAML or Python literals.

    Raises:
        click.BadParameter: no `=`, no name, an unclosed value, or a duplicate name.
    """
    settings: Kwargs = {}
    for assignment in assignments:
        reject_dotted(assignment, option)
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise click.BadParameter(
                f"must have the form name=value, got {assignment!r}. Write for example gamma=0.98.", param_hint=option
            )
        try:
            value = parse_value(text)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}", param_hint=option) from error
        settings[name] = _merge_repeated(name, settings[name], value, option) if name in settings else value
    return settings


def _merge_repeated(name: str, first: object, second: object, option: str, within: str = "") -> Any:
    """Merges two dicts for `policy_kwargs`, or for one of `MERGED` within it; raises for any other repeated name."""
    mergeable = option == "--set" and name in (MERGED if within else ("policy_kwargs",))
    if not mergeable or not isinstance(first, Mapping) or not isinstance(second, Mapping):
        raise click.BadParameter(
            f"{name}{within} must be set once, got {first!r} and {second!r}. Remove one of them.", param_hint=option
        )
    inside = f" in {name}{within}"
    both = {key: _merge_repeated(key, first[key], second[key], option, inside) for key in first.keys() & second.keys()}
    return {**first, **second, **both}


def reject_dotted(assignment: str, option: str, algorithm: str = "") -> None:
    """Rejects `outer.inner=value` and suggests `outer={inner: value}`.

    Args:
        assignment: text from the command line, without the algorithm.
        option: its option, for messages.
        algorithm: prefix `ALGO.` of a setting of one algorithm, or "".

    Raises:
        click.BadParameter: the name contains a dot.
    """
    names, equals, text = assignment.partition("=")
    outer, *inner = names.strip().split(".")
    if not equals or not inner or not all(name.isidentifier() for name in (outer, *inner)):
        return
    for name in reversed(inner):
        text = f"{{{name}: {text.strip()}}}"
    raise click.BadParameter(
        f"The name of a setting must not contain a dot, got {algorithm}{assignment}. Set {inner[-1]} in its dict: "
        f'{option} "{algorithm}{outer}={text}".',
        param_hint=option,
    )


def typed_options() -> dict[str, str]:
    """Returns the options of the current command line, by parameter name (`assignments` to `--set`)."""
    context = click.get_current_context()
    return {
        option.name: option.opts[0]
        for option in context.command.params
        if isinstance(option, click.Option)
        and option.name
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }


def constructor_defaults(cls: type[Any]) -> Kwargs:
    """Returns the default of each constructor keyword, those of parent classes included; imports torch."""
    from sb_dqn.core.arguments import constructor_arguments

    return {name: parameter.default for name, parameter in constructor_arguments(cls).items()}
