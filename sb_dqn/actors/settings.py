"""Settings of the constructor keyword `actors`: who steps the environments, and where."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sb_dqn.checks import check_choice, check_float, check_int, check_keys, set_fields
from sb_dqn.errors import ConfigurationError

OVERLAPPED = "overlapped"
MAX_WORKERS, MAX_LANES = 256, 4096
"""Processes or groups, and environments, that a file may start without a question."""
TEXT = re.compile(r"(?P<kind>overlapped|process|ray):(?P<number>\d+)(x(?P<lanes>\d+))?(@(?P<address>.+))?")


class MadeLanes(ABC):
    """Settings of actors that make their environments, k lanes each."""

    lanes: int

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of groups or processes."""

    @property
    def num_envs(self) -> int:
        """Number of lanes of all actors."""
        return self.count * self.lanes

    @property
    def lane_slices(self) -> list[slice]:
        """Lanes of each actor, within those of the model."""
        return [slice(first, first + self.lanes) for first in range(0, self.num_envs, self.lanes)]


@dataclass(frozen=True)
class OverlappedActors(MadeLanes):
    r"""Groups of lanes that step in turn: while one group's actions are selected, the others step.

    The lanes of a model are those of all groups, :math:`B = g k`. Each group steps in a thread of its own, also during the
    updates; the networks and the exploration are the model's. A run is a function of its seed and a full checkpoint continues
    bit for bit. For all lanes in one group use "overlapped".

    Args:
        groups: number of groups g, >= 2.
        lanes: environments per group k, >= 1.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    groups: int = 2
    lanes: int = 1

    def __post_init__(self) -> None:
        if self.groups == 1:
            raise ConfigurationError(
                "OverlappedActors's groups must be an integer >= 2, got 1. Use actors='overlapped'."
            )
        set_fields(
            self,
            groups=check_int("OverlappedActors's groups", self.groups, 2),
            lanes=check_int("OverlappedActors's lanes", self.lanes, 1),
        )

    @property
    def count(self) -> int:
        return self.groups


@dataclass(frozen=True)
class ProcessActors(MadeLanes):
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
        set_fields(
            self,
            processes=check_int("ProcessActors's processes", self.processes, 1),
            lanes=check_int("ProcessActors's lanes", self.lanes, 1),
            order=check_choice("ProcessActors's order", self.order, ("lane", "arrival")),
            ahead=check_int("ProcessActors's ahead", self.ahead, 1),
            chunk=check_int("ProcessActors's chunk", self.chunk, 1),
        )
        if self.step_timeout is not None:
            timeout = check_float("ProcessActors's step_timeout", self.step_timeout, 0.0, above=True)
            set_fields(self, step_timeout=timeout)

    @property
    def count(self) -> int:
        return self.processes


@dataclass(frozen=True)
class RayActors(ProcessActors):
    """Actors on a cluster of machines, by Ray; otherwise as `ProcessActors`.

    Without an address a cluster of this machine alone starts with the first `learn` and ends with the model; it listens on the
    loopback interface and wants a token, for which Ray 2.52 or newer is needed. Actors whose process
    or node ends are started again. Rows travel through Ray's object store; images from other machines are compressed.

    Args:
        processes: number of actors n, >= 1.
        lanes, ahead, step_timeout: see `ProcessActors`. An actor counts as hung after `step_timeout` for each step of a chunk.
        order: "arrival" or "lane", see `ProcessActors`.
        chunk: steps of each lane per chunk, >= 1; more than for processes, since each call costs about a millisecond.
        address: "auto" for the cluster that runs on this machine, "HOST:PORT" of a cluster's head, or None to start one.
        num_cpus: CPUs of each actor, above 0; Ray places actors where as many are free.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    order: Literal["lane", "arrival"] = "arrival"
    chunk: int = 50
    address: str | None = None
    num_cpus: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, num_cpus=check_float("RayActors's num_cpus", self.num_cpus, 0.0, above=True))
        address: Any = self.address
        if address is not None and not (isinstance(address, str) and address):
            raise ConfigurationError(
                f"RayActors's address must be 'auto', 'HOST:PORT' or None, got {self.address!r}. Use for example 'auto'."
            )


Actors = Literal["overlapped"] | OverlappedActors | ProcessActors | None
ALLOWED = (
    "None, 'overlapped', OverlappedActors(groups, lanes=k), ProcessActors(n, lanes=k), RayActors(n, lanes=k), or a short form such "
    "as 'overlapped:2x4' (groups x k), 'process:8', 'process:8x2' (n x k) or 'ray:16@auto'"
)


def as_actors(value: object) -> Actors:
    """Returns the settings for the keyword `actors`.

    Args:
        value: None, "overlapped", an `OverlappedActors`, `ProcessActors` or `RayActors`, its short form "overlapped:GxK",
            "process:N", "process:NxK", "ray:N" or "ray:NxK@ADDRESS", or a dict of its arguments, such as a YAML file holds
            (`OverlappedActors` with `groups`, `RayActors` with `address` or `num_cpus`).

    Raises:
        ConfigurationError: anything else.
    """
    if value is None or isinstance(value, (OverlappedActors, ProcessActors)):
        return value
    if isinstance(value, Mapping) and "groups" in value:
        check_keys("actors", value, tuple(OverlappedActors.__dataclass_fields__))
        return OverlappedActors(**value)
    if isinstance(value, Mapping):
        kind = RayActors if value.keys() & {"address", "num_cpus"} else ProcessActors
        check_keys("actors", value, tuple(kind.__dataclass_fields__))
        if "processes" not in value:
            raise ConfigurationError(f"actors must have 'processes', got {dict(value)!r}. Add their number.")
        return kind(**value)
    if value == OVERLAPPED:
        return "overlapped"
    found = TEXT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found["address"] and found["kind"] != "ray"):
        raise ConfigurationError(f"actors must be {ALLOWED}, got {value!r}. Use one of them.")
    numbers = int(found["number"]), int(found["lanes"] or 1)
    if found["kind"] == "ray":
        return RayActors(*numbers, address=found["address"])
    return ProcessActors(*numbers) if found["kind"] == "process" else OverlappedActors(*numbers)


def asks_too_much(actors: Actors) -> bool:
    """Returns True for more workers or lanes than a file may start without a question."""
    return isinstance(actors, MadeLanes) and (actors.count > MAX_WORKERS or actors.num_envs > MAX_LANES)
