"""A tick as plain data: what a collector writes to a checkpoint and continues from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from sb_dqn.envs.streams.open import Stream
from sb_dqn.errors import CheckpointError
from sb_dqn.types import Rows, Slot


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
