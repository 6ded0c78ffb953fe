"""Settings of a comparison: `name=value` for all algorithms, `ALGO.name=value` for one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from sb_dqn.files import yaml_line
from sb_dqn.presets.catalogue import merge_policy_kwargs
from sb_dqn.runs.settings_syntax import (
    algorithm_class,
    canonical,
    constructor_defaults,
    parse_assignments,
    reject_dotted,
)

OWN_OPTIONS = {"seed": "--seeds N", "device": "--device NAME"}
"""Names that `--set` does not accept, and the option to use instead."""


def settings_per_algorithm(algorithms: Sequence[str], settings: Iterable[str]) -> dict[str, list[str]]:
    """Returns the `name=value` settings of each algorithm; settings for one override those for all.

    Args:
        algorithms: class names.
        settings: texts `name=value` and `ALGO.name=value`.

    Raises:
        click.BadParameter: a duplicate name, an algorithm that is not in `algorithms`, or a name with an option of its own.
    """
    typed: dict[str, list[tuple[str, bool]]] = {algorithm: [] for algorithm in algorithms}
    for text in settings:
        target, assignment = _split(text, typed)
        for algorithm in [target] if target else typed:
            typed[algorithm].append((assignment, bool(target)))
    return {algorithm: _merge_own_over_shared(texts) for algorithm, texts in typed.items()}


def _split(text: str, algorithms: Iterable[str]) -> tuple[str, str]:
    """Splits `ALGO.name=value` into class name and `name=value`; the class name is "" for a setting of all."""
    names, equals, value = text.partition("=")
    prefix, dot, name = names.partition(".")
    if dot and any(prefix.strip() in constructor_defaults(algorithm_class(algorithm)) for algorithm in algorithms):
        reject_dotted(text, "--set")
    if dot and canonical(prefix) not in algorithms:
        raise click.BadParameter(
            f"ALGO in ALGO.NAME=VALUE must be one of {', '.join(algorithms)}, got {prefix}. Use one of them.",
            param_hint="--set",
        )
    assignment = f"{name}{equals}{value}" if dot and equals else text
    if dot:
        reject_dotted(assignment, "--set", f"{prefix}.")
    setting = assignment.partition("=")[0].strip()
    if setting in OWN_OPTIONS:
        raise click.BadParameter(
            f"{setting} must be the same for all runs, got it for one algorithm. Use {OWN_OPTIONS[setting]} of `sb-dqn compare`.",
            param_hint="--set",
        )
    return canonical(prefix) if dot else "", assignment


def _merge_own_over_shared(texts: Sequence[tuple[str, bool]]) -> list[str]:
    """Returns the texts with each name once, because `sb-dqn train` rejects duplicates.

    Args:
        texts: pairs of `name=value` and a flag, True for a setting of this algorithm alone.
    """
    shared, own = (parse_assignments([text for text, is_own in texts if is_own is flag]) for flag in (False, True))
    duplicates = shared.keys() & own.keys()
    merged = [text for text, _ in texts if text.partition("=")[0].strip() not in duplicates]
    for name in sorted(duplicates):
        value, base = own[name], shared[name]
        if name == "policy_kwargs" and isinstance(base, Mapping) and isinstance(value, Mapping):
            merged.append(f"{name}={yaml_line(merge_policy_kwargs(base, value))}")
        else:
            merged += [text for text, is_own in texts if is_own and text.partition("=")[0].strip() == name]
    return merged
