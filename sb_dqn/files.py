"""Atomic file writing: a crash or a full disk leaves the complete old file or the complete new one."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from sb_dqn.errors import ConfigurationError

if sys.platform != "win32":
    import fcntl

STALE_SECONDS = 60.0
"""Younger temporary files are never removed: their writer may not hold its lock yet."""


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary binary file that is renamed to `path` at the end of the block, or deleted on an error.

    The temporary file is in the folder of `path` (a rename is atomic only inside one file system). It is fsynced
    before the rename and the folder after it, so that a crash leaves the old file or the new one. Parent folders are
    created. Temporary files of killed writers are removed by the next write to the same path.

    A library that writes by name, not to an open file, writes to `Path(file.name)`.

    Raises:
        OSError: the folder is not writable, or the disk is full; the old file is unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        try:
            with temporary.open("x+b") as file:  # not by tempfile, so that the permissions follow the umask
                _lock(file)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _fsync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        fix = "Choose a writable folder with enough free space."
        raise OSError(
            error.errno or 0, f"cannot write {path}: {reason}. Existing files are unchanged. {fix}"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Writes a text file in UTF-8 by `atomic_write`."""
    with atomic_write(path) as file:
        file.write(text.encode())


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Returns rows as the text of a CSV file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def read_yaml(path: Path, otherwise: object = None) -> Any:
    """Reads a mapping from a YAML file; returns `otherwise` if there is no file.

    Raises:
        ConfigurationError: the file is not YAML, or contains no mapping.
    """
    import yaml

    if not path.is_file():
        return otherwise
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(
            f"{path} must be YAML, got something else ({reason}). Restore it from a copy."
        ) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} must be a YAML mapping, got {content!s:.80}. Restore it from a copy.")
    return content


def write_yaml(path: Path, content: object) -> None:
    """Writes `plain_data(content)` to a YAML file by `atomic_write`."""
    import yaml

    write_text(path, yaml.safe_dump(plain_data(content), sort_keys=False, default_flow_style=None, width=120))


def yaml_line(value: object) -> str:
    """Returns plain data as YAML in one line."""
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")


def plain_data(value: object) -> Any:
    """Returns `value` as plain data for YAML, with tuples as lists; other objects and keys are converted to text."""
    if isinstance(value, Mapping):
        return {_plain(key): plain_data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(inner) for inner in value]
    return _plain(value)


def _plain(value: object) -> Any:
    return value if value is None or type(value) in (bool, int, float, str) else str(value)


def _lock(file: BinaryIO) -> bool:
    """Takes the writer's lock of an open file; returns False if another process has it, and on Windows (no `flock`)."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_stale(path: Path) -> None:
    """Removes the temporary files of writers of `path` that no longer run."""
    for stale in path.parent.iterdir():
        if not (stale.name.startswith(f".{path.name}.") and stale.name.endswith(".tmp")):
            continue
        with contextlib.suppress(OSError):
            if time.time() - stale.stat().st_mtime > STALE_SECONDS:
                with stale.open("rb") as file:
                    abandoned = _lock(file)
                if abandoned:
                    stale.unlink()


def _fsync_folder(folder: Path) -> None:
    # some systems cannot open or sync a folder; the file itself is already on the disk
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
