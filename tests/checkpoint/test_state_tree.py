"""Nested state as JSON and tensors: values and types round-trip."""

from __future__ import annotations

import io
import json
import math
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sb_dqn.checkpoint import pack, read_archive, unpack, write_archive
from sb_dqn.errors import CheckpointError
from tests.marks import SLOW

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
TORCH = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float16, torch.float32, torch.float64]

keys = st.one_of(
    st.text(max_size=5), st.integers(), st.booleans(), st.none(), st.tuples(st.integers(0, 3), st.text(max_size=2))
)
arrays = st.sampled_from([*DTYPES, "complex64"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=3))
)
tensors = st.builds(
    lambda dtype, shape, seed: torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).to(dtype),
    st.sampled_from(TORCH), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 99),
)  # fmt: skip
scalars = st.sampled_from([*DTYPES, "complex128"]).flatmap(
    lambda dtype: hnp.arrays(dtype, (1,)).map(lambda array: array[0])
)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**140), 2**140), st.floats(), st.text(max_size=5), arrays, tensors, scalars
)  # fmt: skip
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(st.sampled_from(["~", "a", "a/b", "value", "__metadata__"]), inner, max_size=4),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Compares values and exact types at every depth; NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (left, right)]
        return left.dtype == right.dtype and left.shape == right.shape and torch.equal(*bits)
    if isinstance(left, (np.ndarray, np.generic)):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, dict):
        pairs = zip(left.items(), right.items(), strict=True) if len(left) == len(right) else ()
        return len(left) == len(right) and all(same(a, b) for pair in pairs for a, b in zip(*pair, strict=True))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    return bool(left == right)


@SLOW
@given(trees)
def test_any_tree_round_trips_through_a_file(tree: Any) -> None:
    skeleton, flat = pack(tree)
    file = io.BytesIO()
    write_archive(file, {"kind": "state", "state": skeleton}, {"state": flat})
    manifest, members = read_archive(file)
    assert same(unpack(manifest["state"], members["state"]), tree)


def test_the_comparison_detects_differences() -> None:
    """Decoys: pairs that a weaker comparison, or a weaker format, would treat as equal."""
    pairs = [
        ((1,), [1]), (True, 1), (1.0, 1), ({0: 1}, {"0": 1}), (np.float32(1), 1.0), (np.zeros(2), torch.zeros(2)),
        (np.zeros(2), np.zeros(2, np.float32)), (np.zeros(()), np.float64(0)), (0.0, -0.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({}, OrderedDict()), (torch.zeros(2, 1), torch.zeros(1, 2)),
    ]  # fmt: skip
    for left, right in pairs:
        assert not same(left, right), (left, right)
        assert same(unpack(*pack(left)), left)
        assert not same(unpack(*pack(left)), right)


def test_the_skeleton_of_plain_data_is_plain_json() -> None:
    tree = {"n_calls": 3, "name": "run", "rates": [1e-4, 0.5], "nested": {"done": False, "none": None}}
    skeleton, flat = pack(tree)
    assert (skeleton, flat) == (tree, {})


def test_tensors_are_named_by_path_and_share_memory() -> None:
    weight, array = torch.ones(3), np.arange(3)
    skeleton, flat = pack(
        {"optimizer": {"state": {0: {"exp_avg": weight}}}, "list": [array], "a/b": weight, "a": {"b": weight}}
    )
    assert sorted(flat) == ["a/b", "a/b#2", "list/0", "optimizer/state/0/exp_avg"]
    weight[0], array[0] = 7, 8
    assert flat["optimizer/state/0/exp_avg"][0] == 7
    assert flat["list/0"][0] == 8
    assert json.loads(json.dumps(skeleton)) == skeleton


def test_integers_beyond_64_bits_are_stored_as_text() -> None:
    assert pack(2**63 - 1)[0] == 2**63 - 1
    assert pack(2**63)[0] == {"~": "int", "value": "0x8000000000000000"}
    huge = 7**20_000  # beyond Python's limit of 4,300 decimal digits
    assert unpack(*pack(huge)) == huge


def test_arrays_of_any_layout_round_trip() -> None:
    base = np.arange(24.0).reshape(4, 6)
    read_only = np.arange(3)
    read_only.flags.writeable = False
    for array in (
        base.T,
        base[::-1, ::2],
        np.asfortranarray(base),
        np.array(3.0, np.float32),
        read_only,
        np.zeros((0, 3)),
    ):
        assert same(unpack(*pack(array)), np.array(array, order="C"))


def test_a_memory_mapped_array_is_restored_as_an_array(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "ring", np.uint8, "w+", shape=(4, 3))
    mapped[:] = 5
    found = unpack(*pack({"ring": mapped}))["ring"]
    assert type(found) is np.ndarray
    assert found.tolist() == mapped.tolist()


def test_an_optimizer_resumes_from_its_packed_state() -> None:
    def build() -> tuple[torch.nn.Linear, torch.optim.Adam]:
        torch.manual_seed(0)
        net = torch.nn.Linear(3, 2)
        return net, torch.optim.Adam(net.parameters(), lr=0.1)

    def step(net: torch.nn.Linear, optimizer: torch.optim.Adam) -> None:
        optimizer.zero_grad()
        net(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()

    net, optimizer = build()
    step(net, optimizer)
    skeleton, flat = pack({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
    file = io.BytesIO()
    write_archive(file, {"kind": "state", "state": skeleton}, {"state": flat})
    manifest, members = read_archive(file)
    state = unpack(manifest["state"], members["state"])
    other, resumed = build()
    other.load_state_dict(state["net"])
    resumed.load_state_dict(state["optimizer"])
    step(net, optimizer)
    step(other, resumed)
    assert torch.equal(net.weight, other.weight)


class Odd:
    pass


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [1, {"b": Odd()}]}, r"state entry 'a/1/b' must be None, bool, .* got a .*Odd"),
        ({"a": {1, 2}}, "'a' must be .* got a builtins.set"),
        ({"a": deque([1])}, "'a' must be .* got a collections.deque"),
        ({"a": b"bytes"}, "'a' must be .* got a builtins.bytes"),
        ({"a": Text("x")}, r"'a' must be .* got a .*Text"),
        ({"a": lambda: 0}, r"'a' must be .* got a builtins.function"),
        ({"a": 1j}, "'a' must be .* got a builtins.complex"),
        ({"a": np.array(["text"])}, "'a' must have a dtype of torch, got a NumPy array of <U4"),
        ({"a": np.array([None])}, "'a' must have a dtype of torch, got a NumPy array of object"),
        ({"a": np.zeros(2, ">f4")}, "'a' must have a dtype of torch, got a NumPy array of >f4"),
        ({"a": np.zeros(2, np.complex128)}, "'a' must have a dtype of torch, got a NumPy array of complex128"),
        ({"a": np.ma.masked_array([1.0])}, "'a' must be .* got a numpy.*MaskedArray"),
        ({"a": np.datetime64("2020-01-01")}, "'a' must be .* got a NumPy datetime64"),
        ({"a": np.str_("x")}, "'a' must be .* got a NumPy <U1"),
        ({frozenset(): 1}, "key' must be .* got a builtins.frozenset"),
        (Odd(), r"the state must be .* got a .*Odd"),
    ],
)
def test_other_types_are_refused_with_their_path(tree: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        pack(tree)


@pytest.mark.parametrize(
    "skeleton",
    [
        {"~": "no such kind"}, {"~": []}, {"~": "tensor"}, {"~": "tensor", "at": "missing"}, {"~": "tensor", "at": {}}, {"~": "tuple"},
        {"~": "tuple", "items": 3}, {"~": "dict", "items": [1]}, {"~": "dict", "items": [[[], 1]]}, {"~": "int", "value": "zz"},
        {"~": "int", "value": 3}, {"~": "float", "value": "x"}, {"~": "scalar", "dtype": "O", "value": "00" * 8},
        {"~": "scalar", "dtype": "<f4", "value": "00"}, {"~": "scalar", "dtype": "<f4", "value": "xx"},
        {"~": "scalar", "dtype": "m", "value": ""}, {"~": "array", "at": "bf16"},
    ],
)  # fmt: skip
def test_malformed_skeletons_are_refused(skeleton: Any) -> None:
    with pytest.raises(CheckpointError):
        unpack({"state": [skeleton]}, {"bf16": torch.zeros(2, dtype=torch.bfloat16)})


def test_a_deeply_nested_skeleton_is_refused_without_a_crash() -> None:
    skeleton: Any = 0
    for _ in range(100_000):
        skeleton = [skeleton]
    with pytest.raises(CheckpointError):
        unpack(skeleton, {})
