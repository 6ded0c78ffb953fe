"""What a full checkpoint holds beyond the model: all that the very next step depends on."""

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
    """A `learn` between two ticks.

    The tick, whose rows are stored and whose updates are done, comes with the environment's state or not at all: without
    that state the next rows cannot follow on it.
    """

    session: dict[str, Any]
    """Log and callbacks."""
    parts: dict[str, Any]
    """State by part, what is kept for learning apart."""
    experience: dict[str, torch.Tensor]
    """Replay or rollout; what lies in `strips` apart."""
    tick: dict[str, Any] | None
    stream: dict[str, Any] | None
    why: str
    """Why there is no state of the environment; empty where there is."""
    process: dict[str, Any]
    """torch's global generators, for modules of the user's that draw from them (dropout)."""
    rng: dict[str, Any] = field(default_factory=dict)
    """The model's generators; in the file among the model's parts."""
    trusted: bool = False
    """Whether what is pickled in the file may be unpickled; said while loading."""
    strips: SegmentedRows | None = None
    """While saving: the rows that go into segments."""
    written: WrittenBlocks = field(default_factory=WrittenBlocks)
    """While loading: the segments that the rows came from."""


def stream_state(stream: Stream, rows: Rows | None, trust: bool) -> tuple[dict[str, Any] | None, str]:
    """The state of a stream that stands between two ticks, or None and the reason."""
    if rows is None:
        return None, "the environment stopped in the middle of a step"
    try:
        return stream.state_dict(trust), ""
    except NoEnvState as why:
        return None, str(why)


def tick_state(rows: Rows) -> dict[str, Any]:
    """A tick as plain data; its infos, which callbacks have seen, are left out."""
    slots = [{one.name: getattr(slot, one.name) for one in fields(Slot)} for slot in rows.slots]
    return {"action": rows.action, "slots": slots, "stepped": rows.stepped, "steps": rows.steps, "extra": rows.extra}


def tick_of(state: Mapping[str, Any], stream: Stream) -> Rows:
    """The tick that `tick_state` took apart.

    Raises:
        CheckpointError: it is not one of this stream.
    """
    slots = tuple(Slot(**slot) for slot in state["slots"])
    if not 1 <= len(slots) <= 2 or state["stepped"].shape != (stream.num_envs,):
        raise CheckpointError(f"the last step in the file has {len(slots)} arrivals of {stream.num_envs} lanes")
    for slot in slots:
        _check(slot, stream)
    return Rows(state["action"], slots, state["stepped"], int(state["steps"]), extra=dict(state["extra"]))


def _check(slot: Slot, stream: Stream) -> None:
    given = {key: (array.shape, array.dtype) for key, array in slot.obs.items()}
    flags = [(array.shape, array.dtype) for array in (slot.terminal, slot.last, slot.valid)]
    lanes = (stream.num_envs,)
    fits = given == stream.leaves and flags == [(lanes, np.dtype(np.bool_))] * 3
    fits = fits and slot.reward.shape == slot.score.shape == lanes and (slot.mask is not None) is stream.has_masks
    if not fits:
        raise CheckpointError(f"the last step in the file has {given}, the environment gives {stream.leaves}")


def process_state() -> dict[str, Any]:
    """torch's global generators, of the CPU and of each CUDA device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def set_process_state(state: Mapping[str, Any]) -> None:
    """Puts them back; those of devices that are not here are left out."""
    torch.set_rng_state(state["cpu"])
    for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(saved, device)


def later_seed(seed: int, steps: int) -> int:
    """A seed for episodes that begin anew after `steps` env steps: other ones than those that the run began with."""
    return int(np.random.SeedSequence((seed, steps)).generate_state(1)[0]) % 2**30
