"""Constructor arguments as JSON: known classes by name, other objects only with `trust`.

Classes in the table load without trust. Another class or function is stored by its import path; a lambda, a local
function or an object is stored as cloudpickle. Neither is imported or unpickled on loading unless `trust=True`; a
replacement in `custom_objects` is used instead.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import importlib
import os
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn, optim

from sb_dqn.checkpoint.encoding.state_tree import TAG, decode_tagged, encode_number, encode_scalar
from sb_dqn.errors import CheckpointError, checkpoint_errors, nearest
from sb_dqn.types import Settings

ACTIVATIONS = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.PReLU,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
)
OPTIMIZERS = (
    optim.ASGD,
    optim.Adadelta,
    optim.Adagrad,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Rprop,
    optim.SGD,
)
TABLE: Mapping[str, type] = {cls.__name__: cls for cls in (*ACTIVATIONS, *OPTIMIZERS)}
"""Classes that any file may name."""

TENSOR_DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
)
"""Dtypes of tensors that NumPy has too."""

EMPTY: Settings = {}


def encode_value(name: str, value: Any, table: Mapping[str, type] = EMPTY) -> Any:
    """Encodes one constructor argument as JSON.

    Args:
        name: argument name, for messages.
        value: plain data, paths (as text), NumPy arrays and numbers, tensors on the CPU, torch dtypes and devices,
            classes, partials of them, dataclass objects, callables.
        table: further classes by short name, in addition to torch's; objects of a dataclass in it are written by
            their fields.

    Raises:
        CheckpointError: the value cannot be encoded, not even by cloudpickle.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int or kind is float:
        return encode_number(value)
    if kind is list or kind is tuple:
        items = [encode_value(f"{name}.{i}", inner, table) for i, inner in enumerate(value)]
        return items if kind is list else {TAG: "tuple", "items": items}
    if isinstance(value, dict):
        return _encode_dict(name, value, table)
    return _encode_class(name, value, table) or _encode_known(value, name) or _encode_foreign(name, value)


def _encode_dict(name: str, value: dict[Any, Any], table: Mapping[str, type]) -> dict[str, Any]:
    """Encodes a dict by its entries; a subclass of dict is decoded as a plain dict."""
    keys = [encode_value(f"{name} (key)", key, table) for key in value]
    entries = [encode_value(f"{name}.{key}", inner, table) for key, inner in value.items()]
    if all(type(key) is str for key in value) and TAG not in value:
        return dict(zip(keys, entries, strict=True))
    return {TAG: "dict", "items": [list(pair) for pair in zip(keys, entries, strict=True)]}


def _encode_class(name: str, value: Any, table: Mapping[str, type]) -> dict[str, Any] | None:
    """Encodes a class of the table, an object of a dataclass in it, or a partial; returns None for anything else."""
    kind = type(value)
    names = {cls: short for short, cls in {**TABLE, **table}.items()}
    if isinstance(value, type):
        return {TAG: "class", "name": names[value]} if value in names else None
    if kind in names and dataclasses.is_dataclass(kind):
        values = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind) if field.init}
        fields = {key: encode_value(f"{name}.{key}", inner, table) for key, inner in values.items()}
        return {TAG: "object", "name": names[kind], "fields": fields}
    if kind is functools.partial:
        parts = {"func": value.func, "args": list(value.args), "keywords": value.keywords}
        return {TAG: "partial"} | {key: encode_value(f"{name}.{key}", inner, table) for key, inner in parts.items()}
    return None


def decode_value(
    name: str,
    data: object,
    table: Mapping[str, type] = EMPTY,
    custom_objects: Settings = EMPTY,
    trust: bool = False,
) -> Any:
    """Decodes an argument that `encode_value` encoded.

    Args:
        name: argument name; nested entries have dotted names (`policy_kwargs.features_extractor_class`).
        data: JSON from the file.
        table: as for `encode_value`.
        custom_objects: replacements by argument name or dotted name; for objects that need trust, also by the last
            part of the dotted name.
        trust: True to import and unpickle what the file names; it may then run any code.

    Raises:
        CheckpointError: the file names something that needs trust or is not in the table, or the data is malformed.
    """
    with checkpoint_errors(f"argument {name!r} of the file cannot be read", passed=(CheckpointError,)):
        return _decode(name, data, {**TABLE, **table}, custom_objects, trust)


def _decode(name: str, data: object, table: Mapping[str, type], custom: Settings, trust: bool) -> Any:
    if name in custom:
        return custom[name]
    if isinstance(data, list):
        return [_decode(f"{name}.{i}", inner, table, custom, trust) for i, inner in enumerate(data)]
    if not isinstance(data, dict):
        return data
    if TAG not in data:
        return {key: _decode(f"{name}.{key}", inner, table, custom, trust) for key, inner in data.items()}
    kind = data[TAG]
    if kind == "tuple":
        return tuple(_decode(f"{name}.{i}", inner, table, custom, trust) for i, inner in enumerate(data["items"]))
    if kind == "dict":
        keys = [_decode(f"{name} (key)", key, table, custom, trust) for key, _ in data["items"]]
        return {
            key: _decode(f"{name}.{key}", inner, table, custom, trust)
            for key, (_, inner) in zip(keys, data["items"], strict=True)
        }
    if kind == "class":
        return _lookup(name, data["name"], table)
    if kind == "object":
        return _build(name, data, table, custom, trust)
    if kind == "partial":
        func, args, keywords = (
            _decode(f"{name}.{k}", data[k], table, custom, trust) for k in ("func", "args", "keywords")
        )
        return functools.partial(func, *args, **keywords)
    if kind == "array":
        return _decode_array(data)
    if kind == "tensor":
        return torch.from_numpy(_decode_array(data["array"]))
    if kind == "torch.dtype":
        return _torch_dtype(data["name"])
    if kind == "torch.device":
        return torch.device(data["name"])
    if kind in ("import", "pickle"):
        return _decode_foreign(name, data, custom, trust)
    return decode_tagged(data)


def _lookup(name: str, short: str, table: Mapping[str, type]) -> type:
    if short not in table:
        raise CheckpointError(
            f"class of argument {name!r} of the file must be one of {sorted(table)}, got {short!r}. Update sb_dqn, or load "
            f"another copy.{nearest(short, table)}"
        )
    return table[short]


def _build(name: str, data: dict[str, Any], table: Mapping[str, type], custom: Settings, trust: bool) -> Any:
    cls = _lookup(name, data["name"], table)
    if not dataclasses.is_dataclass(cls):
        raise CheckpointError(
            f"argument {name!r} of the file is an object of {data['name']!r}, which is not a dataclass. The file is "
            f"damaged. Load another copy."
        )
    fields = {key: _decode(f"{name}.{key}", inner, table, custom, trust) for key, inner in data["fields"].items()}
    return cls(**fields)


def _encode_known(value: object, name: str) -> Any:
    """Encodes a NumPy array or number, a tensor, a torch dtype or device, or a path; returns None for anything else."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic):
        return encode_scalar(value, f"argument {name!r}")
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        raw = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {TAG: "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": raw}
    if type(value) is torch.Tensor and value.dtype in TENSOR_DTYPES and value.device.type == "cpu":
        return None if value.requires_grad else {TAG: "tensor", "array": _encode_known(value.numpy(), name)}
    if isinstance(value, torch.dtype):
        return {TAG: "torch.dtype", "name": str(value).removeprefix("torch.")}
    return {TAG: "torch.device", "name": str(value)} if isinstance(value, torch.device) else None


def _decode_array(data: dict[str, Any]) -> Any:
    dtype = np.dtype(str(data["dtype"]))
    if dtype.kind not in "biuf":
        raise CheckpointError(
            f"arrays in a model file must hold bools, integers or floats, got dtype {dtype}. Convert them."
        )
    return np.frombuffer(base64.b64decode(data["data"]), dtype).reshape(data["shape"]).copy()


def _torch_dtype(name: str) -> torch.dtype:
    dtype = vars(torch).get(name)
    if not isinstance(dtype, torch.dtype):
        raise CheckpointError(f"a dtype in the file must be one of torch, got {name!r}. Load another copy.")
    return dtype


def _encode_foreign(name: str, value: object) -> dict[str, Any]:
    """Encodes an object by its import path if importing it returns the same object, otherwise by cloudpickle."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module and qualname:
        try:
            if _resolve(f"{module}:{qualname}") is value:
                return {TAG: "import", "path": f"{module}:{qualname}"}
        except (ImportError, AttributeError):
            pass  # a lambda, a local function, a notebook cell: no import path
    try:
        raw = _cloudpickle().dumps(value)
    except Exception as error:  # the object's own reduction may raise anything
        raise CheckpointError(
            f"argument {name!r} is {value!r}, which cannot be saved ({type(error).__name__}: {error}). "
            f"Pass plain data, or a class or function that can be imported."
        ) from error
    return {TAG: "pickle", "shows": repr(value)[:200], "data": base64.b64encode(raw).decode()}


def _decode_foreign(name: str, data: dict[str, Any], custom: Settings, trust: bool) -> Any:
    last = name.rpartition(".")[2]
    if last in custom:
        return custom[last]
    by_path = data[TAG] == "import"
    what = f"names the import path {data['path']!r}" if by_path else f"is {data.get('shows')!r}, stored as a pickle"
    fix = f"pass custom_objects={{{name!r}: ...}}"
    if not trust:
        raise CheckpointError(
            f"argument {name!r} of the file {what}, which loading does not run. To load it, {fix} with "
            f"the object to use, or trust=True if you know who made the file (it can then run any code)."
        )
    try:
        if by_path:
            return _resolve(data["path"])
        return _cloudpickle().loads(base64.b64decode(data["data"]))
    except Exception as error:  # imported or unpickled code may raise anything
        raise CheckpointError(
            f"argument {name!r} of the file {what}, which fails to load ({type(error).__name__}: {error}). To load the "
            f"model without it, {fix}."
        ) from error


def _resolve(path: str) -> Any:
    module, _, qualname = path.partition(":")
    resolved: Any = importlib.import_module(module)
    for part in qualname.split("."):
        resolved = getattr(resolved, part)
    return resolved


def _cloudpickle() -> Any:
    """Imports cloudpickle, which has no type hints, only where it is needed."""
    return importlib.import_module("cloudpickle")


class CustomObjects(dict[str, Any]):
    """Replacements by argument name; records the names that were looked up.

    Args:
        objects: replacements by name.
    """

    def __init__(self, objects: Settings) -> None:
        super().__init__(objects)
        self.looked_up: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.looked_up.add(str(name))
        return super().__contains__(name)

    def warn_of_unused(self, names: Collection[str], known: Collection[str]) -> None:
        """Warns for each of `names` that was never looked up: a misspelt name would otherwise have no effect unnoticed.

        Args:
            names: names to check.
            known: argument names in the file, for the message.
        """
        for name in sorted(set(names) - self.looked_up):
            warnings.warn(
                f"keys of custom_objects must be among {sorted(known)}, got {name!r}, which replaces nothing. Use one of "
                f"them.{nearest(name, known)}",
                stacklevel=3,
            )
