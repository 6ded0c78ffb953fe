"""Argument checks: values in plain Python types, and messages with the allowed and the actual value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.checks import (
    check_bool,
    check_callable,
    check_choice,
    check_float,
    check_int,
    check_keys,
    check_mapping,
    check_names,
    check_path,
    check_switch,
)
from sb_dqn.errors import ConfigurationError


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.float32(3), np.array(3), Decimal(3), torch.tensor(3)])
def test_whole_numbers(value: Any) -> None:
    found = check_int("n_steps", value, 1)
    assert found == 3
    assert type(found) is int


def test_a_float_without_a_fraction_is_an_integer() -> None:
    assert check_int("buffer_size", 1e6, 1) == 1_000_000


def test_limits_and_exceptions_are_allowed() -> None:
    assert check_int("k", 1, 1, 5) == 1
    assert check_int("k", 5, 1, 5) == 5
    assert check_int("k", -1, 1, 5, also=(-1,)) == -1


# The tables of arguments elsewhere hold one or two wrong values each, and leave the others to these.
INVALID_NUMBERS = [
    "3", "x", "", b"3", None, True, False, [], [3], (3,), {}, 1j, 3j, object(), math.nan, math.inf, -math.inf, np.nan,
    np.float32("nan"), np.bool_(True), lambda: 3,
]  # fmt: skip


@pytest.mark.parametrize("value", [*INVALID_NUMBERS, 0, 6, -1, 1.5, 2.5, np.float32(1.5), np.float64(2.5)])
def test_values_other_than_integers_from_1_to_5_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_int("n_steps", value, 1, 5)
    fixes = {0: "Use 1 or more", -1: "Use 1 or more", 6: "Use 5 or less"}
    fix = "Pass an integer" if type(value) is not int else fixes[value]
    assert str(caught.value) == f"n_steps must be an integer from 1 to 5, got {value!r}. {fix}."


def test_messages_of_open_ranges() -> None:
    with pytest.raises(ConfigurationError, match="k must be an integer >= 1 or -1, got 0. Use 1 or more.$"):
        check_int("k", 0, 1, also=(-1,))


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), Decimal("0.5"), torch.tensor(0.5)])
def test_numbers(value: Any) -> None:
    found = check_float("gamma", value, 0.0, 1.0)
    assert found == 0.5
    assert type(found) is float


@pytest.mark.parametrize("value", [*INVALID_NUMBERS, -0.1, 1.1])
def test_values_other_than_numbers_from_0_to_1_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_float("gamma", value, 0.0, 1.0)
    fixes = {-0.1: "Use 0 or more", 1.1: "Use 1 or less", -math.inf: "Use 0 or more", math.inf: "Use 1 or less"}
    fix = fixes.get(value, "Pass a finite number") if type(value) is float else "Pass a finite number"
    assert str(caught.value) == f"gamma must be a number >= 0 and <= 1, got {value!r}. {fix}."


@pytest.mark.parametrize(
    ("kwargs", "value", "message"),
    [
        ({"low": 0.0, "above": True}, 0.0, "a number > 0, got 0.0. Use a number above 0."),
        ({"low": 0.0, "high": 1.0, "below": True}, 1.0, "a number >= 0 and < 1, got 1.0. Use a number below 1."),
        ({"low": -math.inf}, math.nan, "a finite number, got nan. Pass a finite number."),
        ({"low": -math.inf}, -math.inf, "a finite number, got -inf. Pass a finite number."),
        ({"low": 0.0}, math.inf, "a number >= 0, got inf. Pass a finite number."),
    ],
)
def test_open_ends(kwargs: dict[str, Any], value: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"tau must be {message}$"):
        check_float("tau", value, **kwargs)


def test_closed_ends_are_allowed() -> None:
    assert check_float("gamma", 0, 0.0, 1.0) == 0.0
    assert check_float("gamma", 1, 0.0, 1.0) == 1.0


@pytest.mark.parametrize("value", [True, False])
def test_bools(value: bool) -> None:
    assert check_bool("double_q", value) is value
    assert check_bool("double_q", np.bool_(value)) is value


@pytest.mark.parametrize("value", [1, 0, None, "yes", "x", "True", 0.5, 1.0, [], {}, 1j, math.nan, object()])
def test_values_other_than_bools_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_bool("double_q", value)
    assert str(caught.value) == f"double_q must be True or False, got {value!r}. Pass a bool."


def test_choices() -> None:
    assert check_choice("loss", "mse", ("huber", "mse")) == "mse"
    with pytest.raises(ConfigurationError) as caught:
        check_choice("loss", "hubber", ("huber", "mse"))
    assert (
        str(caught.value)
        == "loss must be one of ['huber', 'mse'], got 'hubber'. Use one of them. Did you mean 'huber'?"
    )


@pytest.mark.parametrize("value", [None, 3, math.nan, True, [], ["mse"], {}, b"mse", "", object()])
def test_other_choices_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"loss must be one of \['huber', 'mse'\], got"):
        check_choice("loss", value, {"huber": 1, "mse": 2})


def test_mappings() -> None:
    given = {"a": 1}
    found = check_mapping("kwargs", given)
    assert found == given
    assert found is not given
    assert check_mapping("kwargs", None) == {}


@pytest.mark.parametrize("value", [3, True, math.nan, "a", [], [("a", 1)], ("a",), {"a"}, object()])
def test_values_other_than_mappings_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="kwargs must be a dict of keyword arguments or None, got"):
        check_mapping("kwargs", value)


@pytest.mark.parametrize("key", ["net_arc", 3, ("net_arch",), None])
def test_unknown_keys(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"keys of policy_kwargs must be among \['net_arch'\], got") as caught:
        check_keys("policy_kwargs", {key: 1}, ("net_arch",))
    if key == "net_arc":
        assert str(caught.value).endswith("Did you mean 'net_arch'?")


def test_paths() -> None:
    assert check_path("folder", None) is None
    assert check_path("folder", Path("a")) == check_path("folder", "a") == "a"


@pytest.mark.parametrize("value", [3, math.nan, True, [], ["runs"], {}, 1j, b"runs", object()])
def test_values_other_than_paths_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_path("folder", value)
    assert str(caught.value).startswith(f"folder must be a path or None, got {value!r}. ")


def test_names() -> None:
    assert check_names("keys", ["a", "b"]) == ("a", "b")
    assert check_names("keys", ()) == ()


@pytest.mark.parametrize("value", ["a", 3, math.nan, None, True, [3], ("a", None), 1j, object()])
def test_values_other_than_names_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="keys must be a tuple of names, .* got"):
        check_names("keys", value)


def test_functions() -> None:
    for function in (lambda progress: progress, lambda *progress: 1.0, print):
        assert check_callable("rate", function, "progress") is function


@pytest.mark.parametrize("value", ["x", 3, math.nan, None, True, [], {}, 1j, object(), lambda: 1.0, lambda a, b: a])
def test_values_other_than_functions_of_one_argument_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"rate must be a function \(progress\), got"):
        check_callable("rate", value, "progress")


@dataclass
class Sizes:
    """The settings of a switch."""

    width: int = 1
    kind: str = "plain"


def test_switches() -> None:
    assert check_switch("size", False, Sizes) is None
    assert check_switch("size", True, Sizes) == check_switch("size", {}, Sizes) == Sizes()
    assert check_switch("size", {"width": 2}, Sizes) == check_switch("size", Sizes(2), Sizes) == Sizes(2)
    assert check_switch("size", "odd", Sizes, text="kind") == Sizes(kind="odd")


@pytest.mark.parametrize("value", ["x", "True", 1, 0, 0.5, math.nan, None, [], ("width",), 1j, object(), Sizes])
def test_values_other_than_switches_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="size must be True, False or a dict with any of .* width, kind, got"):
        check_switch("size", value, Sizes)


@pytest.mark.parametrize("key", ["widht", 3, None])
def test_unknown_settings_of_switches_are_refused(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"keys of size must be among \['kind', 'width'\], got .*"):
        check_switch("size", {key: 1}, Sizes)
