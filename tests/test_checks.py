"""Argument checks: values in plain Python types, and messages with the allowed and the actual value."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.checks import check_bool, check_choice, check_float, check_int, check_keys, check_mapping
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


INVALID_NUMBERS = ["3", b"3", None, True, False, [3], (3,), {}, 3j, object(), math.nan, math.inf, -math.inf, np.nan]


@pytest.mark.parametrize("value", [*INVALID_NUMBERS, 0, 6, -1, 2.5, np.float64(2.5), np.bool_(True)])
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


@pytest.mark.parametrize("value", [*INVALID_NUMBERS, -0.1, 1.1, np.bool_(True)])
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


@pytest.mark.parametrize("value", [1, 0, None, "yes", "True", 1.0, []])
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


@pytest.mark.parametrize("value", [None, 3, True, ["mse"], {}, b"mse"])
def test_other_choices_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"loss must be one of \['huber', 'mse'\], got"):
        check_choice("loss", value, {"huber": 1, "mse": 2})


def test_mappings() -> None:
    given = {"a": 1}
    found = check_mapping("kwargs", given)
    assert found == given
    assert found is not given
    assert check_mapping("kwargs", None) == {}


@pytest.mark.parametrize("value", [3, "a", [("a", 1)], ("a",), {"a"}])
def test_values_other_than_mappings_are_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="kwargs must be a dict of keyword arguments or None, got"):
        check_mapping("kwargs", value)


@pytest.mark.parametrize("key", ["net_arc", 3, ("net_arch",), None])
def test_unknown_keys(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"keys of policy_kwargs must be among \['net_arch'\], got") as caught:
        check_keys("policy_kwargs", {key: 1}, ("net_arch",))
    if key == "net_arc":
        assert str(caught.value).endswith("Did you mean 'net_arch'?")
