"""Reading the zips of Stable-Baselines3: settings as JSON and tensors by torch's loader of weights. Nothing is unpickled."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sb_dqn.errors import CheckpointError

MEMBERS = {"data", "policy.pth"}
"""Members that every model of Stable-Baselines3 has."""
MARK = "_stable_baselines3_version"
"""Member that only its files have."""
SERIALIZED = ":serialized:"
CONSTANTS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE",
}  # fmt: skip
"""Operations of a pickle that push a number or a text."""
EXPANSION = 1_100
"""Largest ratio of a member to its compressed form; that of zeros is 1,030."""
UNREADABLE = (OSError, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, struct.error)
"""Errors of `zipfile` for files that are no zip, or damaged ones."""


class SB3Zip(NamedTuple):
    """Contents of a model file of Stable-Baselines3."""

    label: str
    """Name for messages."""
    settings: dict[str, Any]
    """Attributes of the model; a value that is no plain data is a dict with `:serialized:`, a pickle."""
    policy: dict[str, Tensor]
    variables: dict[str, Tensor]
    """Tensors besides the policy, such as `log_ent_coef`."""
    optimizers: dict[str, dict[str, Any] | None]
    """State of each optimizer by name, such as `policy.optimizer`; None if it holds other things than tensors and plain data."""


def is_sb3_zip(path: Any) -> bool:
    """Returns True for a file with the members of a model of Stable-Baselines3."""
    with contextlib.suppress(*UNREADABLE), _opened(path) as archive:
        return MARK in archive.namelist() or set(archive.namelist()) >= MEMBERS
    return False


def read_sb3_zip(path: Any) -> SB3Zip:
    """Reads a model file of Stable-Baselines3.

    Raises:
        CheckpointError: it is damaged; the message names the member.
    """
    label = str(path) if isinstance(path, (str, os.PathLike)) else "this file"
    with _opened(path) as archive:
        data = _member(archive, "data", label)
        try:
            settings = json.loads(data)
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{label}: member 'data' is no JSON ({error}). Load another copy.") from None
        if not isinstance(settings, dict):
            raise CheckpointError(f"{label}: member 'data' must be a dict, got {settings!r:.80}. Load another copy.")
        policy = _tensors(archive, "policy.pth", label)
        names = archive.namelist()
        variables = _tensors(archive, "pytorch_variables.pth", label) if "pytorch_variables.pth" in names else {}
        optimizers = {
            name.removesuffix(".pth"): _state(archive, name, label) for name in names if name.endswith("optimizer.pth")
        }
    return SB3Zip(label, settings, policy, variables, optimizers)


@contextlib.contextmanager
def _opened(path: Any) -> Iterator[zipfile.ZipFile]:
    if not isinstance(path, (str, os.PathLike)):
        start = path.tell()
        try:
            with zipfile.ZipFile(path) as archive:
                yield archive
        finally:
            path.seek(start)
        return
    file = Path(path)
    with zipfile.ZipFile(file if file.is_file() else file.with_name(f"{file.name}.zip")) as archive:
        yield archive


def _member(archive: zipfile.ZipFile, name: str, label: str) -> bytes:
    try:
        info = archive.getinfo(name)
        if info.file_size > EXPANSION * max(info.compress_size, 1):
            raise CheckpointError(f"{label}: member {name!r} expands to {info.file_size} bytes. Load another copy.")
        return archive.read(name)
    except (KeyError, OSError, RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{label}: member {name!r} cannot be read ({error}). The file is damaged. Load another copy."
        ) from None


def _tensors(archive: zipfile.ZipFile, name: str, label: str) -> dict[str, Tensor]:
    """Returns the tensors of a member by name; torch's loader refuses everything but tensors and plain containers."""
    raw = _member(archive, name, label)
    try:
        loaded = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
        return {str(key): value.detach() for key, value in loaded.items() if isinstance(value, Tensor)}
    except Exception as error:  # a damaged or hostile pickle makes the loader raise almost anything
        raise CheckpointError(
            f"{label}: member {name!r} must hold tensors only, got something else ({type(error).__name__}). The file is damaged or "
            f"hostile. Load another copy."
        ) from None


def _state(archive: zipfile.ZipFile, name: str, label: str) -> dict[str, Any] | None:
    """Returns the state of an optimizer; None if torch's loader refuses it."""
    raw = _member(archive, name, label)
    try:
        loaded = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except Exception:  # a damaged or hostile pickle makes the loader raise almost anything
        return None
    return loaded if isinstance(loaded, dict) else None


def pickled_constants(value: Any) -> list[Any]:
    """Returns the texts and numbers that a pickle in the settings names, in order; no part of it is run.

    Returns an empty list for a value that is no pickle, or a damaged one.
    """
    if not isinstance(value, dict) or SERIALIZED not in value:
        return []
    try:
        raw = base64.b64decode(value[SERIALIZED])
        return [argument for opcode, argument, _ in pickletools.genops(raw) if opcode.name in CONSTANTS]
    except (ValueError, TypeError, IndexError, AttributeError):
        return []


def literal(text: Any) -> Any:
    """Returns the plain data that a text shows; the text itself where it shows none."""
    if not isinstance(text, str):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text
