"""Settings of the constructor keyword `actors`: who steps the environments, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sb_dqn.checks import check_choice, check_float, check_int, check_keys
from sb_dqn.errors import ConfigurationError

OVERLAPPED = "overlapped"
TEXT = re.compile(r"process:(?P<processes>\d+)(x(?P<lanes>\d+))?")


@dataclass(frozen=True)
class ProcessActors:
    r"""Actors in processes of their own: each steps its own environments with a copy of the weights.

    The lanes of a model are those of all processes, :math:`B = n k`. A process collects `chunk` steps of its lanes with one
    version of the weights, writes them to shared memory, and is at most `ahead` chunks ahead of the learner: then it waits, so
    the ratio of updates to env steps is exactly that of `train_freq` and `gradient_steps`.

    Args:
        processes: number of processes n, >= 1.
        lanes: environments per process k, >= 1.
        order: "lane": the learner reads chunk i of all processes before chunk i + 1 of any; a run is a function of its seed and
            a full checkpoint continues bit for bit. "arrival": it reads the chunks that are there, so that no process waits
            for a slow one; runs differ.
        ahead: chunks of a process that the learner has not finished reading, >= 1. With 1 processes wait while the learner
            reads; 2 lets both work at once.
        chunk: steps of each lane per chunk, >= 1. More costs less communication, and the weights are older.
        step_timeout: seconds without a step after which a process counts as hung and is replaced, above 0; None: never.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    processes: int
    lanes: int = 1
    order: Literal["lane", "arrival"] = "lane"
    ahead: int = 2
    chunk: int = 8
    step_timeout: float | None = 60.0

    def __post_init__(self) -> None:
        check_int("ProcessActors's processes", self.processes, 1)
        check_int("ProcessActors's lanes", self.lanes, 1)
        check_choice("ProcessActors's order", self.order, ("lane", "arrival"))
        check_int("ProcessActors's ahead", self.ahead, 1)
        check_int("ProcessActors's chunk", self.chunk, 1)
        if self.step_timeout is not None:
            check_float("ProcessActors's step_timeout", self.step_timeout, 0.0, above=True)

    @property
    def num_envs(self) -> int:
        """Number of lanes of all processes."""
        return self.processes * self.lanes


Actors = Literal["overlapped"] | ProcessActors | None
ALLOWED = "None, 'overlapped', ProcessActors(n, lanes=k), or its short form 'process:8' or 'process:8x2' (n x k)"


def as_actors(value: Any) -> Actors:
    """Returns the settings for the keyword `actors`.

    Args:
        value: None, "overlapped", a `ProcessActors`, its short form "process:N" or "process:NxK", or a dict of its arguments,
            such as a YAML file holds.

    Raises:
        ConfigurationError: anything else.
    """
    if value is None or isinstance(value, ProcessActors):
        return value
    if isinstance(value, Mapping):
        check_keys("actors", value, tuple(ProcessActors.__dataclass_fields__))
        if "processes" not in value:
            raise ConfigurationError(f"actors must have 'processes', got {dict(value)!r}. Add their number.")
        return ProcessActors(**value)
    if value == OVERLAPPED:
        return "overlapped"
    found = TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ConfigurationError(f"actors must be {ALLOWED}, got {value!r}. Use one of them.")
    return ProcessActors(int(found["processes"]), int(found["lanes"] or 1))
