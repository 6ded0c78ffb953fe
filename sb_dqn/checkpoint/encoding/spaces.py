"""Spaces as JSON, so that a model can be rebuilt without its environment."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.checkpoint.encoding.allowance import Allowance
from sb_dqn.errors import CheckpointError, SpaceError, checkpoint_errors
from sb_dqn.spaces import SUPPORTED, Space
from sb_dqn.types import Array, Kwargs

LEAF_BYTES = 2**16
"""Memory of a leaf besides its bounds: the objects that a model makes for each."""
CHOICE_BYTES = 64
"""Memory of a choice of a discrete leaf: the column of a network that reads or selects it."""
KINDS = ("Dict", "Box", "Discrete", "MultiDiscrete", "MultiBinary")


def encode_space(space: Space) -> dict[str, Any]:
    """Encodes a space as JSON: infinite bounds as text, bounds that are all equal as one number.

    Raises:
        SpaceError: the kind of space is not supported.
    """
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[key, encode_space(inner)] for key, inner in space.spaces.items()]}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": space.n if type(space.n) is int else [int(n) for n in space.shape]}
    dtype = str(space.dtype)
    if isinstance(space, spaces.Box):
        bounds = {"low": _encode_numbers(space.low), "high": _encode_numbers(space.high)}
        return {"kind": "Box", "dtype": dtype, "shape": list(space.shape), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "dtype": dtype, "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    raise SpaceError(f"a space that is saved must be {SUPPORTED}, got {space}. Use one of these.")


def decode_space(data: object, allowance: Allowance | None = None) -> Space:
    """Decodes a space that `encode_space` encoded.

    Args:
        data: JSON from the file.
        allowance: memory that this space and others may take; None: what is allowed without parameters.

    Raises:
        CheckpointError: the data is malformed, or describes a space larger than the allowance.
    """
    with checkpoint_errors("a space in the file cannot be read", passed=(CheckpointError,)):
        return _decode(data, Allowance({}) if allowance is None else allowance)


def _decode(data: Any, allowance: Allowance) -> Space:
    kind = data["kind"]
    if kind not in KINDS:
        raise CheckpointError(f"a space in a model file must be {SUPPORTED}, got the kind {kind!r}. Load another copy.")
    allowance.take(LEAF_BYTES, "spaces")
    if kind == "Dict":  # OrderedDict because gymnasium sorts the keys of a plain dict
        return spaces.Dict(OrderedDict((str(key), _decode(inner, allowance)) for key, inner in data["spaces"]))
    if kind == "MultiBinary":
        allowance.take(abs(math.prod(np.atleast_1d(data["n"]).tolist())) * CHOICE_BYTES, "spaces")
        return spaces.MultiBinary(data["n"])
    dtype = _dtype(data)
    if kind == "Box":
        shape = tuple(int(length) for length in data["shape"])
        allowance.take(math.prod(shape) * 2 * (dtype.itemsize + 1), "spaces")  # two bounds, and whether there are any
        low, high = (_decode_numbers(data[name], shape, dtype) for name in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        allowance.take(abs(data["n"]) * CHOICE_BYTES, "spaces")
        kwargs: Kwargs = {} if dtype == np.int64 else {"dtype": dtype.type}  # which gymnasium has from 1.2.2 on
        return spaces.Discrete(data["n"], start=data["start"], **kwargs)
    counts = np.array(data["nvec"])
    allowance.take((counts.size + float(np.abs(counts.astype(np.float64)).sum())) * CHOICE_BYTES, "spaces")
    return spaces.MultiDiscrete(counts.astype(dtype), dtype=dtype.type, start=np.array(data["start"], dtype))


def _dtype(data: Any) -> np.dtype[Any]:
    dtype = np.dtype(str(data["dtype"]))
    if dtype.kind not in "biuf":
        raise CheckpointError(f"the dtype of a space must be bool, integer or float, got {dtype}. Load another copy.")
    return dtype


def _encode_numbers(array: Array) -> Any:
    flat = array.reshape(-1)
    if flat.size and (flat == flat[0]).all():
        return _encode_number(flat[0].item())
    return [_encode_number(number) for number in flat.tolist()]


def _decode_numbers(data: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if isinstance(data, list):
        return np.array([_decode_number(number) for number in data], dtype).reshape(shape)
    return np.full(shape, _decode_number(data), dtype)


def _encode_number(number: object) -> Any:
    return repr(number) if isinstance(number, float) and not math.isfinite(number) else number


def _decode_number(data: object) -> Any:
    return float(data) if isinstance(data, str) else data
