"""Each check returns plain Python, or says what was given, what is allowed and the fix."""

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


def test_a_million_as_people_write_it() -> None:
    assert check_int("buffer_size", 1e6, 1) == 1_000_000


def test_ends_are_allowed_and_so_are_exceptions() -> None:
    assert check_int("k", 1, 1, 5) == 1
    assert check_int("k", 5, 1, 5) == 5
    assert check_int("k", -1, 1, 5, also=(-1,)) == -1


NO_NUMBERS = ["3", b"3", None, True, False, [3], (3,), {}, 3j, object(), math.nan, math.inf, -math.inf, np.nan]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, 6, -1, 2.5, np.float64(2.5), np.bool_(True)])
def test_what_is_no_whole_number_from_1_to_5(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_int("n_steps", value, 1, 5)
    assert str(caught.value) == f"n_steps={value!r} is not allowed: give a whole number from 1 to 5"


def test_messages_of_open_ranges() -> None:
    with pytest.raises(ConfigurationError, match=r"k=0 is not allowed: give a whole number from 1 up or -1$"):
        check_int("k", 0, 1, also=(-1,))


@pytest.mark.parametrize("value", [0.5, np.float32(0.5), np.array(0.5), Decimal("0.5"), torch.tensor(0.5)])
def test_numbers(value: Any) -> None:
    found = check_float("gamma", value, 0.0, 1.0)
    assert found == 0.5
    assert type(found) is float


@pytest.mark.parametrize("value", [*NO_NUMBERS, -0.1, 1.1, np.bool_(True)])
def test_what_is_no_number_from_0_to_1(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_float("gamma", value, 0.0, 1.0)
    assert str(caught.value) == f"gamma={value!r} is not allowed: give a number from 0 and up to 1"


@pytest.mark.parametrize(
    ("kwargs", "value", "message"),
    [
        ({"low": 0.0, "above": True}, 0.0, "a number above 0$"),
        ({"low": 0.0, "high": 1.0, "below": True}, 1.0, "a number from 0 and below 1$"),
        ({"low": -math.inf}, math.nan, "a finite number$"),
        ({"low": 0.0}, math.inf, "a number from 0$"),
    ],
)
def test_open_ends(kwargs: dict[str, Any], value: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"tau=.* is not allowed: give {message}"):
        check_float("tau", value, **kwargs)


def test_closed_ends_are_allowed() -> None:
    assert check_float("gamma", 0, 0.0, 1.0) == 0.0
    assert check_float("gamma", 1, 0.0, 1.0) == 1.0


@pytest.mark.parametrize("value", [True, False])
def test_truths(value: bool) -> None:
    assert check_bool("double_q", value) is value
    assert check_bool("double_q", np.bool_(value)) is value


@pytest.mark.parametrize("value", [1, 0, None, "yes", "True", 1.0, []])
def test_what_is_no_truth(value: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_bool("double_q", value)
    assert str(caught.value) == f"double_q={value!r} is not allowed: give True or False"


def test_choices() -> None:
    assert check_choice("loss", "mse", ("huber", "mse")) == "mse"
    with pytest.raises(ConfigurationError) as caught:
        check_choice("loss", "hubber", ("huber", "mse"))
    assert str(caught.value) == "loss='hubber' is unknown: allowed are ['huber', 'mse']. Did you mean 'huber'?"


@pytest.mark.parametrize("value", [None, 3, True, ["mse"], {}, b"mse"])
def test_what_is_no_choice(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"loss=.* is unknown: allowed are \['huber', 'mse'\]"):
        check_choice("loss", value, {"huber": 1, "mse": 2})


def test_mappings() -> None:
    given = {"a": 1}
    found = check_mapping("kwargs", given)
    assert found == given
    assert found is not given
    assert check_mapping("kwargs", None) == {}


@pytest.mark.parametrize("value", [3, "a", [("a", 1)], ("a",), {"a"}])
def test_what_is_no_mapping(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="kwargs=.* is not allowed: give a dict"):
        check_mapping("kwargs", value)


@pytest.mark.parametrize("key", ["net_arc", 3, ("net_arch",), None])
def test_unknown_keys(key: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"policy_kwargs has no .*; allowed are \['net_arch'\]") as caught:
        check_keys("policy_kwargs", {key: 1}, ("net_arch",))
    if key == "net_arc":
        assert str(caught.value).endswith("Did you mean 'net_arch'?")
