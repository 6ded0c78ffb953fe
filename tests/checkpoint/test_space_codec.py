"""Encoding of spaces: dtype, start, key order and infinite bounds round-trip."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn.checkpoint import decode_space, encode_space
from sb_dqn.errors import CheckpointError, SpaceError

SPACES = [
    spaces.Box(-np.inf, np.inf, (4,)),
    spaces.Box(0, 255, (84, 84, 4), np.uint8),
    spaces.Box(np.array([-1.5, -np.inf, 0.1], np.float32), np.array([np.inf, 2.0, 0.3], np.float32)),
    spaces.Box(-1e30, 1 / 3, (2, 3), np.float64),
    spaces.Box(-(2**62), 2**62, (), np.int64),
    spaces.Box(0, 1, (3,), np.float16),
    spaces.Discrete(5),
    spaces.Discrete(5, start=-2),
    spaces.MultiDiscrete([2, 5, 3]),
    spaces.MultiDiscrete(np.array([[2, 5], [3, 4]]), dtype=np.int64, start=np.array([[0, 1], [2, -3]])),
    spaces.MultiBinary(7),
    spaces.MultiBinary([2, 3]),
    spaces.Dict(OrderedDict(z=spaces.Discrete(2), a=spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 3), np.uint8)}))),
]
if "dtype" in inspect.signature(spaces.Discrete).parameters:  # not in gymnasium 1.1
    SPACES.append(spaces.Discrete(3, dtype=np.int32))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_round_trip(space: spaces.Space) -> None:
    found = decode_space(json.loads(json.dumps(encode_space(space), allow_nan=False)))
    assert found == space
    assert (type(found), found.dtype, found.shape) == (type(space), space.dtype, space.shape)
    if isinstance(space, spaces.Box):
        assert isinstance(found, spaces.Box)
        assert np.array_equal(found.low, space.low)  # gymnasium compares with a tolerance
        assert np.array_equal(found.high, space.high)
    if isinstance(space, spaces.Dict):
        assert isinstance(found, spaces.Dict)
        assert list(found.spaces) == list(space.spaces) == ["z", "a"]


def test_equal_bounds_are_stored_as_one_number() -> None:
    data = encode_space(spaces.Box(0, 255, (84, 84, 4), np.uint8))
    assert data == {"kind": "Box", "dtype": "uint8", "shape": [84, 84, 4], "low": 0, "high": 255}
    assert encode_space(spaces.Box(-np.inf, np.inf, (2,)))["high"] == "inf"


@pytest.mark.parametrize(
    "space", [spaces.Text(3), spaces.Tuple([spaces.Discrete(2)]), spaces.Dict({"t": spaces.Text(3)})], ids=str
)
def test_other_spaces_are_refused_by_name(space: spaces.Space) -> None:
    with pytest.raises(SpaceError, match=r"Tuple|Text"):
        encode_space(space)


@pytest.mark.parametrize(
    "data",
    [
        None, [], "Box", {}, {"kind": "Text"}, {"kind": []}, {"kind": "Discrete", "n": 3},
        {"kind": "Discrete", "n": -3, "start": 0, "dtype": "int64"},
        {"kind": "Discrete", "n": 3, "start": 0, "dtype": "O"}, {"kind": "Dict", "spaces": 3}, {"kind": "Dict", "spaces": [["a", {}]]},
        {"kind": "Box", "dtype": "float32", "shape": [2], "low": [1.0], "high": 2.0},
        {"kind": "Box", "dtype": "float32", "shape": [2], "low": "abc", "high": 2.0},
        {"kind": "Box", "dtype": "float32", "shape": [-2], "low": 0.0, "high": 2.0},
        {"kind": "Box", "dtype": "float32", "shape": [2**40, 2**20], "low": 0.0, "high": 2.0},
        {"kind": "Box", "dtype": "no dtype", "shape": [2], "low": 0.0, "high": 2.0},
        {"kind": "Box", "dtype": "uint8", "shape": [2], "low": 0, "high": 10**30},
        {"kind": "MultiDiscrete", "dtype": "int64", "nvec": [0], "start": [0]},
        {"kind": "MultiBinary", "n": -1},
    ],
)  # fmt: skip
def test_malformed_spaces_are_refused(data: Any) -> None:
    with pytest.raises(CheckpointError):
        decode_space(data)


def test_a_deeply_nested_space_is_refused_without_a_crash() -> None:
    data: Any = {"kind": "Discrete", "n": 2, "start": 0, "dtype": "int64"}
    for _ in range(50_000):
        data = {"kind": "Dict", "spaces": [["a", data]]}
    with pytest.raises(CheckpointError):
        decode_space(data)
