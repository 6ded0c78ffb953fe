"""What came of a run: `result.yaml` in its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RESULT = "result.yaml"


@dataclass(frozen=True)
class Result:
    """What came of a run, as it stands in `result.yaml`."""

    steps: int
    """Environment steps over all lanes so far."""
    seconds: float
    """Of training, evaluations on the way included, over all parts of the run."""
    returns: tuple[float, ...] = ()
    """Of the greedy episodes at the end; empty while the run is not finished."""


def write_result(folder: Path, result: Result) -> None:
    """Write `result.yaml`, whole or not at all."""
    import yaml

    content = {"steps": result.steps, "seconds": round(result.seconds, 3), "returns": list(result.returns)}
    write_whole(folder / RESULT, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))


def read_result(folder: Path) -> Result:
    """What `write_result` wrote; nothing done where there is none."""
    import yaml

    path = folder / RESULT
    if not path.is_file():
        return Result(0, 0.0)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Result(content["steps"], content["seconds"], tuple(content["returns"]))


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
