"""Algorithms by name, and settings as `name=value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from sb_dqn.algorithms import registry
from sb_dqn.errors import nearest
from sb_dqn.presets import parse_value

MERGED = ("features_extractor_kwargs", "optimizer_kwargs")
"""Dicts within `policy_kwargs` that are merged key by key, as `policy_kwargs` is."""


def canonical(name: str) -> str:
    """Returns the class name for `name`, ignoring case, hyphens and underscores.

    Raises:
        click.BadParameter: no algorithm has that name. The message lists the closest names.
    """
    by_lower = {each.lower(): registry.ALIASES.get(each, each) for each in registry.MODULES}
    plain = name.lower().replace("-", "").replace("_", "")
    if plain not in by_lower:
        raise click.BadParameter(
            f"no algorithm {name!r}; there are: {', '.join(registry.NAMES)}.{nearest(plain, by_lower)}",
            param_hint="ALGO",
        )
    return by_lower[plain]


def algorithm_class(name: str) -> Any:
    """Returns the algorithm class for `name`; imports torch."""
    return registry.algorithm_class(canonical(name))


def parse_assignments(assignments: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """`["gamma=0.98", …]` as a dict; the value is a YAML or Python literal.

    Args:
        assignments: as they were typed.
        option: that they were typed after.

    Raises:
        click.BadParameter: no `=`, no name, a value that is not closed, or a name that is given twice.
    """
    settings: dict[str, Any] = {}
    for assignment in assignments:
        refuse_dotted(assignment, option)
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{assignment!r} is not of the form name=value", param_hint=option)
        try:
            value = parse_value(text)
        except ValueError as error:
            raise click.BadParameter(f"{name}: {error}", param_hint=option) from error
        settings[name] = _joined(name, settings[name], value, option) if name in settings else value
    return settings


def _joined(name: str, before: Any, value: Any, option: str, within: str = "") -> Any:
    """Two dicts for `policy_kwargs`, or for one of `MERGED` within it, as one; nothing else may be said twice."""
    joins = option == "--set" and name in (MERGED if within else ("policy_kwargs",))
    if not joins or not isinstance(before, Mapping) or not isinstance(value, Mapping):
        raise click.BadParameter(
            f"{name}{within} is given twice, as {before!r} and as {value!r}; say one of them", param_hint=option
        )
    inside = f" within {name}{within}"
    both = {key: _joined(key, before[key], value[key], option, inside) for key in before.keys() & value.keys()}
    return {**before, **value, **both}


def kwargs_over(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`policy_kwargs` that are given over those from before, the dicts of `MERGED` key by key."""
    inner = {
        name: {**before[name], **given[name]}
        for name in MERGED
        if isinstance(before.get(name), Mapping) and isinstance(given.get(name), Mapping)
    }
    return {**before, **given, **inner}


def refuse_dotted(assignment: str, option: str, owner: str = "") -> None:
    """Names the dict that `outer.inner=value` means.

    Args:
        assignment: what was typed, without its owner.
        option: that it was typed after.
        owner: `ALGO.` where it is of one algorithm.

    Raises:
        click.BadParameter: there is a dot in its name.
    """
    names, equals, text = assignment.partition("=")
    outer, *inner = names.strip().split(".")
    if not equals or not inner or not all(name.isidentifier() for name in (outer, *inner)):
        return
    for name in reversed(inner):
        text = f"{{{name}: {text.strip()}}}"
    raise click.BadParameter(
        f'{owner}{assignment} has a dot in its name; say {inner[-1]} within its dict: {option} "{owner}{outer}={text}"',
        param_hint=option,
    )


def typed_options() -> dict[str, str]:
    """Parameter to option (`assignments` to `--set`) of those that were typed after the command that is at work."""
    context = click.get_current_context()
    return {
        option.name: option.opts[0]
        for option in context.command.params
        if isinstance(option, click.Option)
        and option.name
        and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    }


def constructor_defaults(cls: type[Any]) -> dict[str, Any]:
    """Every keyword of the constructor that may be set, its parents' included, with its default; imports torch."""
    from sb_dqn.core.arguments import constructor_arguments

    return {name: parameter.default for name, parameter in constructor_arguments(cls).items()}
