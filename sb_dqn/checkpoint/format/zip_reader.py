"""Reading of model files: checks of the zip and its manifest, and the tensors after them.

Nothing is extracted to disk, decompressed or unpickled. Digests detect accidental damage. The protection against an
attacker is the checks of sizes, names and types, and the fact that loading runs no code.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
import struct
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any

from torch import Tensor

from sb_dqn.checkpoint.format import safetensors_stream
from sb_dqn.errors import CheckpointError, ConfigurationError, MissingFileError, nearest, user_stacklevel
from sb_dqn.types import Info, Settings
from sb_dqn.version import __version__

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SUFFIX = ".safetensors"
MAX_MANIFEST = 16 * 2**20
MAX_MEMBERS = 4096
MAX_BRANCHES = 500_000
"""Lists and dicts of a text of JSON, each of which takes up to a hundred times its characters."""
RELEASE = re.compile(r"\d{1,9}(\.\d{1,9}){0,9}")
MEMBER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")

Target = str | os.PathLike[str] | IO[bytes]
"""A path, or a binary file such as `io.BytesIO`."""


def as_path(target: Target) -> Path | None:
    """Returns `target` as a path, or None for an open binary file.

    Raises:
        ConfigurationError: `target` is a text file, a file that cannot seek, or not a file.
    """
    if isinstance(target, (str, os.PathLike)):
        if not Path(target).name:
            raise ConfigurationError(
                f"path must name a file, got {target!r}. Pass for instance 'model' or 'runs/model.zip'."
            )
        return Path(target)
    file: Any = target
    if isinstance(file, io.TextIOBase) or not callable(getattr(file, "seekable", None)):
        raise ConfigurationError(
            f"path must be a str, a Path or a binary file (io.BytesIO, open(..., 'wb')), got {target!r}. Pass "
            f"one of these."
        )
    if not file.seekable():
        raise ConfigurationError(
            f"an open file must support seeking, got {target!r} (a pipe?). Use a path or io.BytesIO."
        )
    return None


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


def model_info(path: Target) -> Info:
    """Returns the manifest of a model file (version, kind, arguments, counters, members); reads no tensors.

    Raises:
        CheckpointError: the file is missing, truncated, not a model file, or too new.
    """
    with open_archive(path) as (_, manifest, _label):
        return manifest


@contextlib.contextmanager
def open_archive(source: Target) -> Iterator[tuple[zipfile.ZipFile, dict[str, Any], str]]:
    """Opens a model file; yields the zip, its manifest and its name for messages after all checks that need no tensor.

    Raises:
        CheckpointError: the file is missing, truncated, damaged, not a model file, from a newer version, or malicious.
    """
    with contextlib.ExitStack() as stack:
        path = as_path(source)
        label = "this file" if path is None else str(path)
        if path is not None:
            path = _existing(path)
            label = str(path)
            try:
                file: IO[bytes] = stack.enter_context(path.open("rb"))
            except OSError as error:
                raise CheckpointError(f"{label} cannot be read: {error.strerror}. Check its permissions.") from error
        else:
            assert not isinstance(source, (str, os.PathLike))
            file = source
        archive = stack.enter_context(_open_zip(file, label))
        yield archive, _checked_manifest(archive, label), label


def _existing(path: Path) -> Path:
    if path.is_file():
        return path
    with_suffix = path.with_name(path.name + ".zip") if path.name else path
    if with_suffix.is_file():
        return with_suffix
    if path.is_dir():
        raise CheckpointError(f"path must be a file, got the folder {path}. Pass the .zip file that save() wrote.")
    if not path.parent.is_dir():
        raise MissingFileError(f"no file {path}: the folder {path.parent} does not exist. Check the path.")
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    hint = nearest(with_suffix.name, names) or nearest(path.name, names)
    raise MissingFileError(f"no file {path}, and none with '.zip' added. Check the path.{hint}")


def _open_zip(file: IO[bytes], label: str) -> zipfile.ZipFile:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    magic = file.read(4)
    if size == 0:
        raise CheckpointError(f"{label} is empty (0 bytes). Load another copy.")
    if magic[:1] == b"\x80" and 2 <= magic[1] <= 5:  # first bytes of a pickle of protocol 2 to 5
        raise CheckpointError(
            f"{label} is not a file of sb_dqn: it is a pickle, as Stable-Baselines3 writes replay buffers. Pickles can run "
            f"any code and are not read. Fill a new buffer by training."
        )
    if magic not in (b"PK\x03\x04", b"PK\x05\x06"):
        raise CheckpointError(
            f"{label} is not a model file of sb_dqn: it is not a zip (it starts with {magic!r}). Pass a file "
            f"that save() wrote."
        )
    file.seek(max(0, size - 22))
    end = file.read(22)
    if size < 22 or not end.startswith(b"PK\x05\x06"):
        raise CheckpointError(
            f"{label} is truncated or has extra bytes at its end: {size} bytes that do not end with a zip directory. "
            f"Load another copy."
        )
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError, OverflowError, struct.error) as error:
        raise CheckpointError(
            f"{label} is damaged: its zip directory cannot be read ({error}). Load another copy."
        ) from error
    try:
        _check_entries(archive, size, label)
    except CheckpointError:
        archive.close()
        raise
    return archive


def _check_entries(archive: zipfile.ZipFile, size: int, label: str) -> None:
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if "data" in names and ("policy.pth" in names or "pytorch_variables.pth" in names):
        raise CheckpointError(
            f"{label} is a Stable-Baselines3 model (it has the members 'data' and 'policy.pth'), not a file of sb_dqn. "
            f"Read it by load of its algorithm, such as DQN.load."
        )
    if len(entries) > MAX_MEMBERS:
        raise CheckpointError(
            f"{label} must have at most {MAX_MEMBERS} members, got {len(entries)}. Load another copy."
        )
    for name, count in Counter(names).items():
        if count > 1:
            raise CheckpointError(f"{label}: member {name!r} occurs {count} times. Load another copy.")
    if MANIFEST not in names:
        raise CheckpointError(
            f"{label} is a zip, but not a model file of sb_dqn: it has no {MANIFEST!r}, only {sorted(names)[:8]}. Pass a "
            f"file that save() wrote."
        )
    for entry in entries:
        reason = _refusal(entry)
        if reason:
            raise CheckpointError(
                f"{label}: member {entry.filename!r} {reason}. save() writes no such member. Load another copy."
            )
    position = 0
    for entry in sorted(entries, key=lambda entry: entry.header_offset):
        if entry.header_offset < position or entry.header_offset + entry.file_size > size:
            raise CheckpointError(
                f"{label}: member {entry.filename!r} overlaps another or is larger than the file. Load another copy."
            )
        position = entry.header_offset + 30 + len(entry.filename) + entry.file_size


def _refusal(entry: zipfile.ZipInfo) -> str:
    """Returns the reason to refuse a directory entry, or an empty string."""
    name = entry.filename
    if name != MANIFEST and not (name.endswith(SUFFIX) and MEMBER_NAME.fullmatch(name)):
        return "has a name that is not allowed (a path, or another file type)"
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        return "is compressed (a small file could expand to any size)"
    if entry.flag_bits & 0x1:
        return "is encrypted"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "is a link"
    if name == MANIFEST and entry.file_size > MAX_MANIFEST:
        return f"must have at most {MAX_MANIFEST} bytes, got {entry.file_size}"
    return ""


def _checked_manifest(archive: zipfile.ZipFile, label: str) -> dict[str, Any]:
    try:
        manifest = parse_json(archive.read(MANIFEST))
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, RuntimeError, struct.error) as error:
        raise CheckpointError(f"{label}: member {MANIFEST!r} is damaged ({error}). Load another copy.") from None
    version = manifest.get("format_version") if isinstance(manifest, dict) else None
    if type(version) is not int:
        raise CheckpointError(
            f"{label} is a zip, but not a model file of sb_dqn: {MANIFEST!r} has no format_version. Pass a file "
            f"that save() wrote."
        )
    if version > FORMAT_VERSION:
        raise CheckpointError(
            f"{label} has format version {version}, written by sb_dqn {manifest.get('sb_dqn_version')}. This is sb_dqn "
            f"{__version__}, which reads versions up to {FORMAT_VERSION}. Update: pip install -U sb_dqn."
        )
    if version < 1:
        raise CheckpointError(
            f"{label}: format_version must be at least 1, got {version}. The file is damaged. Load another copy."
        )
    _check_members(manifest, archive, label)
    return dict(manifest)


def parse_json(text: bytes) -> Any:
    """Returns the data of a text of JSON.

    Raises:
        ValueError: it is malformed, or has too many lists and dicts.
    """
    if text.count(b"[") + text.count(b"{") > MAX_BRANCHES:
        raise ValueError(f"more than {MAX_BRANCHES} lists and dicts")
    return json.loads(text.decode())


def _check_members(manifest: dict[str, Any], archive: zipfile.ZipFile, label: str) -> None:
    members = manifest.get("members")
    if not isinstance(members, dict) or not all(_is_entry(entry) for entry in members.values()):
        raise CheckpointError(
            f"{label}: {MANIFEST!r} must list the length and digest of every member, got others. Load another copy."
        )
    present = {entry.filename: entry.file_size for entry in archive.infolist() if entry.filename != MANIFEST}
    for name, entry in members.items():
        length = present.pop(name + SUFFIX, None)
        if length is None:
            raise CheckpointError(f"{label}: member {name + SUFFIX!r} is missing. Load another copy.")
        if length != entry["length"]:
            raise CheckpointError(
                f"{label}: member {name + SUFFIX!r} must have {entry['length']} bytes, as in the manifest, got {length}. Load "
                f"another copy."
            )
    if present:
        raise CheckpointError(f"{label}: member {min(present)!r} is not listed in the manifest. Load another copy.")


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or type(entry.get("length")) is not int or type(entry.get("sha256")) is not str:
        return False
    tables = (entry.get("aliases", {}), entry.get("formats", {}))
    return all(isinstance(table, dict) and all(type(value) is str for value in table.values()) for table in tables)


def _read_member(archive: zipfile.ZipFile, name: str, entry: Settings, label: str) -> dict[str, Tensor]:
    try:
        with archive.open(name + SUFFIX) as stream:
            return safetensors_stream.read(
                name + SUFFIX,
                entry["length"],
                stream.read,
                entry.get("aliases", {}),
                entry.get("formats", {}),
                entry["sha256"],
            )
    except CheckpointError as error:
        raise CheckpointError(f"{label}: {error}") from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, OSError, struct.error) as error:
        raise CheckpointError(f"{label}: member {name + SUFFIX!r} is damaged ({error}). Load another copy.") from error


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


def _release(version: object) -> tuple[int, ...]:
    """Returns the numbers at the front, without zeros at the end: 1.2.0rc1 gives (1, 2); () if there are none."""
    found = RELEASE.match(version) if isinstance(version, str) else None
    numbers = [] if found is None else [int(number) for number in found.group().split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
