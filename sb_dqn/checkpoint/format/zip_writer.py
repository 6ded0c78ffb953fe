"""Writing of model files: a zip of a JSON manifest and tensor members.

Files are written atomically. The zip is stored, not deflated, with sorted members and
fixed timestamps: equal contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.checkpoint.format.zip_reader import (
    FORMAT_VERSION,
    MANIFEST,
    MAX_MANIFEST,
    SUFFIX,
    Target,
    as_path,
)
from sb_dqn.errors import CheckpointError, user_stacklevel
from sb_dqn.files import atomic_write
from sb_dqn.types import Settings
from sb_dqn.version import __version__


def write_archive(path: Target, manifest: Settings, members: Mapping[str, Mapping[str, Tensor]]) -> Path | None:
    """Writes manifest and tensors as one file; a crash leaves the complete old file or the complete new one.

    Args:
        path: see `file_to_write`; parent folders are made. A binary file is overwritten from its start.
        manifest: plain JSON with a `kind` (str); the version, and length and digest of every member, are added.
        members: name -> tensors by name. Tied tensors are written once; tensors are written contiguously, in chunks.

    Returns:
        The path that was written, or None for an open file.

    Raises:
        CheckpointError: an entry cannot be saved; the message names it, and no file is changed.
        OSError: the folder is not writable, or the disk is full; the old file is unchanged.
    """
    target = as_path(file_to_write(path))
    plans = {name: safetensors_stream.plan(name + SUFFIX, members[name]) for name in sorted(members)}
    if target is not None:
        with atomic_write(target) as file:
            _write_zip(file, manifest, plans)
        return target
    stream: Any = path  # as_path has checked that it is a binary file
    _to_json(dict(manifest))  # raises before the old contents are lost
    stream.seek(0)
    stream.truncate()
    _write_zip(stream, manifest, plans)
    return None


def file_to_write(path: Target) -> Target:
    """Returns the path of the file to write: `.zip` is added where there is no suffix. An open file is returned as it is.

    A folder, or a path that ends in a slash, gets `.zip` too, so that nothing is lost, and a warning: the file lies next to
    the folder, not in it.
    """
    target = as_path(path)
    if target is None:
        return path
    named = target if target.suffix else target.with_name(target.name + ".zip")
    while named.is_dir():
        named = named.with_name(named.name + ".zip")
    slash = isinstance(path, str) and path.endswith(("/", os.sep))
    if slash or target.is_dir():
        what = "is a folder" if target.is_dir() else "ends as a folder does"
        warnings.warn(
            f"path should name a file, got {str(path)!r}, which {what}; the file is written next to it, to {str(named)!r}. Load it by "
            f"that name, or pass the name of a file, such as {str(target / 'model')!r}.",
            stacklevel=user_stacklevel(),
        )
    return named


def _write_zip(file: BinaryIO, manifest: Settings, plans: Mapping[str, safetensors_stream.Plan]) -> None:
    entries: dict[str, Any] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, layout in plans.items():
            entry: dict[str, Any] = {"length": layout.length}
            if layout.aliases:
                entry["aliases"] = layout.aliases
            if layout.formats:
                entry["formats"] = layout.formats
            digest = hashlib.sha256()
            with archive.open(_zip_info(name + SUFFIX, layout.length), "w") as stream:
                for chunk in safetensors_stream.chunks(layout):
                    digest.update(chunk)
                    stream.write(chunk)
            entries[name] = entry | {"sha256": digest.hexdigest()}
        versions = {"format_version": FORMAT_VERSION, "sb_dqn_version": __version__}
        text = _to_json(versions | dict(manifest) | {"members": entries})
        with archive.open(_zip_info(MANIFEST, len(text)), "w") as stream:
            stream.write(text)


def _to_json(manifest: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(manifest, allow_nan=False, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"the manifest must be plain JSON, got other data ({error}). Encode states with pack()."
        ) from error
    if len(text) > MAX_MANIFEST:
        raise CheckpointError(
            f"the manifest must have at most {MAX_MANIFEST} bytes, got {len(text)}. Store large data as tensors."
        )
    return text


def _zip_info(name: str, length: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # the timestamp is 1980-01-01: equal contents give equal bytes
    info.create_system = 3  # Unix
    info.external_attr = 0o644 << 16
    info.file_size = length  # lets zipfile choose ZIP64 before the first byte
    return info
