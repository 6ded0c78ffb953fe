"""Literals in preset files and on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sb_dqn.presets.literals import parse_value, plain
from tests.marks import SLOW


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1", -1),
        ("1e-4", 1e-4),
        ("2.3e-3", 2.3e-3),
        ("100_000", 100_000),
        ("true", True),
        ("True", True),
        ("null", None),
        ("None", None),
        ("CnnPolicy", "CnnPolicy"),
        ("'3'", "3"),
        ("(4, 'episode')", (4, "episode")),
        ("[256, 256]", [256, 256]),
        ("{net_arch: [64, 64]}", {"net_arch": [64, 64]}),
        ("{'net_arch': [64, 64]}", {"net_arch": [64, 64]}),
        ("{lr: 1e-4}", {"lr": 1e-4}),
        ("linear 1e-3", "linear 1e-3"),
        ("", None),
    ],
)
def test_literals(text: str, value: Any) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none()))
def test_python_scalars_survive_their_repr(value: Any) -> None:
    parsed = parse_value(repr(value))
    assert parsed == value
    assert type(parsed) is type(value)


def test_an_unclosed_list_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be a YAML or Python literal, got '\[1, 2'"):
        parse_value("[1, 2")


@pytest.mark.parametrize(
    ("text", "with_lists"),
    [
        ("{schedule: [(0, 1.0), (100, 0.1)]}", "{schedule: [[0, 1.0], [100, 0.1]]}"),
        ("(4, episode)", "[4, episode]"),
        (" {train_freq: (4, episode)}", "{train_freq: [4, episode]}"),
    ],
)
def test_a_tuple_in_yaml_is_refused_with_the_list(text: str, with_lists: str) -> None:
    with pytest.raises(ValueError, match=r"Write .*, since YAML has lists instead of tuples\.$") as refused:
        parse_value(text)
    assert f"Write {with_lists}, since" in str(refused.value)
    parse_value(with_lists)


@pytest.mark.parametrize("word", ["linear(3)", "(see)", "foo (bar, baz)", "a)"])
def test_words_with_parentheses_stay_words(word: str) -> None:
    assert parse_value(word) == word


def test_words_that_resemble_numbers_stay_words() -> None:
    assert plain(["nan", "inf", "1e", "e5", "v5", "1.2.3", "bf16"]) == ["nan", "inf", "1e", "e5", "v5", "1.2.3", "bf16"]


@SLOW
@pytest.mark.parametrize(
    "text",
    [
        "&a [*a]",
        "{b: &a {c: *a}}",
        "[&a [1, 1, 1, 1, 1, 1, 1, 1, 1], &b [*a, *a, *a, *a, *a, *a, *a, *a, *a], &c [*b, *b, *b, *b, *b, *b, *b, *b, *b], "
        "&d [*c, *c, *c, *c, *c, *c, *c, *c, *c], &e [*d, *d, *d, *d, *d, *d, *d, *d, *d], [*e, *e, *e, *e, *e, *e, *e, *e]]",
        "{a: " + "[" * 2_000 + "]" * 2_000 + "}",
    ],
    ids=["itself", "itself in a mapping", "nine times nine", "deep"],
)
def test_aliases_and_lists_without_end_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a YAML or Python literal"):
        parse_value(text)


def test_aliases_are_allowed() -> None:
    assert parse_value("[&a {x: 1e-3}, *a, {<<: *a, y: 2}]") == [{"x": 0.001}, {"x": 0.001}, {"x": 0.001, "y": 2}]
