"""One file for a model: a JSON manifest and tensor members, written whole or not at all, read without running code.

The zip is stored, not deflated, with sorted members and fixed timestamps: equal contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from sb_dqn.checkpoint import tensorfile
from sb_dqn.checkpoint.atomic import atomic_write
from sb_dqn.checkpoint.container import (
    FORMAT_VERSION,
    MANIFEST,
    MAX_MANIFEST,
    MEMBER_NAME,
    SUFFIX,
    Target,
    as_path,
    opened,
)
from sb_dqn.checkpoint.versions import warn_of_newer
from sb_dqn.errors import CheckpointError
from sb_dqn.version import __version__

RESERVED = ("format_version", "sb_dqn_version", "members")


def write_archive(
    path: Target, manifest: Mapping[str, Any], members: Mapping[str, Mapping[str, Tensor]]
) -> Path | None:
    """Writes manifest and tensors as one file; a crash leaves the whole old file or the whole new one.

    Args:
        path: see `file_to_write`; parent folders are made. A binary file is overwritten from its start.
        manifest: plain JSON with a `kind` (str); the version, and length and digest of every member, are added.
        members: name -> tensors by name. A tied tensor is written once, any tensor as contiguous, little by little.

    Returns:
        The path that was written, or None for an open file.

    Raises:
        CheckpointError: something cannot be written, by name; nothing has been touched then.
        OSError: the folder or the disk refuses; the old file is as it was.
    """
    _check_arguments(manifest, members)
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

    What is a folder, or ends in a slash, gets `.zip` too, so that nothing is lost, and a warning: the file lies beside the
    folder, not in it.
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
            f"{str(path)!r} {what}; the file is written beside it, to {str(named)!r}. Load it by that name, or give the name of a "
            f"file, such as {str(target / 'model')!r}",
            stacklevel=4,  # of `save` and the like
        )
    return named


def read_archive(
    path: Target, *, only: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """The manifest and the tensors (on the CPU) of a file that `write_archive` wrote; `only` names the members to read.

    A file of a newer version of the package, in a format that is known here, is read with a warning.

    Raises:
        CheckpointError: the file is missing, truncated, foreign, altered, too new, or lacks a member of `only`.
    """
    with opened(path) as (archive, manifest, label):
        warn_of_newer(manifest.get("sb_dqn_version"), label)
        entries: dict[str, Any] = manifest["members"]
        wanted = list(entries) if only is None else list(only)
        for name in wanted:
            if name not in entries:
                raise CheckpointError(f"{label} has no member {name!r}; it has {sorted(entries)}")
        return manifest, {name: _read_member(archive, name, entries[name], label) for name in wanted}


def model_info(path: Target) -> dict[str, Any]:
    """What the file says of itself (version, kind, arguments, counters, members); reads the manifest alone.

    Raises:
        CheckpointError: the file is missing, truncated, foreign or too new.
    """
    with opened(path) as (_, manifest, _label):
        return manifest


def _check_arguments(manifest: Mapping[str, Any], members: Mapping[str, Mapping[str, Tensor]]) -> None:
    taken = [key for key in RESERVED if key in manifest]
    if taken or not isinstance(manifest.get("kind"), str):
        raise CheckpointError(
            f"a manifest needs a 'kind' (str) and must not use the keys {RESERVED}; given: {sorted(manifest)}"
        )
    for name in members:
        if not MEMBER_NAME.fullmatch(name):
            raise CheckpointError(f"member name {name!r} is not allowed; use letters, digits and '_', '.', '-'")


def _write_zip(file: BinaryIO, manifest: Mapping[str, Any], members: Mapping[str, Mapping[str, Tensor]]) -> None:
    described: dict[str, Any] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            planned = tensorfile.plan(name + SUFFIX, members[name])
            entry: dict[str, Any] = {"length": planned.length}
            if planned.aliases:
                entry["aliases"] = planned.aliases
            if planned.formats:
                entry["formats"] = planned.formats
            digest = hashlib.sha256()
            with archive.open(_info(name + SUFFIX, planned.length), "w") as sink:
                for piece in tensorfile.chunks(planned):
                    digest.update(piece)
                    sink.write(piece)
            described[name] = entry | {"sha256": digest.hexdigest()}
        whole = (
            {"format_version": FORMAT_VERSION, "sb_dqn_version": __version__} | dict(manifest) | {"members": described}
        )
        text = _json(whole)
        with archive.open(_info(MANIFEST, len(text)), "w") as sink:
            sink.write(text)


def _json(manifest: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(manifest, allow_nan=False, indent=1).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the manifest is not plain JSON ({error}); pass states through pack()") from error
    if len(text) > MAX_MANIFEST:
        raise CheckpointError(
            f"the manifest would have {len(text)} bytes; allowed: {MAX_MANIFEST}. Move data into tensors"
        )
    return text


def _info(name: str, length: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # the timestamp is 1980-01-01: equal contents, equal bytes
    info.create_system, info.external_attr = 3, 0o644 << 16
    info.file_size = length  # lets zipfile decide on ZIP64 before the first byte
    return info


def _read_member(archive: zipfile.ZipFile, name: str, entry: Mapping[str, Any], label: str) -> dict[str, Tensor]:
    digest = hashlib.sha256()
    try:
        with archive.open(name + SUFFIX) as stream:
            tensors = tensorfile.read(
                name + SUFFIX,
                entry["length"],
                tensorfile.hashed(stream.read, digest),
                entry.get("aliases", {}),
                entry.get("formats", {}),
            )
    except CheckpointError as error:
        raise CheckpointError(f"{label}: {error}") from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError, struct.error) as error:
        raise CheckpointError(f"{label}: member {name + SUFFIX!r} is damaged ({error})") from error
    if digest.hexdigest() != entry["sha256"]:
        raise CheckpointError(
            f"{label}: member {name + SUFFIX!r} was altered: its SHA-256 digest is not the manifest's"
        )
    return tensors
