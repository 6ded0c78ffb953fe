"""The file `result.yaml` of a run: steps, training time, and returns of the final evaluation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from sb_dqn.files import read_yaml, write_yaml

RESULT = "result.yaml"


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
    content: dict[str, Any] = {
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
