"""Spaces as JSON, so that a model can be rebuilt without its environment."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.checkpoint.encoding.allowance import Allowance
from sb_dqn.errors import CheckpointError, SpaceError
from sb_dqn.spaces import SUPPORTED, Space

LEAF_BYTES = 2**16
"""Memory of a leaf besides its bounds: the objects that a model makes for each."""
CHOICE_BYTES = 64
"""Memory of a choice of a discrete leaf: the column of a network that reads or selects it."""


@singledispatch
def encode_space(space: Space) -> dict[str, Any]:
    """Encodes a space as JSON: infinite bounds as text, bounds that are all equal as one number.

    Raises:
        SpaceError: the kind of space is not supported.
    """
    raise SpaceError(f"a space that is saved must be {SUPPORTED}, got {space}. Use one of these.")


@encode_space.register
def _(space: spaces.Dict) -> dict[str, Any]:
    return {"kind": "Dict", "spaces": [[key, encode_space(inner)] for key, inner in space.spaces.items()]}


@encode_space.register
def _(space: spaces.Box) -> dict[str, Any]:
    bounds = {"low": _encode_numbers(space.low), "high": _encode_numbers(space.high)}
    return {"kind": "Box", "dtype": str(space.dtype), "shape": list(space.shape), **bounds}


@encode_space.register
def _(space: spaces.Discrete) -> dict[str, Any]:
    return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": str(space.dtype)}


@encode_space.register
def _(space: spaces.MultiDiscrete) -> dict[str, Any]:
    counts = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
    return {"kind": "MultiDiscrete", "dtype": str(space.dtype), **counts}


@encode_space.register
def _(space: spaces.MultiBinary) -> dict[str, Any]:
    return {"kind": "MultiBinary", "n": space.n if type(space.n) is int else [int(n) for n in space.shape]}


def decode_space(data: Any, allowance: Allowance | None = None) -> Space:
    """Decodes a space that `encode_space` encoded.

    Args:
        data: JSON from the file.
        allowance: memory that this space and others may take; None: what is allowed without parameters.

    Raises:
        CheckpointError: the data is malformed, or describes a space larger than the allowance.
    """
    try:
        return _decode(data, Allowance({}) if allowance is None else allowance)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AssertionError, OverflowError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"a space in the file cannot be read ({type(error).__name__}: {error}). The file is damaged. Load another copy."
        ) from None


def _decode(data: Any, allowance: Allowance) -> Space:
    if data["kind"] not in DECODERS:
        raise CheckpointError(
            f"a space in a model file must be {SUPPORTED}, got the kind {data['kind']!r}. Load another copy."
        )
    allowance.take(LEAF_BYTES, "spaces")
    return DECODERS[data["kind"]](data, allowance)


def _dict(data: Any, allowance: Allowance) -> spaces.Dict:
    # OrderedDict because gymnasium sorts the keys of a plain dict
    return spaces.Dict(OrderedDict((str(key), _decode(inner, allowance)) for key, inner in data["spaces"]))


def _box(data: Any, allowance: Allowance) -> spaces.Box:
    dtype, shape = _dtype(data), tuple(int(length) for length in data["shape"])
    allowance.take(math.prod(shape) * 2 * (dtype.itemsize + 1), "spaces")  # two bounds, and whether there are any
    low, high = (_decode_numbers(data[name], shape, dtype) for name in ("low", "high"))
    return spaces.Box(low, high, shape, dtype.type)


def _discrete(data: Any, allowance: Allowance) -> spaces.Discrete:
    allowance.take(abs(data["n"]) * CHOICE_BYTES, "spaces")
    return spaces.Discrete(data["n"], start=data["start"], dtype=_dtype(data).type)


def _multi_discrete(data: Any, allowance: Allowance) -> spaces.MultiDiscrete:
    dtype, counts = _dtype(data), np.array(data["nvec"])
    allowance.take((counts.size + float(np.abs(counts.astype(np.float64)).sum())) * CHOICE_BYTES, "spaces")
    return spaces.MultiDiscrete(counts.astype(dtype), dtype=dtype.type, start=np.array(data["start"], dtype))


def _multi_binary(data: Any, allowance: Allowance) -> spaces.MultiBinary:
    allowance.take(abs(math.prod(np.atleast_1d(data["n"]).tolist())) * CHOICE_BYTES, "spaces")
    return spaces.MultiBinary(data["n"])


DECODERS: Mapping[str, Callable[[Any, Allowance], Space]] = {
    "Dict": _dict,
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": _multi_binary,
}


def _dtype(data: Any) -> np.dtype[Any]:
    dtype = np.dtype(str(data["dtype"]))
    if dtype.kind not in "biuf":
        raise CheckpointError(f"the dtype of a space must be bool, integer or float, got {dtype}. Load another copy.")
    return dtype


def _encode_numbers(array: npt.NDArray[Any]) -> Any:
    flat = array.reshape(-1)
    if flat.size and (flat == flat[0]).all():
        return _encode_number(flat[0].item())
    return [_encode_number(number) for number in flat.tolist()]


def _decode_numbers(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if isinstance(data, list):
        return np.array([_decode_number(number) for number in data], dtype).reshape(shape)
    return np.full(shape, _decode_number(data), dtype)


def _encode_number(number: Any) -> Any:
    return repr(number) if isinstance(number, float) and not math.isfinite(number) else number


def _decode_number(data: Any) -> Any:
    return float(data) if isinstance(data, str) else data
