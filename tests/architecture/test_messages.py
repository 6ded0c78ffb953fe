"""Error messages read "X must be Y, got Z. Fix.": a verb for the rule, a second sentence with the fix, a full stop.

Only messages that are written where the error is made are checked, also those with `+`. Skipped, since the text is built elsewhere:
`NO_COPY` and `assignment_error` of sb3_names.py, `FormatUnsupportedError` of logger/entries.py, `no_attribute` of errors.py,
`_wrong_interval` of buffers/ring_checkpoint.py, and errors that pass on the message of another one ("{label}: {error}").
The values of the placeholders are not known here either: a suggestion by `nearest` may follow the last full stop, and a constant
may be the whole fix.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.package import parsed, sources
from tests.marks import SLOW

STRICT = {"ConfigurationError", "SpaceError", "MissingPart"}
"""Errors whose message must name a rule."""
LOOSE = {"CheckpointError", "EnvironmentFault", "MemoryBudgetError", "UsageError", "BadParameter", "ClickException"}
"""Errors that may describe what happened instead of a rule: a damaged file, a failed environment, short memory."""
RULE = re.compile(r"\b(must|requires|cannot)\b")
SENTENCES = re.compile(r"\. (?=[A-Z`{])")
FAILURES = re.compile(r"\bthe environments? (in lanes? \{\} )?(raised )?\{\}")
"""Messages around the text of an environment's own error, which `with_fix` ends."""


def text_of(node: ast.expr) -> str | None:
    """Returns a text with "{}" for its placeholders, or None for other expressions."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (text_of(node.left) or "{}") + (text_of(node.right) or "{}")
    return None


def messages(source: str) -> Iterator[tuple[str, str]]:
    """Yields the class and the message of each error that a module makes."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func).rpartition(".")[2]
            text = text_of(node.args[0])
            if name in STRICT | LOOSE and text is not None:
                yield name, text


def is_passed_on(text: str) -> bool:
    return text == "{}: {}" or FAILURES.match(text) is not None


def faults(source: str) -> list[str]:
    """Returns the messages of a module that are not in the form, each with what is wrong."""
    found = []
    for name, text in messages(source):
        if is_passed_on(text):
            continue
        message = text.removesuffix("{}") if text.endswith(".{}") else text
        if name in STRICT and not RULE.search(message):
            found.append(f"no rule: {text}")
        if not SENTENCES.search(message):
            found.append(f"no fix: {text}")
        if not message.endswith((".", ". {}")):
            found.append(f"no full stop: {text}")
    return found


@SLOW
def test_messages() -> None:
    assert [f"{name}: {fault}" for name, source in sources().items() for fault in faults(source)] == []


@SLOW
def test_that_messages_are_found() -> None:
    assert sum(len(list(messages(source))) for source in sources().values()) > 300


DECOYS = [
    ('raise ConfigurationError(f"gamma has no {value}. Pass one.")', "no rule: gamma has no {}. Pass one."),
    ('raise SpaceError("gamma must be 1, got 2.")', "no fix: gamma must be 1, got 2."),
    ('raise SpaceError("gamma must be 1, got 2" f" {x}.")', "no fix: gamma must be 1, got 2 {}."),
    ('return ConfigurationError("a must be 1, got 2. Set 1")', "no full stop: a must be 1, got 2. Set 1"),
    (
        'raise ConfigurationError(f"a must be {b}" + f", got {c}. Set {d}")',
        "no full stop: a must be {}, got {}. Set {}",
    ),
    ('raise errors.ConfigurationError(f"a must be 1, got {b}. Set 1;")', "no full stop: a must be 1, got {}. Set 1;"),
    ('raise CheckpointError(f"{path} is damaged.")', "no fix: {} is damaged."),
    ('raise click.UsageError(f"no {path}. Make it")', "no full stop: no {}. Make it"),
]


@pytest.mark.parametrize(("source", "fault"), DECOYS)
def test_messages_in_another_form_are_reported(source: str, fault: str) -> None:
    assert faults(f"def f():\n    {source}") == [fault]


@pytest.mark.parametrize(
    "source",
    [
        'ConfigurationError(f"gamma must be {allowed}, got {value!r}. Use 1 or less.")',
        'ConfigurationError(f"loss must be one of {names}, got {value!r}. Use one of them.{nearest(value, names)}")',
        'ConfigurationError(f"seed of a model cannot be assigned. Call {setter}.")',
        'CheckpointError(f"{label} is empty (0 bytes). Load another copy.")',
        'CheckpointError(f"{label}: {error}")',
        'EnvironmentFault(f"the environment raised {when}: {message}")',
        'ConfigurationError(f"flag must be False, got True. {FIX}")',
        'ValueError("no form")',
    ],
)
def test_the_form(source: str) -> None:
    assert faults(source) == []
