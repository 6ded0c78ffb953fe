"""Reading and writing of model files: a zip of a JSON manifest and tensor members.

Files are written atomically and read without running code. The zip is stored, not deflated, with sorted members and
fixed timestamps: equal contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import warnings
import zipfile
from collections.abc import Collection, Mapping
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
    open_archive,
)
from sb_dqn.errors import CheckpointError, user_stacklevel
from sb_dqn.files import atomic_write
from sb_dqn.version import __version__


def write_archive(
    path: Target, manifest: Mapping[str, Any], members: Mapping[str, Mapping[str, Tensor]]
) -> Path | None:
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
    if target is not None:
        with atomic_write(target) as file:
            _write_zip(file, manifest, members)
        return target
    stream: Any = path  # as_path has checked that it is a binary file
    stream.seek(0)
    stream.truncate()
    _write_zip(stream, manifest, members)
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


def read_archive(
    path: Target, *, only: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """Reads the manifest and the tensors (on the CPU) of a file that `write_archive` wrote.

    Args:
        path: path or binary file.
        only: names of the members to read; None reads all.

    A file of a newer version of the package, in a format that is known here, is read with a warning.

    Raises:
        CheckpointError: the file is missing, truncated, altered, not a model file, too new, or lacks a member of `only`.
    """
    with open_archive(path) as (archive, manifest, label):
        warn_of_newer(manifest.get("sb_dqn_version"), label)
        entries: dict[str, Any] = manifest["members"]
        names = list(entries) if only is None else list(only)
        for name in names:
            if name not in entries:
                raise CheckpointError(
                    f"member of {label} must be one of {sorted(entries)}, got {name!r}. Use one of these."
                )
        return manifest, {name: _read_member(archive, name, entries[name], label) for name in names}


def model_info(path: Target) -> dict[str, Any]:
    """Returns the manifest of a model file (version, kind, arguments, counters, members); reads no tensors.

    Raises:
        CheckpointError: the file is missing, truncated, not a model file, or too new.
    """
    with open_archive(path) as (_, manifest, _label):
        return manifest


def _write_zip(file: BinaryIO, manifest: Mapping[str, Any], members: Mapping[str, Mapping[str, Tensor]]) -> None:
    entries: dict[str, Any] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            layout = safetensors_stream.plan(name + SUFFIX, members[name])
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


def _read_member(archive: zipfile.ZipFile, name: str, entry: Mapping[str, Any], label: str) -> dict[str, Tensor]:
    digest = hashlib.sha256()
    try:
        with archive.open(name + SUFFIX) as stream:
            tensors = safetensors_stream.read(
                name + SUFFIX,
                entry["length"],
                safetensors_stream.hashed(stream.read, digest),
                entry.get("aliases", {}),
                entry.get("formats", {}),
            )
    except CheckpointError as error:
        raise CheckpointError(f"{label}: {error}") from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError, struct.error) as error:
        raise CheckpointError(f"{label}: member {name + SUFFIX!r} is damaged ({error}). Load another copy.") from error
    if digest.hexdigest() != entry["sha256"]:
        raise CheckpointError(
            f"{label}: member {name + SUFFIX!r} was altered: its SHA-256 digest differs from the manifest. Load "
            f"another copy."
        )
    return tensors


RELEASE = re.compile(r"\d{1,9}(\.\d{1,9}){0,9}")


def warn_of_newer(written_by: Any, label: str) -> None:
    """Warns of a file that a newer version of the package wrote; its format can still be read.

    Args:
        written_by: version in the file; anything else is ignored.
        label: the file, for the message.
    """
    if _release(written_by) > _release(__version__):
        warnings.warn(
            f"{label} was written by sb_dqn {written_by[:40]}, which is newer than the installed {__version__}; what that version "
            f"added may be refused or go unread. Update: pip install -U sb_dqn.",
            stacklevel=user_stacklevel(),
        )


def _release(version: Any) -> tuple[int, ...]:
    """Returns the numbers at the front, without zeros at the end: 1.2.0rc1 gives (1, 2); () if there are none."""
    found = RELEASE.match(version) if isinstance(version, str) else None
    numbers = [] if found is None else [int(number) for number in found.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
