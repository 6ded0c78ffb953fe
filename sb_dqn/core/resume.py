"""The state of an interrupted `learn`: everything that the next step depends on, apart from the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from sb_dqn.checkpoint import SegmentedRows, WrittenBlocks


@dataclass(frozen=True)
class ResumeState:
    """State of a `learn` between two ticks.

    The tick, whose rows are stored and whose updates are done, is present only together with the state of the environment:
    without that state the next rows cannot follow it.
    """

    session: dict[str, Any]
    """State of log and callbacks."""
    parts: dict[str, Any]
    """State of each part of `run_parts`."""
    experience: dict[str, torch.Tensor]
    """State of the replay or rollout, without the columns in `strips`."""
    tick: dict[str, Any] | None
    stream: dict[str, Any] | None
    why: str
    """Reason why the state of the environment is missing; empty if it is present."""
    process: dict[str, Any]
    """torch's global generators, for modules that draw from them (dropout)."""
    rng: dict[str, Any] = field(default_factory=dict)
    """The model's generators; in the file they are one of the model's parts."""
    trusted: bool = False
    """True if pickled parts of the file may be unpickled (`load(trust=True)`)."""
    strips: SegmentedRows | None = None
    """Rows to write to segments; only while saving."""
    written: WrittenBlocks = field(default_factory=WrittenBlocks)
    """Segments that the rows came from; only while loading."""

    @property
    def learner(self) -> tuple[int, int]:
        """Rank of the learner, and number of learners."""
        rank, size = self.session.get("learners", (0, 1))
        return int(rank), int(size)


def process_state() -> dict[str, Any]:
    """Returns the state of torch's global generators, of the CPU and of each CUDA device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_process_state(state: Mapping[str, Any]) -> None:
    """Restores torch's global generators; ignores CUDA devices that are not present."""
    torch.set_rng_state(state["cpu"])
    for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, device)
