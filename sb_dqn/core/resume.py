"""The state of an interrupted `learn`: everything that the next step depends on, apart from the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch

from sb_dqn.checkpoint import SegmentedRows, WrittenBlocks
from sb_dqn.envs.streams.open import Stream
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Rows, Slot


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


def stream_state(stream: Stream, rows: Rows | None, trust: bool) -> tuple[dict[str, Any] | None, str]:
    """Returns the state of a stream between two ticks and "", or None and the reason why it has none."""
    if rows is None:
        return None, "the environment stopped in the middle of a step"
    try:
        return stream.state_dict(trust), ""
    except NoEnvState as why:
        return None, str(why)


def tick_state(rows: Rows) -> dict[str, Any]:
    """Returns a tick as plain data, without its infos, which callbacks have already read."""
    slots = [{one.name: getattr(slot, one.name) for one in fields(Slot)} for slot in rows.slots]
    return {"action": rows.action, "slots": slots, "stepped": rows.stepped, "steps": rows.steps, "extra": rows.extra}


def tick_of(state: Mapping[str, Any], stream: Stream) -> Rows:
    """Returns the tick that `tick_state` turned into plain data.

    Raises:
        CheckpointError: it does not fit the stream.
    """
    slots = tuple(Slot(**slot) for slot in state["slots"])
    if not 1 <= len(slots) <= 2 or state["stepped"].shape != (stream.num_envs,):
        raise CheckpointError(
            f"the last step in the file must have 1 or 2 arrivals of {stream.num_envs} lanes, got {len(slots)} of "
            f"{state['stepped'].shape}. Use the same number of environments."
        )
    for slot in slots:
        _check(slot, stream)
    return Rows(state["action"], slots, state["stepped"], int(state["steps"]), extra=dict(state["extra"]))


def _check(slot: Slot, stream: Stream) -> None:
    saved = {key: (array.shape, array.dtype) for key, array in slot.obs.items()}
    flags = [(array.shape, array.dtype) for array in (slot.terminal, slot.last, slot.valid)]
    lanes = (stream.num_envs,)
    fits = saved == stream.leaves and flags == [(lanes, np.dtype(np.bool_))] * 3
    fits = fits and slot.reward.shape == slot.score.shape == lanes and (slot.mask is not None) is stream.has_masks
    if not fits:
        raise CheckpointError(
            f"the last step in the file must have {stream.leaves}, as the environment, got {saved}. Use an environment with the same "
            f"spaces."
        )


def process_state() -> dict[str, Any]:
    """Returns the state of torch's global generators, of the CPU and of each CUDA device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_process_state(state: Mapping[str, Any]) -> None:
    """Restores torch's global generators; ignores CUDA devices that are not present."""
    torch.set_rng_state(state["cpu"])
    for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, device)


def later_seed(seed: int, steps: int) -> int:
    """Returns a seed for the episodes after `steps` env steps, which differ from those at the start of the run."""
    return int(np.random.SeedSequence((seed, steps)).generate_state(1)[0]) % 2**30
