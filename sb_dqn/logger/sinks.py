"""Sinks of the logger: a table, JSON lines, and TensorBoard."""

from __future__ import annotations

import abc
import json
import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from sb_dqn.errors import ConfigurationError, printable
from sb_dqn.logger.entries import Media, included

if TYPE_CHECKING:
    from sb_dqn.types import Kwargs, Settings


def open_for_append(path: str | os.PathLike[str]) -> TextIO:
    """Opens the text file of a sink, which closes it."""
    return open(path, "a", encoding="utf-8", newline="", errors="backslashreplace")


class KVWriter(abc.ABC):
    """Sink for the entries of a `dump`; base class of custom sinks."""

    @abc.abstractmethod
    def write(self, key_values: Kwargs, key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the entries; numbers are Python numbers, tensors of one or more dimensions NumPy arrays."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the files of the sink."""


class SeqWriter(abc.ABC):
    """Sink for lines of text: the messages of `log`, `info`, `warn` ..."""

    @abc.abstractmethod
    def write_sequence(self, sequence: list[str]) -> None:
        """Writes the words as one line."""


class HumanOutputFormat(KVWriter, SeqWriter):
    """Table of keys and values, grouped by the part of the key before the slash.

    Args:
        filename_or_file: a path (appended to), a text file, or None for `sys.stdout`, looked up at each write so that the
            table respects a redirection, for instance by a progress bar.
        max_length: characters of a key or a value; longer ones are truncated.
    """

    def __init__(self, filename_or_file: str | os.PathLike[str] | TextIO | None, max_length: int = 36) -> None:
        self.max_length = max_length
        self.own_file = False
        if isinstance(filename_or_file, (str, os.PathLike)):
            self._file: TextIO | None = open_for_append(filename_or_file)
            self.own_file = True
        elif filename_or_file is None or filename_or_file is sys.stdout:
            self._file = None
        elif callable(getattr(filename_or_file, "write", None)):
            self._file = filename_or_file
        else:
            raise ConfigurationError(
                f"filename_or_file must be a path, a text file or None, got {filename_or_file!r}. Pass one of these."
            )

    @property
    def file(self) -> TextIO:
        """Current output file."""
        return sys.stdout if self._file is None else self._file

    def write(self, key_values: Kwargs, key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the table; nothing if every entry is excluded."""
        rows = self._rows(included(key_values, key_excluded, "stdout", "log"))
        if rows:
            self.file.write(_table(rows))
            self.file.flush()

    def write_sequence(self, sequence: list[str]) -> None:
        """Writes the words with spaces between them."""
        self.file.write(printable(" ".join(sequence)) + "\n")
        self.file.flush()

    def close(self) -> None:
        """Closes the file if this sink opened it."""
        if self.own_file and self._file is not None:
            self._file.close()

    def _rows(self, entries: Settings) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        group = ""
        used: set[tuple[str, str]] = set()
        for key in sorted(entries, key=lambda key: (key.partition("/")[0] if "/" in key else "", key)):
            shown = printable(key)
            tag, slash, name = shown.partition("/")
            if slash and tag + slash != group:
                group = tag + slash
                rows.append((self._truncate(group), ""))
            label = self._truncate(f"   {name}" if slash else shown)
            if (group, label) in used:  # keys that are equal when truncated: this one is not truncated
                label = f"   {name}" if slash else shown
            used.add((group, label))
            rows.append((label, self._truncate(printable(_format(entries[key])))))
        return rows

    def _truncate(self, text: str) -> str:
        return text if len(text) <= self.max_length else text[: self.max_length - 3] + "..."


def _table(rows: Sequence[tuple[str, str]]) -> str:
    key_width, value_width = max(len(key) for key, _ in rows), max(len(value) for _, value in rows)
    rule = "-" * (key_width + value_width + 7)
    lines = [f"| {key:<{key_width}} | {value:<{value_width}} |" for key, value in rows]
    return "\n".join([rule, *lines, rule]) + "\n"


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:<8.3g}"
    return f"array{value.shape}" if is_array(value) else str(value)


def is_array(value: object) -> bool:
    """Returns True if a value converted by `plain` is a NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


class JSONOutputFormat(KVWriter):
    """One JSON object per line, appended to the file; NaN and infinity become null."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.file = open_for_append(filename)

    def write(self, key_values: Kwargs, key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
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


class TensorBoardOutputFormat(KVWriter):
    """Writes numbers as scalars, text as text, arrays as histograms, and videos, figures, images and hyperparameters."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        # imported here, since importing TensorBoard and torch takes seconds
        from torch.utils.tensorboard.writer import SummaryWriter

        self.writer: Any = SummaryWriter(log_dir=os.fspath(folder))

    def write(self, key_values: Kwargs, key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes the entries at this step."""
        for key, value in included(key_values, key_excluded, "tensorboard").items():
            self._write_one(key, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Closes the event file."""
        self.writer.close()

    def _write_one(self, key: str, value: Any, step: int) -> None:
        match value:
            case int() | float():
                self.writer.add_scalar(key, float(value), step)
            case str():
                self.writer.add_text(key, value, step)
            case Media():
                value.write(self.writer, key, step)
            case _ if is_array(value):
                finite = value[sys.modules["numpy"].isfinite(value)]  # TensorBoard cannot bin NaN and infinity
                if finite.size:
                    self.writer.add_histogram(key, finite, step)
