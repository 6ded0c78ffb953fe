"""Spaces in words, so that a model can be built again without its environment."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from sb_dqn.errors import CheckpointError, SpaceError
from sb_dqn.spaces import SUPPORTED, Space

MAX_ELEMENTS = 2**26
"""Of one Box; a file must not be able to ask for any amount of memory by a few digits."""


@singledispatch
def encode_space(space: Space) -> dict[str, Any]:
    """A space as JSON; infinite bounds as text, bounds that are all equal as one number.

    Raises:
        SpaceError: it is of a kind that is not supported.
    """
    raise SpaceError(f"space {space} cannot be saved; allowed: {SUPPORTED}")


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


def decode_space(data: Any) -> Space:
    """The space that `encode_space` described.

    Raises:
        CheckpointError: the description is not one.
    """
    try:
        return _decode(data)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AssertionError, OverflowError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"the description of a space cannot be read ({type(error).__name__}: {error})") from None


def _decode(data: Any) -> Space:
    if data["kind"] not in DECODERS:
        raise CheckpointError(f"the file holds a space of the unknown kind {data['kind']!r}; allowed: {SUPPORTED}")
    return DECODERS[data["kind"]](data)


def _dict(data: Any) -> spaces.Dict:
    # OrderedDict and not dict: gymnasium sorts the keys of a plain one
    return spaces.Dict(OrderedDict((str(key), _decode(inner)) for key, inner in data["spaces"]))


def _box(data: Any) -> spaces.Box:
    dtype, shape = _dtype(data), tuple(int(length) for length in data["shape"])
    if math.prod(shape) > MAX_ELEMENTS:
        raise CheckpointError(f"a Box of the file has the shape {shape}; allowed: {MAX_ELEMENTS} numbers")
    low, high = (_decode_numbers(data[name], shape, dtype) for name in ("low", "high"))
    return spaces.Box(low, high, shape, dtype.type)


def _discrete(data: Any) -> spaces.Discrete:
    return spaces.Discrete(data["n"], start=data["start"], dtype=_dtype(data).type)


def _multi_discrete(data: Any) -> spaces.MultiDiscrete:
    dtype = _dtype(data)
    return spaces.MultiDiscrete(np.array(data["nvec"], dtype), dtype=dtype.type, start=np.array(data["start"], dtype))


def _multi_binary(data: Any) -> spaces.MultiBinary:
    return spaces.MultiBinary(data["n"])


DECODERS: Mapping[str, Callable[[Any], Space]] = {
    "Dict": _dict,
    "Box": _box,
    "Discrete": _discrete,
    "MultiDiscrete": _multi_discrete,
    "MultiBinary": _multi_binary,
}


def _dtype(data: Any) -> np.dtype[Any]:
    dtype = np.dtype(str(data["dtype"]))
    if dtype.kind not in "biuf":
        raise CheckpointError(f"a space of the file has the unknown dtype {dtype}")
    return dtype


def _encode_numbers(array: npt.NDArray[Any]) -> Any:
    flat = array.reshape(-1)
    if flat.size and (flat == flat[0]).all():
        return _text(flat[0].item())
    return [_text(number) for number in flat.tolist()]


def _decode_numbers(data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if isinstance(data, list):
        return np.array([_number(number) for number in data], dtype).reshape(shape)
    return np.full(shape, _number(data), dtype)


def _text(number: Any) -> Any:
    return repr(number) if isinstance(number, float) and not math.isfinite(number) else number


def _number(data: Any) -> Any:
    return float(data) if isinstance(data, str) else data
