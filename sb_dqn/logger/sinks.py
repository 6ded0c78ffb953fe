"""Where log entries go as text: a table for people, and JSON, one object per line."""

from __future__ import annotations

import abc
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from sb_dqn.errors import ConfigurationError
from sb_dqn.logger.values import included


def append_to(path: str | os.PathLike[str]) -> TextIO:
    """A text file to which a sink adds; it stays open until the sink is closed."""
    return open(path, "a", encoding="utf-8", newline="", errors="backslashreplace")


class KVWriter(abc.ABC):
    """A sink for the entries of one `dump`; the base class of a user's own sinks."""

    @abc.abstractmethod
    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the entries; numbers are plain Python numbers, larger tensors are numpy arrays."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes what the sink opened."""


class SeqWriter(abc.ABC):
    """A sink for lines of text, the messages of `log`, `info`, `warn` ..."""

    @abc.abstractmethod
    def write_sequence(self, sequence: list[str]) -> None:
        """Writes the words as one line."""


class HumanOutputFormat(KVWriter, SeqWriter):
    """A table of keys and values, grouped by the part of the key before the slash.

    Args:
        filename_or_file: a path (appended to), a text file, or None for standard output as it is when something is
            written, so that a progress bar which redirects it keeps its place.
        max_length: of a key or a value; longer ones are cut.
    """

    def __init__(self, filename_or_file: str | os.PathLike[str] | TextIO | None, max_length: int = 36) -> None:
        self.max_length = max_length
        self.own_file = False
        if isinstance(filename_or_file, (str, os.PathLike)):
            self._file: TextIO | None = append_to(filename_or_file)
            self.own_file = True
        elif filename_or_file is None or filename_or_file is sys.stdout:
            self._file = None
        elif callable(getattr(filename_or_file, "write", None)):
            self._file = filename_or_file
        else:
            raise ConfigurationError(f"{filename_or_file!r} is not a path or a text file")

    @property
    def file(self) -> TextIO:
        """The file that is written to now."""
        return sys.stdout if self._file is None else self._file

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the table; nothing where every entry is excluded."""
        rows = self._rows(included(key_values, key_excluded, "stdout", "log"))
        if rows:
            self.file.write(_table(rows))
            self.file.flush()

    def write_sequence(self, sequence: list[str]) -> None:
        """Writes the words with spaces between them."""
        self.file.write(" ".join(sequence) + "\n")
        self.file.flush()

    def close(self) -> None:
        """Closes the file if this sink opened it."""
        if self.own_file and self._file is not None:
            self._file.close()

    def _rows(self, entries: Mapping[str, Any]) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        group, used = "", set[tuple[str, str]]()
        for key in sorted(entries, key=lambda key: (key.partition("/")[0] if "/" in key else "", key)):
            tag, slash, name = key.partition("/")
            if slash and tag + slash != group:
                group = tag + slash
                rows.append((self._cut(group), ""))
            shown = self._cut(f"   {name}" if slash else key)
            if (group, shown) in used:  # two long keys that look the same when cut: this one stays whole
                shown = f"   {name}" if slash else key
            used.add((group, shown))
            rows.append((shown, self._cut(_shown(entries[key]))))
        return rows

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.max_length else text[: self.max_length - 3] + "..."


def _table(rows: Sequence[tuple[str, str]]) -> str:
    key_width, value_width = max(len(key) for key, _ in rows), max(len(value) for _, value in rows)
    rule = "-" * (key_width + value_width + 7)
    lines = [f"| {key:<{key_width}} | {value:<{value_width}} |" for key, value in rows]
    return "\n".join([rule, *lines, rule]) + "\n"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:<8.3g}"
    return f"array{value.shape}" if is_array(value) else str(value)


def is_array(value: Any) -> bool:
    """Whether a plain value is a numpy array (larger than one number by now)."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


class JSONOutputFormat(KVWriter):
    """One JSON object per line, appended to the file; NaN and infinity, which JSON lacks, become null."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.file = append_to(filename)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes one line."""
        entries = included(key_values, key_excluded, "json")
        if entries:
            self.file.write(json.dumps({key: _jsonable(value) for key, value in entries.items()}, default=str) + "\n")
            self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()


def _jsonable(value: Any) -> Any:
    if is_array(value):
        value = value.tolist()
    if isinstance(value, list):
        return [_jsonable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
