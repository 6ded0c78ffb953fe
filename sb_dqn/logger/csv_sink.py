"""`progress.csv`: one row per dump, a column per key, columns added as keys appear, no row ever lost."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from sb_dqn.logger.sinks import KVWriter, append_to, is_array
from sb_dqn.logger.values import included

CLOCK = "time/total_timesteps"
"""The column that tells a run that goes on from one that begins anew."""


class CSVOutputFormat(KVWriter):
    """Appends rows to a CSV file; a new key becomes a new column, empty in the rows before it.

    A file that lies there already is continued if it shares a key with the first row and its clock
    (`time/total_timesteps`, where both have it) has not run further; otherwise it is moved aside to `progress.1.csv`.
    """

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.path = Path(filename)
        self.keys: list[str] = []
        self._begun = False
        self.file = append_to(self.path)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Writes one row."""
        entries = included(key_values, key_excluded, "csv")
        if not entries:
            return
        if not self._begun:
            self._begin(entries)
        if new := sorted(entries.keys() - set(self.keys)):
            self._rewrite([*self.keys, *new])
        csv.writer(self.file, lineterminator="\n").writerow([_cell(entries.get(key)) for key in self.keys])
        self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

    def _begin(self, entries: dict[str, Any]) -> None:
        """Settles, on the first row, what becomes of a file that lay there before."""
        rows = self._read()
        if rows and not _continues(rows, entries):
            self.file.close()
            os.replace(self.path, _free_name(self.path))
            rows = []
        if rows:
            self.keys = rows[0]
            self._rewrite(self.keys)  # mends a last line that a killed run left without its end
        self._begun = True

    def _read(self) -> list[list[str]]:
        with open(self.path, encoding="utf-8", newline="", errors="replace") as file:
            text = file.read()
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        if rows and not text.endswith("\n") and len(rows[-1]) < len(rows[0]):
            rows[-1].pop()  # a killed run left its last line, and so its last number, without an end
        return rows

    def _rewrite(self, keys: list[str]) -> None:
        """The file anew under a longer header, by rename: a crash leaves the old rows or all of them."""
        rows = self._read()[1:] if self.path.exists() else []
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            with open(temporary, "w", encoding="utf-8", newline="", errors="backslashreplace") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(keys)
                writer.writerows([*row, *[""] * (len(keys) - len(row))] for row in rows)
            self.file.close()
            os.replace(temporary, self.path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self.keys = keys
        self.file = append_to(self.path)


def _continues(rows: list[list[str]], entries: dict[str, Any]) -> bool:
    header, last = rows[0], dict(zip(rows[0], rows[-1], strict=False))
    if len(set(header)) != len(header) or not set(header) & entries.keys():
        return False
    try:
        return len(rows) == 1 or float(last[CLOCK]) <= float(entries[CLOCK])
    except (KeyError, ValueError, TypeError):
        return True  # one of the two has no clock: the header alone decides


def _free_name(path: Path) -> Path:
    number = 1
    while (free := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    return free


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\r\n", "\n").replace("\r", "\n")  # Python before 3.13 writes a bare \r without quotes
    return json.dumps(value.tolist()) if is_array(value) else value
