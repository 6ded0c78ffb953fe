"""A tree of state as a JSON skeleton beside flat tensors, and back, with exact types.

Leaves: None, bool, int of any size, float (infinity and NaN too), str, numpy arrays and scalars, torch tensors.
Branches: dict and OrderedDict (keys of any hashable leaf), list, tuple. Nothing else; nothing is pickled.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.checkpoint.format.safetensors_stream import NAMES
from sb_dqn.errors import CheckpointError

TAG = "~"
"""Key that marks a JSON object as something that JSON has no word for."""

ALLOWED = "None, bool, int, float, str, numpy arrays and numbers, torch tensors, and dict, list, tuple of these"
SCALAR_KINDS = "biufc"


def pack(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """A tree as (JSON skeleton, tensors by path); arrays and tensors share their memory with the tree.

    Raises:
        CheckpointError: the tree holds something else than the allowed leaves; names its path.
    """
    tensors: dict[str, Tensor] = {}
    return _pack(tree, (), tensors), tensors


def unpack(skeleton: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree that `pack` took apart; tensors on the device they are on.

    Raises:
        CheckpointError: the skeleton is not one, or names a tensor that is not there.
    """
    try:
        return _unpack(skeleton, tensors)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, RuntimeError) as error:
        raise CheckpointError(f"the state cannot be put together again ({type(error).__name__}: {error})") from None


def encode_number(value: int | float) -> Any:
    """An int or a float as JSON; what JSON or 64 bits cannot hold as a tagged string."""
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else {TAG: "int", "value": hex(value)}
    return value if math.isfinite(value) else {TAG: "float", "value": repr(float(value))}


def encode_scalar(value: np.generic, where: str) -> dict[str, Any]:
    """A numpy number by its dtype and its bytes.

    Raises:
        CheckpointError: it is a date, a text or a record.
    """
    if value.dtype.kind not in SCALAR_KINDS or value.dtype.itemsize > 16:
        raise CheckpointError(f"{where} is a numpy {value.dtype}, which cannot be saved; allowed: {ALLOWED}")
    return {TAG: "scalar", "dtype": value.dtype.str, "value": value.tobytes().hex()}


def decode_tagged(node: dict[str, Any]) -> Any:
    """What `encode_number` and `encode_scalar` wrote."""
    if node[TAG] == "int":
        return int(node["value"], 16)
    if node[TAG] == "float":
        return float(node["value"])
    if node[TAG] == "scalar":
        dtype = np.dtype(str(node["dtype"]))
        if dtype.kind not in SCALAR_KINDS:
            raise CheckpointError(f"the state holds a numpy number of the unknown dtype {dtype}")
        return np.frombuffer(bytes.fromhex(node["value"]), dtype=dtype)[0]
    raise CheckpointError(f"the state holds an unknown kind of value {node[TAG]!r}")


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
        f"{_name(path)} is a {kind.__module__}.{kind.__qualname__}, which cannot be saved; allowed: {ALLOWED}"
    )


def _pack_dict(node: dict[Any, Any], path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    if type(node) is dict and all(type(key) is str for key in node) and TAG not in node:
        return {key: _pack(inner, (*path, key), tensors) for key, inner in node.items()}
    items = []
    for key, inner in node.items():
        if isinstance(key, (Tensor, np.ndarray)):
            raise CheckpointError(f"{_name(path)} has a tensor as a key, which cannot be saved")
        items.append([_pack(key, (*path, "key"), tensors), _pack(inner, (*path, str(key)), tensors)])
    return {TAG: "dict" if type(node) is dict else "ordered", "items": items}


def _unpack(node: Any, tensors: dict[str, Tensor]) -> Any:
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
        whole = np.ascontiguousarray(array).reshape(array.shape) if native else array
        tensor = torch.from_numpy(whole if whole.flags.writeable else whole.copy())
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.dtype not in NAMES:
        raise CheckpointError(
            f"{_name(path)} is a numpy array of {array.dtype}, which cannot be saved; convert it first"
        )
    return tensor


def _add(tensors: dict[str, Tensor], path: tuple[str, ...], tensor: Tensor) -> str:
    """Files a tensor under its path; a second of the same name (`"a/b"` beside `"a"`, `"b"`) gets a number."""
    base = "/".join(path) or "value"
    name, count = base, 2
    while name in tensors or name == "__metadata__":
        name, count = f"{base}#{count}", count + 1
    tensors[name] = tensor
    return name


def _name(path: tuple[str, ...]) -> str:
    return f"state entry {'/'.join(path)!r}" if path else "the state"
