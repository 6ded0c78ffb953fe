"""Ticks that hold one group of lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sb_dqn.types import Rows, Slot


def among_all_lanes(rows: Rows, lanes: slice, num_lanes: int) -> Rows:
    """Returns a tick of a model's lanes that holds those of one group; the others are empty.

    Args:
        rows: the tick of the group, with arrays `[k, ...]`.
        lanes: the group's lanes within the model.
        num_lanes: B, of the model.
    """

    def widened(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        out = np.zeros((num_lanes, *values.shape[1:]), values.dtype)
        out[lanes] = values
        return out

    def infos() -> list[dict[str, Any]]:
        all_lanes: list[dict[str, Any]] = [{} for _ in range(num_lanes)]
        all_lanes[lanes] = rows.make_infos() or all_lanes[lanes]
        return all_lanes

    def slot_of_all(slot: Slot) -> Slot:
        arrays = {name: widened(getattr(slot, name)) for name in ("reward", "score", "terminal", "last", "valid")}
        obs = {key: widened(values) for key, values in slot.obs.items()}
        return Slot(obs, **arrays, full=False, mask=None if slot.mask is None else widened(slot.mask))

    departed = np.zeros(num_lanes, np.bool_)
    departed[lanes] = rows.action is not None
    return replace(
        rows,
        action=None if rows.action is None else widened(rows.action),
        slots=tuple(slot_of_all(slot) for slot in rows.slots),
        stepped=widened(rows.stepped),
        make_infos=infos,
        extra={name: widened(values) for name, values in rows.extra.items()},
        departed=departed,
    )
