"""Nested state as a JSON skeleton plus flat tensors, and back, with exact types.

Leaves: None, bool, int of any size, float (infinity and NaN too), str, NumPy arrays and scalars, torch tensors.
Branches: dict and OrderedDict (keys of any hashable leaf), list, tuple. Nothing else is allowed; nothing is pickled.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.checkpoint.format.safetensors_stream import NAMES
from sb_dqn.errors import CheckpointError, checkpoint_errors

TAG = "~"
"""Key of a JSON object that encodes a value JSON has no type for."""

ALLOWED = "None, bool, int, float, str, NumPy arrays and numbers, torch tensors, or dicts, lists and tuples of these"
SCALAR_KINDS = "biufc"
"""Kinds of NumPy dtypes: bool, int, unsigned int, float, complex."""


def pack(tree: object) -> tuple[Any, dict[str, Tensor]]:
    """Splits a tree into a JSON skeleton and tensors by path; arrays and tensors share memory with the tree.

    Raises:
        CheckpointError: an entry has another type than the allowed ones; the message names its path.
    """
    tensors: dict[str, Tensor] = {}
    return _pack(tree, (), tensors), tensors


def unpack(skeleton: object, tensors: dict[str, Tensor]) -> Any:
    """Rebuilds the tree that `pack` split; tensors stay on their device.

    Raises:
        CheckpointError: the skeleton is malformed, or names a tensor that is missing.
    """
    with checkpoint_errors("the state cannot be rebuilt", passed=(CheckpointError,)):
        return _unpack(skeleton, tensors)


def encode_number(value: int | float) -> Any:
    """Encodes an int or a float as JSON; as a tagged string if JSON or 64 bits cannot hold it."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else {TAG: "int", "value": hex(value)}
    return value if math.isfinite(value) else {TAG: "float", "value": repr(float(value))}


def encode_scalar(value: np.generic, where: str) -> dict[str, Any]:
    """Encodes a NumPy number by its dtype and bytes.

    Raises:
        CheckpointError: the value is a date, a text or a record.
    """
    if value.dtype.kind not in SCALAR_KINDS or value.dtype.itemsize > 16:
        raise CheckpointError(f"{where} must be {ALLOWED}, got a NumPy {value.dtype}. Convert it first.")
    return {TAG: "scalar", "dtype": value.dtype.str, "value": value.tobytes().hex()}


def decode_tagged(node: dict[str, Any]) -> Any:
    """Decodes a value that `encode_number` or `encode_scalar` encoded."""
    if node[TAG] == "int":
        return int(node["value"], 16)
    if node[TAG] == "float":
        return float(node["value"])
    if node[TAG] == "scalar":
        dtype = np.dtype(str(node["dtype"]))
        if dtype.kind not in SCALAR_KINDS:
            raise CheckpointError(
                f"a NumPy number of the state must have a known dtype, got {dtype}. Load another copy."
            )
        return np.frombuffer(bytes.fromhex(node["value"]), dtype=dtype)[0]
    raise CheckpointError(f"values of the state must be of known kinds, got {node[TAG]!r}. Load another copy.")


def _pack(node: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    kind = type(node)
    if node is None or kind is bool or kind is str:
        return node
    if kind is int or kind is float:
        return encode_number(node)
    if isinstance(node, Tensor):
        return {TAG: "tensor", "at": _add(tensors, path, node.detach())}
    if kind is np.ndarray or kind is np.memmap:
        return {TAG: "array", "at": _add(tensors, path, _from_numpy(node, path))}
    if isinstance(node, np.generic):
        return encode_scalar(node, _name(path))
    if kind is list:
        return [_pack(inner, (*path, str(i)), tensors) for i, inner in enumerate(node)]
    if kind is tuple:
        return {TAG: "tuple", "items": [_pack(inner, (*path, str(i)), tensors) for i, inner in enumerate(node)]}
    if kind is dict or kind is OrderedDict:
        return _pack_dict(node, path, tensors)
    raise CheckpointError(
        f"{_name(path)} must be {ALLOWED}, got a {kind.__module__}.{kind.__qualname__}. Convert it first."
    )


def _pack_dict(node: dict[Any, Any], path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    if type(node) is dict and all(type(key) is str for key in node) and TAG not in node:
        return {key: _pack(inner, (*path, key), tensors) for key, inner in node.items()}
    items = []
    for key, inner in node.items():
        if isinstance(key, (Tensor, np.ndarray)):
            raise CheckpointError(f"keys of {_name(path)} must be hashable, got a tensor or array. Use a str or int.")
        items.append([_pack(key, (*path, "key"), tensors), _pack(inner, (*path, str(key)), tensors)])
    return {TAG: "dict" if type(node) is dict else "ordered", "items": items}


def _unpack(node: object, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, list):
        return [_unpack(inner, tensors) for inner in node]
    if not isinstance(node, dict):
        return node
    if TAG not in node:
        return {key: _unpack(inner, tensors) for key, inner in node.items()}
    kind = node[TAG]
    if kind == "tensor":
        return tensors[node["at"]]
    if kind == "array":
        return tensors[node["at"]].numpy()
    if kind == "tuple":
        return tuple(_unpack(inner, tensors) for inner in node["items"])
    if kind in ("dict", "ordered"):
        pairs = [(_unpack(key, tensors), _unpack(inner, tensors)) for key, inner in node["items"]]
        return dict(pairs) if kind == "dict" else OrderedDict(pairs)
    return decode_tagged(node)


def _from_numpy(array: np.ndarray[Any, Any], path: tuple[str, ...]) -> Tensor:
    native = array.dtype.isnative and array.dtype.kind in SCALAR_KINDS
    try:
        dense = np.ascontiguousarray(array).reshape(array.shape) if native else array
        tensor = torch.from_numpy(dense if dense.flags.writeable else dense.copy())
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.dtype not in NAMES:
        raise CheckpointError(
            f"{_name(path)} must have a dtype of torch, got a NumPy array of {array.dtype}. Convert it first."
        )
    return tensor


def _add(tensors: dict[str, Tensor], path: tuple[str, ...], tensor: Tensor) -> str:
    """Stores a tensor under its path and returns the name; a clash (key `"a/b"` and path `"a"`, `"b"`) adds a number."""
    base = "/".join(path) or "value"
    name, count = base, 2
    while name in tensors or name == "__metadata__":
        name, count = f"{base}#{count}", count + 1
    tensors[name] = tensor
    return name


def _name(path: tuple[str, ...]) -> str:
    return f"state entry {'/'.join(path)!r}" if path else "the state"
