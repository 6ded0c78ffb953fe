"""Run folders: creation, the files with the configuration and the result, and the log of a resumed run."""

from __future__ import annotations

import csv
import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import Any

import click

from sb_dqn.files import csv_text, read_yaml, write_text, write_yaml
from sb_dqn.logger.csv_sink import CLOCK
from sb_dqn.remotes.files import BEST as BEST
from sb_dqn.remotes.files import CONFIG as CONFIG
from sb_dqn.remotes.files import CURVE as CURVE
from sb_dqn.remotes.files import MODEL as MODEL
from sb_dqn.remotes.files import RESULT
from sb_dqn.types import Kwargs, Settings
from sb_dqn.version import __version__

_PACKAGES = ("torch", "gymnasium", "ale-py", "numpy")


def new_run_folder(root: Path, algorithm: str, env_id: str) -> Path:
    """Creates and returns `root/<algorithm>_<env>_<n>`, n one above the highest existing number.

    Raises:
        click.ClickException: `root` is not writable.
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
            except FileExistsError:  # another run started between listing and creation
                number += 1
    except OSError as error:
        raise click.ClickException(
            f"{root} must be writable, got: {error.strerror}. Choose another folder with --folder."
        ) from None


def versions() -> dict[str, str]:
    """Returns the version of each package without importing it."""
    return {"sb_dqn": __version__, "python": platform.python_version()} | {
        name: metadata.version(name) for name in _PACKAGES
    }


def machine(device: Any) -> Kwargs:
    """Returns the processor, its number of logical cores, the threads of torch, and the name of a CUDA device."""
    import torch

    facts = {"cpu": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads(), "device": str(device)}
    return facts | ({"gpu": torch.cuda.get_device_name(device)} if torch.device(device).type == "cuda" else {})


def _processor() -> str:
    """Returns the name of the processor, on Linux with its model."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r"^model name\s*:\s*(.+)$", text, re.M):
            return match[1].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """Returns the commit of a checkout of this library, with "-dirty" if it was changed; None if it was installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    # `git describe --dirty` writes the index of the checkout, and leaves it locked if it is killed
    options = ("--porcelain=v2", "--branch", "--untracked-files=no")
    words = ["git", "--no-optional-locks", "-C", str(root), "status", *options]
    with suppress(OSError):
        lines = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
        if lines:
            dirty = any(not line.startswith("#") for line in lines)
            return lines[0].removeprefix("# branch.oid ")[:10] + "-dirty" * dirty
    return None


def write_config(folder: Path, config: Settings) -> None:
    """Writes `config.yaml` atomically.

    Versions, platform, command and start time are added unless `config` has them.
    """
    origin = {
        "versions": versions(),
        **({"commit": found} if (found := commit()) else {}),
        "platform": platform.platform(),
        "command": shlex.join(["sb-dqn", *sys.argv[1:]]),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    write_yaml(folder / CONFIG, {**config, **origin, **config})


def read_config(folder: Path) -> Kwargs:
    """Reads `config.yaml`; returns an empty dict if the file does not exist."""
    return dict(read_yaml(folder / CONFIG, {}))


@dataclass(frozen=True)
class FinalEvaluation:
    """Size and cost of the evaluation after training."""

    episodes: int
    """Requested episodes; fewer have finished if the limit on their env steps was reached."""
    steps: int
    """Env steps over all lanes."""
    seconds: float


@dataclass(frozen=True)
class Result:
    """Content of `result.yaml`."""

    steps: int
    """Env steps over all lanes so far."""
    seconds: float
    """Training time including intermediate evaluations, over all parts of the run."""
    returns: tuple[float, ...] = ()
    """Returns of the finished greedy episodes of the final evaluation; empty while the run is not finished."""
    evaluation: FinalEvaluation | None = None
    """None while the run is not finished, and in files of earlier versions."""
    cpu_seconds: float = 0.0
    """Time of all threads of the process within `seconds`, which other work on the machine does not change; 0: unknown."""

    @property
    def finished(self) -> bool:
        """True once the run has been trained to the end and evaluated, even with zero episodes."""
        return bool(self.returns) or self.evaluation is not None

    @property
    def mean(self) -> float | None:
        """Mean return of the final episodes; None while none has finished."""
        return fmean(self.returns) if self.returns else None

    @property
    def unfinished_episodes(self) -> int:
        """Episodes of the final evaluation that had not finished at the step limit."""
        return 0 if self.evaluation is None else self.evaluation.episodes - len(self.returns)


def write_result(folder: Path, result: Result) -> None:
    """Writes `result.yaml` atomically."""
    content: Kwargs = {
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "cpu_seconds": round(result.cpu_seconds, 3),
        "returns": result.returns,
    }
    if (evaluation := result.evaluation) is not None:
        content["evaluation"] = {**asdict(evaluation), "seconds": round(evaluation.seconds, 3)}
    write_yaml(folder / RESULT, content)


def read_result(folder: Path) -> Result:
    """Reads `result.yaml`; returns a result of 0 steps if the file does not exist."""
    content = read_yaml(folder / RESULT, {"steps": 0, "seconds": 0.0, "returns": ()})
    fields = content.get("evaluation")
    evaluation = None if fields is None else FinalEvaluation(**fields)
    return Result(
        content["steps"], content["seconds"], tuple(content["returns"]), evaluation, content.get("cpu_seconds", 0.0)
    )


def evaluation_keywords(config: Settings) -> Kwargs:
    """Returns the keywords of the evaluation environment: those of training, with its own over them."""
    return {**config["env_kwargs"], **config.get("eval_env_kwargs", {})}


def drop_rows(path: Path, step: int) -> None:
    """Drops the rows of `progress.csv` that were written after env step `step`; incomplete rows go too."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    if not rows or CLOCK not in rows[0]:
        return
    column = rows[0].index(CLOCK)
    kept = [row for row in rows[1:] if len(row) == len(rows[0]) and (not row[column] or float(row[column]) <= step)]
    write_text(path, csv_text([rows[0], *kept]))
