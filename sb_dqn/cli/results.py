"""What came of a run: `result.yaml` in its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULT = "result.yaml"


@dataclass(frozen=True)
class FinalEvaluation:
    """How the episodes after a training were played."""

    episodes: int
    """That were asked for; fewer have finished where their env steps reached the bound."""
    steps: int
    """Env steps over all lanes."""
    seconds: float


@dataclass(frozen=True)
class Result:
    """What came of a run, as it stands in `result.yaml`."""

    steps: int
    """Environment steps over all lanes so far."""
    seconds: float
    """Of training, evaluations on the way included, over all parts of the run."""
    returns: tuple[float, ...] = ()
    """Of the greedy episodes at the end that finished; empty while the run is not finished."""
    evaluation: FinalEvaluation | None = None
    """None while the run is not finished, and in files of earlier versions."""

    @property
    def finished(self) -> bool:
        """True once the run has been trained to the end and evaluated, be it with no episode."""
        return bool(self.returns) or self.evaluation is not None

    @property
    def unfinished_episodes(self) -> int:
        """Episodes of the evaluation that had not finished at its bound."""
        return 0 if self.evaluation is None else self.evaluation.episodes - len(self.returns)


def write_result(folder: Path, result: Result) -> None:
    """Write `result.yaml`, whole or not at all."""
    import yaml

    content: dict[str, Any] = {
        "steps": result.steps,
        "seconds": round(result.seconds, 3),
        "returns": list(result.returns),
    }
    if (played := result.evaluation) is not None:
        content["evaluation"] = {**asdict(played), "seconds": round(played.seconds, 3)}
    write_whole(folder / RESULT, yaml.safe_dump(content, sort_keys=False, default_flow_style=None))


def read_result(folder: Path) -> Result:
    """What `write_result` wrote; nothing done where there is none."""
    import yaml

    path = folder / RESULT
    if not path.is_file():
        return Result(0, 0.0)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    played = content.get("evaluation")
    evaluation = None if played is None else FinalEvaluation(**played)
    return Result(content["steps"], content["seconds"], tuple(content["returns"]), evaluation)


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
