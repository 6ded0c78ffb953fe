"""The folder of a run: where everything of it lies, and how to find it again."""

from __future__ import annotations

import csv
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from sb_dqn.cli.train.checkpoint_timer import checkpoints
from sb_dqn.cli.train.result_file import write_whole
from sb_dqn.logger.csv_sink import CLOCK
from sb_dqn.version import __version__

CONFIG, MODEL, BEST, CURVE = "config.yaml", "model.zip", "best_model.zip", "curve.png"
_PACKAGES = ("torch", "gymnasium", "ale-py", "numpy")


def new_run_folder(root: Path, algorithm: str, env_id: str) -> Path:
    """Make and return `root/<algorithm>_<env>_<n>`, n one above the highest that is there.

    Raises:
        click.ClickException: nothing can be written under `root`.
    """
    stem = f"{algorithm.lower()}_{re.sub(r'[^A-Za-z0-9.-]+', '-', env_id).strip('-')}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        taken = [re.fullmatch(re.escape(stem) + r"_(\d+)", path.name) for path in root.iterdir()]
        number = max((int(match[1]) for match in taken if match), default=0) + 1
        while True:
            try:
                folder = root / f"{stem}_{number}"
                folder.mkdir()
                return folder
            except FileExistsError:  # another run began between the look and the making
                number += 1
    except OSError as error:
        raise click.ClickException(
            f"cannot write to {root}: {error.strerror}; name another folder with --folder"
        ) from None


def versions() -> dict[str, str]:
    """Version by package, without importing any of them."""
    return {"sb_dqn": __version__, "python": platform.python_version()} | {
        name: metadata.version(name) for name in _PACKAGES
    }


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write `config.yaml`, whole or not at all: `config` and, where it lacks them, with what, how and when it was begun."""
    import yaml

    circumstances = {
        "versions": versions(),
        "platform": platform.platform(),
        "command": shlex.join(["sb-dqn", *sys.argv[1:]]),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    known = _writable({**config, **circumstances, **config})
    write_whole(folder / CONFIG, yaml.safe_dump(known, sort_keys=False, default_flow_style=None, width=120))


def read_config(folder: Path) -> dict[str, Any]:
    """What `write_config` wrote; empty where there is none."""
    import yaml

    path = folder / CONFIG
    return dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.is_file() else {}


@dataclass(frozen=True)
class SavedRun:
    """A model on disk and the run that made it."""

    model: Path
    folder: Path
    config: Mapping[str, Any]
    """Of the run; empty where the zip lies outside a run's folder."""


def find_run(path: Path, *, best: bool = False, unfinished: bool = False) -> SavedRun:
    """The model that `path` means: a zip (with or without its ending), or the folder of a run.

    Args:
        path: what the user gave.
        best: the best of the evaluations.
        unfinished: a run that was killed will do, which has full checkpoints but no model yet.

    Raises:
        click.BadParameter: there is nothing of the kind; says what is there.
    """
    if path.is_dir():
        model = path / (BEST if best else MODEL)
        if model.is_file() or (unfinished and checkpoints(path)):
            return SavedRun(model, path, read_config(path))
        zips = sorted(str(found) for found in path.rglob("*.zip"))
        raise click.BadParameter(f"no {model.name} in {path}; {_offer(zips)}", param_hint="RUN")
    for model in (path, path.with_name(path.name + ".zip")):
        if model.is_file():
            return SavedRun(model, model.parent, read_config(model.parent))
    runs = sorted(str(found.parent) for found in Path("runs").glob(f"*/{CONFIG}"))
    raise click.BadParameter(f"{path} does not exist; {_offer(runs)}", param_hint="RUN")


def drop_rows(path: Path, step: int) -> None:
    """Drops the rows of `progress.csv` that were written after env step `step`, whole or not at all."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    if not rows or CLOCK not in rows[0]:
        return
    at = rows[0].index(CLOCK)
    kept = [row for row in rows[1:] if len(row) == len(rows[0]) and (not row[at] or float(row[at]) <= step)]
    shorter = path.with_name(f"{path.name}.new")
    with shorter.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([rows[0], *kept])
    shorter.replace(path)


def _offer(found: list[str]) -> str:
    return "there are: " + ", ".join(found[-5:]) if found else "nothing that could be meant was found nearby"


def _writable(value: Any) -> Any:
    """`value` as YAML can write it safely: what is not plain data becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): _writable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(inner) for inner in value]
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
