"""Streaming reader and writer of the safetensors format, for the members of a model file.

The format (https://github.com/huggingface/safetensors): the length of the header (8 bytes, little-endian), the header
(JSON: name -> dtype, shape, data_offsets), then the raw little-endian values without gaps. The safetensors package reads
and writes separate files, or one block of bytes that doubles the memory of the tensors. A replay buffer of several
gigabytes must be read, written and held in memory once, so both directions are implemented here. The tests compare with
the package.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError

CHUNK = 1 << 20
MAX_HEADER = 16 * 2**20
"""Bytes; the header of a tensor has about a hundred."""

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FORMATS = {"channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d}


class Plan(NamedTuple):
    """Layout of one member, computed before the first byte is written."""

    header: bytes
    tensors: list[Tensor]
    """Tensors in the order of the data."""
    length: int
    """Size of the member in bytes."""
    aliases: dict[str, str]
    """Tied tensors: name -> name under which the values are written."""
    formats: dict[str, str]
    """Memory format by name, of tensors that are not in the contiguous format."""


class _Field(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: list[int]
    begin: int
    end: int


def plan(member: str, tensors: Mapping[str, Tensor]) -> Plan:
    """Computes the order of the tensors, the ties and the header of one member.

    Raises:
        CheckpointError: a tensor is sparse, on the meta device, or has a dtype that the format lacks.
    """
    unique: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    formats: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        _check_writable(member, name, tensor)
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and identity in seen:  # empty tensors share the address 0 without being tied
            aliases[name] = seen[identity]
            continue
        seen[identity] = name
        unique[name] = tensor
        memory_format = _memory_format(tensor)
        if memory_format is not None:
            formats[name] = memory_format
    order = sorted(unique, key=lambda name: (-unique[name].element_size(), name))  # keeps every value aligned
    fields: dict[str, Any] = {}
    position = 0
    for name in order:
        tensor = unique[name]
        end = position + tensor.numel() * tensor.element_size()
        fields[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return Plan(header, [unique[name] for name in order], len(header) + position, aliases, formats)


def chunks(layout: Plan) -> Iterator[bytes | memoryview]:
    """Yields the bytes of a member in chunks; at most one tensor is copied at a time."""
    yield layout.header
    for tensor in layout.tensors:
        if tensor.numel():
            view = _bytes_of(tensor.cpu().contiguous())
            for start in range(0, len(view), CHUNK):
                yield view[start : start + CHUNK]


def read(
    member: str,
    length: int,
    stream: Callable[[int], bytes],
    aliases: Mapping[str, str],
    formats: Mapping[str, str],
    sha256: str,
) -> dict[str, Tensor]:
    """Reads the tensors of one member, on the CPU. Checks the header before it allocates memory.

    Args:
        member: name of the member, for messages.
        length: size in bytes.
        stream: function of k that returns the next bytes, at most k.
        aliases: `Plan.aliases` from the manifest.
        formats: `Plan.formats` from the manifest.
        sha256: digest from the manifest, in hexadecimal.

    Raises:
        CheckpointError: the header is malformed or does not fit the length, or the data is truncated or altered.
    """
    digest = hashlib.sha256()

    def source(count: int) -> bytes:
        piece = stream(count)
        digest.update(piece)
        return piece

    fields = _parse_header(member, length, source)
    tensors: dict[str, Tensor] = {}
    for field in fields:
        flat = torch.empty(math.prod(field.shape), dtype=field.dtype)
        if flat.numel():
            _fill(member, _bytes_of(flat), source)
        if field.dtype == torch.bool and bool((flat.view(torch.uint8) > 1).any()):
            # some kernels use a byte above 1 as True, others as an index
            raise CheckpointError(
                f"member {member!r}: bool tensor {field.name!r} must hold bytes of 0 or 1, got others. Load another copy."
            )
        tensor = flat.reshape(field.shape)
        tensors[field.name] = _in_memory_format(member, tensor, formats.get(field.name))
    for alias, name in aliases.items():
        if name not in tensors:
            raise CheckpointError(
                f"member {member!r}: {alias!r} is tied to {name!r}, which is not in the member. Load another copy."
            )
        tensors[alias] = tensors[name]
    if digest.hexdigest() != sha256:
        raise CheckpointError(
            f"member {member!r} was altered: its SHA-256 digest differs from the manifest. Load another copy."
        )
    return tensors


def _in_memory_format(member: str, tensor: Tensor, name: str | None) -> Tensor:
    if name is None:
        return tensor
    if name not in FORMATS:
        raise CheckpointError(
            f"member {member!r}: memory format must be one of {sorted(FORMATS)}, got {name!r}. Load another copy."
        )
    return tensor.contiguous(memory_format=FORMATS[name])


def _fill(member: str, target: memoryview, source: Callable[[int], bytes]) -> None:
    position = 0
    while position < len(target):
        piece = source(min(CHUNK, len(target) - position))
        if not piece:
            raise CheckpointError(f"member {member!r} ends too early. The file is truncated. Load another copy.")
        target[position : position + len(piece)] = piece
        position += len(piece)


def _parse_header(member: str, length: int, source: Callable[[int], bytes]) -> list[_Field]:
    size = int.from_bytes(source(8), "little")
    if length < 8 or size > min(MAX_HEADER, length - 8):
        raise CheckpointError(
            f"member {member!r}: the header claims {size} bytes in a member of {length}. Load another copy."
        )
    text = bytearray(size)
    _fill(member, memoryview(text), source)
    try:
        raw = json.loads(text.decode(), object_pairs_hook=_no_duplicates)
        fields = [_field(name, entry) for name, entry in raw.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(
            f"member {member!r}: the header is damaged or altered ({error}). Load another copy."
        ) from None
    fields.sort(key=lambda field: (field.begin, field.end))
    position = 0
    for field in fields:
        size_in_bytes = math.prod(field.shape) * field.dtype.itemsize
        if field.begin != position or field.end - field.begin != size_in_bytes:
            raise CheckpointError(
                f"member {member!r}: offsets of tensor {field.name!r} do not match its shape. Load another copy."
            )
        position = field.end
    if 8 + size + position != length:
        raise CheckpointError(
            f"member {member!r}: the tensors end at byte {8 + size + position}, the member at {length}. Load "
            f"another copy."
        )
    return fields


def _field(name: str, entry: dict[str, Any]) -> _Field:
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if type(shape) is not list or not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"shape and offsets of tensor {name!r} must be integers >= 0")
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"tensor {name!r} has the unknown dtype {entry['dtype']!r}")
    return _Field(name, DTYPES[entry["dtype"]], shape, begin, end)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a name occurs twice")
    return unique


def _bytes_of(tensor: Tensor) -> memoryview:
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _memory_format(tensor: Tensor) -> str | None:
    """Returns the name of a channels-last memory format, None for any other."""
    name = {4: "channels_last", 5: "channels_last_3d"}.get(tensor.dim())
    if name is None or tensor.is_contiguous() or not tensor.is_contiguous(memory_format=FORMATS[name]):
        return None
    return name


def _check_writable(member: str, name: str, tensor: Tensor) -> None:
    if tensor.layout != torch.strided or tensor.is_meta:
        raise CheckpointError(
            f"member {member!r}: tensor {name!r} must be dense and have values, got a sparse or meta tensor. Convert it first."
        )
    if tensor.dtype not in NAMES:
        raise CheckpointError(
            f"member {member!r}: dtype of tensor {name!r} must be one of {sorted(map(str, NAMES))}, got {tensor.dtype}. Convert "
            f"it first."
        )
