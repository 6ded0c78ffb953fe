"""One member of an archive: tensors by name in the safetensors layout, streamed in both directions.

The layout (https://github.com/huggingface/safetensors): 8 bytes little-endian length of the header, the header (JSON:
name -> dtype, shape, data_offsets), then the raw little-endian values without gaps. The safetensors package reads
and writes it only as a file of its own or as one block of bytes beside the tensors; a replay of several gigabytes is to
be written once, read once and held once, so both directions are written out here. The tests use the package as referee.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError

CHUNK = 1 << 20
MAX_HEADER = 100_000_000
"""Bytes; the limit of the safetensors package."""

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
    """What will be written of one member, known before the first byte is."""

    header: bytes
    tensors: list[Tensor]
    """In the order of the data."""
    length: int
    """Bytes of the whole member."""
    aliases: dict[str, str]
    """Tied tensors: name -> the name under which the values are written."""
    formats: dict[str, str]
    """Tensors in another memory format than the contiguous one."""


class _Field(NamedTuple):
    name: str
    dtype: torch.dtype
    shape: list[int]
    begin: int
    end: int


def plan(member: str, tensors: Mapping[str, Tensor]) -> Plan:
    """Decides the order, the ties and the header of one member.

    Raises:
        CheckpointError: a tensor is sparse, on the meta device, or of a dtype that the layout does not have.
    """
    unique, aliases, formats, seen = dict[str, Tensor](), dict[str, str](), dict[str, str](), dict[Any, str]()
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        _check_writable(member, name, tensor)
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and identity in seen:  # empty tensors share the address 0 without being tied
            aliases[name] = seen[identity]
            continue
        seen[identity] = name
        unique[name] = tensor
        kind = _memory_format(tensor)
        if kind is not None:
            formats[name] = kind
    order = sorted(unique, key=lambda name: (-unique[name].element_size(), name))  # keeps every value aligned
    fields, position = dict[str, Any](), 0
    for name in order:
        tensor = unique[name]
        end = position + tensor.numel() * tensor.element_size()
        fields[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = len(text).to_bytes(8, "little") + text
    return Plan(header, [unique[name] for name in order], len(header) + position, aliases, formats)


def chunks(planned: Plan) -> Iterator[bytes | memoryview]:
    """The bytes of a member, piece by piece; at most one tensor is copied at a time."""
    yield planned.header
    for tensor in planned.tensors:
        if tensor.numel():
            view = _bytes_of(tensor.cpu().contiguous())
            for start in range(0, len(view), CHUNK):
                yield view[start : start + CHUNK]


def read(
    member: str, length: int, source: Callable[[int], bytes], aliases: Mapping[str, str], formats: Mapping[str, str]
) -> dict[str, Tensor]:
    """The tensors of one member of `length` bytes, on the CPU; `source(k)` answers the next at most k bytes.

    Raises:
        CheckpointError: the header is not one, or does not fit the length; nothing is allocated before that is known.
    """
    fields = _parse_header(member, length, source)
    found: dict[str, Tensor] = {}
    for field in fields:
        flat = torch.empty(math.prod(field.shape), dtype=field.dtype)
        if flat.numel():
            _fill(member, _bytes_of(flat), source)
        if field.dtype == torch.bool and bool((flat.view(torch.uint8) > 1).any()):
            # any other byte is a bool to some kernels and an index to others
            raise CheckpointError(f"member {member!r}: tensor {field.name!r} holds bytes that are no bool")
        tensor = flat.reshape(field.shape)
        found[field.name] = _restored(member, tensor, formats.get(field.name))
    for alias, name in aliases.items():
        if name not in found:
            raise CheckpointError(f"member {member!r}: {alias!r} is tied to {name!r}, which is not in the member")
        found[alias] = found[name]
    return found


def hashed(source: Callable[[int], bytes], digest: Any) -> Callable[[int], bytes]:
    """The same source; what it answers goes into the digest, too."""

    def reader(count: int) -> bytes:
        piece = source(count)
        digest.update(piece)
        return piece

    return reader


def _restored(member: str, tensor: Tensor, kind: str | None) -> Tensor:
    if kind is None:
        return tensor
    if kind not in FORMATS:
        raise CheckpointError(f"member {member!r}: unknown memory format {kind!r}; known: {sorted(FORMATS)}")
    return tensor.contiguous(memory_format=FORMATS[kind])


def _fill(member: str, target: memoryview, source: Callable[[int], bytes]) -> None:
    position = 0
    while position < len(target):
        piece = source(min(CHUNK, len(target) - position))
        if not piece:
            raise CheckpointError(f"member {member!r} ends too early: the file is truncated")
        target[position : position + len(piece)] = piece
        position += len(piece)


def _parse_header(member: str, length: int, source: Callable[[int], bytes]) -> list[_Field]:
    size = int.from_bytes(source(8), "little")
    if length < 8 or size > min(MAX_HEADER, length - 8):
        raise CheckpointError(f"member {member!r}: its header claims {size} bytes of a member of {length}")
    text = bytearray(size)
    _fill(member, memoryview(text), source)
    try:
        raw = json.loads(text.decode(), object_pairs_hook=_no_duplicates)
        fields = [_field(name, entry) for name, entry in raw.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"member {member!r}: its header cannot be read ({error}): damaged or altered") from None
    fields.sort(key=lambda field: (field.begin, field.end))
    position = 0
    for field in fields:
        wanted = math.prod(field.shape) * field.dtype.itemsize
        if field.begin != position or field.end - field.begin != wanted:
            raise CheckpointError(f"member {member!r}: tensor {field.name!r} does not lie where its shape says")
        position = field.end
    if 8 + size + position != length:
        raise CheckpointError(
            f"member {member!r}: its tensors end at byte {8 + size + position}, the member at {length}"
        )
    return fields


def _field(name: str, entry: dict[str, Any]) -> _Field:
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"tensor {name!r} has a shape or an offset that is no count")
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"tensor {name!r} has the unknown dtype {entry['dtype']!r}")
    return _Field(name, DTYPES[entry["dtype"]], shape, begin, end)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _bytes_of(tensor: Tensor) -> memoryview:
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _memory_format(tensor: Tensor) -> str | None:
    """Its name where it is not the plain contiguous one."""
    kind = {4: "channels_last", 5: "channels_last_3d"}.get(tensor.dim())
    if kind is None or tensor.is_contiguous() or not tensor.is_contiguous(memory_format=FORMATS[kind]):
        return None
    return kind


def _check_writable(member: str, name: str, tensor: Tensor) -> None:
    if name == "__metadata__":
        raise CheckpointError(f"member {member!r}: no tensor may be called '__metadata__'; rename it")
    if tensor.layout != torch.strided or tensor.is_meta:
        raise CheckpointError(
            f"member {member!r}: tensor {name!r} is sparse or has no values; only dense tensors are saved"
        )
    if tensor.dtype not in NAMES:
        raise CheckpointError(
            f"member {member!r}: tensor {name!r} is {tensor.dtype}; allowed: {sorted(map(str, NAMES))}"
        )
