"""Actors that act by a function of the rows, without networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from sb_dqn.acting.actor import Actor
from sb_dqn.acting.collector import ActingControl
from sb_dqn.rng import Generators
from sb_dqn.types import ActionArray, Rows
from tests.toys import toy_policy


class ToySelector:
    """Selects actions by `toy_policy`; keeps the rows that it was called with."""

    exploration = recurrent_state = None

    def __init__(self, selected: Callable[[Rows], Any]) -> None:
        self.selected = selected
        self.extras: dict[str, Any] = {}

    def select(self, rows: Rows, observe: Any, uniform: bool = False) -> ActionArray:
        self.selected(rows)
        return np.asarray(toy_policy(rows))


def toy_actor(stream: Any, selected: Callable[[Rows], Any] = id) -> Actor:
    """Returns an actor of a stream that calls `selected` with the rows before each action."""
    selector: Any = ToySelector(selected)
    return Actor(stream, selector)


def toy_control(seed: int) -> ActingControl:
    """Returns a control with a seed of the first reset."""
    nothing: Any = None
    return ActingControl(bool, nothing, nothing, Generators(0, torch.device("cpu")), seed)
