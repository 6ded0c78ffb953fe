"""CSV log file `progress.csv`: one row per dump, one column per key; new keys add columns."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb_dqn.errors import printable
from sb_dqn.files import atomic_write, csv_text
from sb_dqn.logger.entries import included
from sb_dqn.logger.sinks import KVWriter, is_array, open_for_append

if TYPE_CHECKING:
    from sb_dqn.types import Kwargs

CLOCK = "time/total_timesteps"
"""Column that distinguishes a resumed run from a new one."""


class CSVOutputFormat(KVWriter):
    """Appends rows to a CSV file; a new key adds a column, which is empty in earlier rows.

    An existing file is continued if it shares a key with the first new row and its last `time/total_timesteps` (if both
    have this key) is not larger; otherwise it is renamed to `progress.1.csv`.
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.path = Path(filename)
        self.keys: list[str] = []
        self._started = False
        self.file = open_for_append(self.path)

    def write(self, key_values: Kwargs, key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes one row."""
        entries = {printable(key): value for key, value in included(key_values, key_excluded, "csv").items()}
        if not entries:
            return
        if not self._started:
            self._start(entries)
        if new := sorted(entries.keys() - set(self.keys)):
            self._rewrite([*self.keys, *new])
        csv.writer(self.file, lineterminator="\n").writerow([_cell(entries.get(key)) for key in self.keys])
        self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def _start(self, entries: Kwargs) -> None:
        """Continues or renames an existing file, before the first row is written."""
        rows = self._read()
        if rows and not _continues(rows, entries):
            self.file.close()
            os.replace(self.path, _free_name(self.path))
            rows = []
        if rows:
            self.keys = rows[0]
            self._rewrite(self.keys)  # completes the last line after a killed run
        self._started = True

    def _read(self) -> list[list[str]]:
        with open(self.path, encoding="utf-8", newline="", errors="replace") as file:
            text = file.read()
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        if rows and not text.endswith("\n") and len(rows[-1]) < len(rows[0]):
            rows[-1].pop()  # a killed run may have truncated its last number
        return rows

    def _rewrite(self, keys: list[str]) -> None:
        """Rewrites the file with the header `keys`, atomically by rename."""
        rows = self._read()[1:] if self.path.exists() else []
        text = csv_text([keys, *([*row, *[""] * (len(keys) - len(row))] for row in rows)])
        with atomic_write(self.path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            self.file.close()
        self.keys = keys
        self.file = open_for_append(self.path)


def _continues(rows: list[list[str]], entries: Kwargs) -> bool:
    """Returns True if `entries` belong to the run that wrote `rows`."""
    header = rows[0]
    last = dict(zip(header, rows[-1], strict=False))
    if len(set(header)) != len(header) or not set(header) & entries.keys():
        return False
    try:
        return len(rows) == 1 or float(last[CLOCK]) <= float(entries[CLOCK])
    except (KeyError, ValueError, TypeError):
        return True  # one of the two has no clock: only the header is compared


def _free_name(path: Path) -> Path:
    """Returns the first of `progress.1.csv`, `progress.2.csv`, ... that does not exist."""
    number = 1
    while (free := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    return free


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return printable(
            value.replace("\r\n", "\n").replace("\r", "\n")
        )  # Python before 3.13 writes a bare \r without quotes
    return json.dumps(value.tolist()) if is_array(value) else value
