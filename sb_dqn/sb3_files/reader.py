"""Reading the zips of Stable-Baselines3: settings as JSON and tensors by torch's loader of weights. Nothing is unpickled."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import os
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.checkpoint.format.safetensors_stream import CHUNK
from sb_dqn.checkpoint.format.zip_reader import Target, as_path, parse_json
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Kwargs, State

MEMBERS = {"data", "policy.pth"}
"""Members that every model of Stable-Baselines3 has."""
OPTIMIZERS = ("policy.optimizer", "actor.optimizer", "critic.optimizer", "ent_coef_optimizer")
"""Optimizers whose states are read."""
MARK = "_stable_baselines3_version"
"""Member that only its files have."""
SERIALIZED = ":serialized:"
CONSTANTS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
"""Operations of a pickle that push a number or a text."""
MAX_DATA = 32 * 2**20
"""Bytes of the settings, which hold the last observations as text."""
MAX_PICKLE = 2**20
"""Bytes of the names and shapes of the tensors of a member."""
MAX_TEXT = 100_000
"""Characters of a setting that is read."""
FREE_BYTES, FACTOR = 16 * 2**20, 8
"""A member may have `FREE_BYTES` and this many times the bytes of its compressed form; its tensors, of which some have several
names, this many times its bytes."""
GLOBALS = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    *(f"torch {kind}Storage" for kind in ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")),
}  # fmt: skip
"""What the pickle of a member may name: none of these allocates memory, as `bytearray` does."""
UNREADABLE = (OSError, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, struct.error)
"""Errors of `zipfile` for files that are no zip, or damaged ones."""


class SB3Zip(NamedTuple):
    """Contents of a model file of Stable-Baselines3."""

    label: str
    """Name for messages."""
    settings: Kwargs
    """Attributes of the model; a value that is no plain data is a dict with `:serialized:`, a pickle."""
    policy: dict[str, Tensor]
    variables: dict[str, Tensor]
    """Tensors besides the policy, such as `log_ent_coef`."""
    optimizers: dict[str, dict[str, Any] | None]
    """State of each optimizer by name, such as `policy.optimizer`; None if it holds other things than tensors and plain data."""


def is_sb3_zip(path: Target) -> bool:
    """Returns True for a file with the members of a model of Stable-Baselines3."""
    with contextlib.suppress(*UNREADABLE), _opened(path) as archive:
        return MARK in archive.namelist() or set(archive.namelist()) >= MEMBERS
    return False


def read_sb3_zip(path: Target) -> SB3Zip:
    """Reads a model file of Stable-Baselines3.

    Raises:
        CheckpointError: it is damaged; the message names the member.
    """
    label = str(path) if isinstance(path, (str, os.PathLike)) else "this file"
    with _opened(path) as archive:
        data = _member(archive, "data", label, MAX_DATA)
        try:
            settings = parse_json(data)
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{label}: member 'data' is no JSON ({error}). Load another copy.") from None
        if not isinstance(settings, dict):
            raise CheckpointError(f"{label}: member 'data' must be a dict, got {settings!r:.80}. Load another copy.")
        policy = _tensors(archive, "policy.pth", label)
        names = archive.namelist()
        variables = _tensors(archive, "pytorch_variables.pth", label) if "pytorch_variables.pth" in names else {}
        optimizers = {name: _state(archive, f"{name}.pth", label) for name in OPTIMIZERS if f"{name}.pth" in names}
    return SB3Zip(label, settings, policy, variables, optimizers)


@contextlib.contextmanager
def _opened(path: Target) -> Iterator[zipfile.ZipFile]:
    file = as_path(path)
    if file is None:
        assert not isinstance(path, (str, os.PathLike))
        start = path.tell()
        try:
            with zipfile.ZipFile(path) as archive:
                yield archive
        finally:
            path.seek(start)
        return
    with zipfile.ZipFile(file if file.is_file() else file.with_name(f"{file.name}.zip")) as archive:
        yield archive


def _member(archive: zipfile.ZipFile, name: str, label: str, limit: int | None = None) -> bytes:
    """Returns the bytes of a member; `limit` is the largest number of them, None: as its compressed form allows."""
    try:
        info = archive.getinfo(name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise CheckpointError(
                f"{label}: member {name!r} must be stored or deflated, got another compression. Load another copy."
            )
        allowed = FREE_BYTES + FACTOR * info.compress_size if limit is None else limit
        if info.file_size > allowed:
            raise CheckpointError(
                f"{label}: member {name!r} must have at most {allowed} bytes, got {info.file_size}. Load another copy."
            )
        with archive.open(
            info
        ) as stream:  # in pieces: one call would decompress up to 2 GiB at once, even where the directory names less
            return b"".join(iter(lambda: stream.read(CHUNK), b""))
    except (*UNREADABLE, KeyError, EOFError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{label}: member {name!r} cannot be read ({error}). The file is damaged. Load another copy."
        ) from None


def _load(raw: bytes) -> Any:
    """Returns what torch's loader of weights makes of a member, if it takes no more memory than the member has bytes.

    Raises:
        Exception: of almost any kind; the member is damaged or hostile.
    """
    with zipfile.ZipFile(io.BytesIO(raw)) as inner:
        entries = inner.infolist()
        pickles = [entry for entry in entries if entry.filename.lower().endswith("data.pkl")]
        sizes = sum(entry.file_size for entry in entries)
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or sizes > len(raw):
            raise ValueError(f"its parts have {sizes} bytes")
        if any(entry.file_size > MAX_PICKLE for entry in pickles):
            raise ValueError(f"its names have more than {MAX_PICKLE} bytes")
        for entry in pickles:
            for operation, argument, _ in pickletools.genops(inner.read(entry)):
                if operation.name == "GLOBAL" and argument not in GLOBALS:
                    raise ValueError(f"it names {argument!r}")
    return torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)


def _tensors(archive: zipfile.ZipFile, name: str, label: str) -> dict[str, Tensor]:
    """Returns the tensors of a member by name; torch's loader refuses everything but tensors and plain containers."""
    raw = _member(archive, name, label)
    try:
        loaded = {str(key): value.detach() for key, value in _load(raw).items() if isinstance(value, Tensor)}
        total = sum(value.numel() * value.element_size() for value in loaded.values())
        if total > FACTOR * len(raw):  # values that are repeated by their strides
            raise ValueError(f"its tensors have {total} bytes")
    except Exception as error:  # a damaged or hostile pickle makes the loader raise almost anything
        raise CheckpointError(
            f"{label}: member {name!r} must hold tensors only, got something else ({type(error).__name__}). The file is damaged or "
            f"hostile. Load another copy."
        ) from None
    return loaded


def _state(archive: zipfile.ZipFile, name: str, label: str) -> State | None:
    """Returns the state of an optimizer; None if torch's loader refuses it."""
    raw = _member(archive, name, label)
    try:
        loaded = _load(raw)
    except Exception:  # a damaged or hostile pickle makes the loader raise almost anything
        return None
    return loaded if isinstance(loaded, dict) else None


def pickled_constants(value: object) -> list[Any]:
    """Returns the texts and numbers that a pickle in the settings names, in order; no part of it is run.

    Returns an empty list for a value that is no pickle, or a damaged one.
    """
    if not isinstance(value, dict) or len(text := str(value.get(SERIALIZED, ""))) > MAX_TEXT:
        return []
    try:
        raw = base64.b64decode(text)
        return [argument for opcode, argument, _ in pickletools.genops(raw) if opcode.name in CONSTANTS]
    except (ValueError, TypeError, IndexError, AttributeError):
        return []


def literal(text: object) -> Any:
    """Returns the plain data that a text shows; the text itself where it shows none, or is long."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text
