"""Settings of several algorithms: `name=value` of all of them, `Algo.name=value` of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from sb_dqn.cli.train.settings_syntax import (
    algorithm_class,
    canonical,
    constructor_defaults,
    kwargs_over,
    parse_assignments,
    refuse_dotted,
)

ELSEWHERE = {"seed": "--seeds N", "device": "--device NAME"}
"""What each run is given anyway, and how it is said."""


def by_owner(algorithms: Sequence[str], settings: Iterable[str]) -> dict[str, list[str]]:
    """`name=value` by algorithm: what is said of one goes over what is said of all, and its owner is not named again.

    Raises:
        click.BadParameter: a name that is given twice, an owner that is not among `algorithms`, or what is no setting.
    """
    said: dict[str, list[tuple[str, bool]]] = {algorithm: [] for algorithm in algorithms}
    for text in settings:
        owner, own = _split(text, said)
        for algorithm in [owner] if owner else said:
            said[algorithm].append((own, bool(owner)))
    return {algorithm: _own_over_shared(texts) for algorithm, texts in said.items()}


def _split(text: str, algorithms: Iterable[str]) -> tuple[str, str]:
    """The algorithm that `text` is of, "" for all, and what is left of it."""
    names, equals, value = text.partition("=")
    owner, dot, name = names.partition(".")
    if dot and any(owner.strip() in constructor_defaults(algorithm_class(algorithm)) for algorithm in algorithms):
        refuse_dotted(text, "--set")
    if dot and canonical(owner) not in algorithms:
        raise click.BadParameter(f"{owner} is not among {', '.join(algorithms)}", param_hint="--set")
    own = f"{name}{equals}{value}" if dot and equals else text
    if dot:
        refuse_dotted(own, "--set", f"{owner}.")
    setting = own.partition("=")[0].strip()
    if setting in ELSEWHERE:
        raise click.BadParameter(
            f"{setting} is no setting; `sb-dqn compare` has {ELSEWHERE[setting]}", param_hint="--set"
        )
    return canonical(owner) if dot else "", own


def _own_over_shared(texts: Sequence[tuple[str, bool]]) -> list[str]:
    """As they were typed, but each name once: `sb-dqn train` refuses one that is given twice."""
    import yaml

    shared, own = (parse_assignments([text for text, is_own in texts if is_own is wanted]) for wanted in (False, True))
    twice = shared.keys() & own.keys()
    kept = [text for text, _ in texts if text.partition("=")[0].strip() not in twice]
    for name in sorted(twice):
        value, before = own[name], shared[name]
        if name == "policy_kwargs" and isinstance(before, Mapping) and isinstance(value, Mapping):
            value = kwargs_over(before, value)
            kept.append(
                f"{name}={yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6).strip()}"
            )
        else:
            kept += [text for text, is_own in texts if is_own and text.partition("=")[0].strip() == name]
    return kept
