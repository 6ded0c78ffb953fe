"""Collector whose environments step in threads while the learner learns from the rows before."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np

from sb_dqn.acting.actor import Actor
from sb_dqn.acting.collector import KIND, ActingControl, Collector
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError, EnvironmentFault
from sb_dqn.types import Array, Info, Rows, Slot, State

GRACE = 5.0
"""Seconds that a step under way may take at the exit of the process."""
Calls = SimpleQueue[tuple[Callable[[], Rows], Future[Rows]] | None]
"""Functions to run, with the futures of their results; None ends the thread."""
KEPT_INFOS = ("is_success",)
"""Entries of the infos of a tick under way that a checkpoint keeps."""


class OverlappedCollector(Collector):
    """Selects the actions of a tick, lets the environment step in a thread, and yields that tick meanwhile.

    So the updates of tick t run while tick t + 1 is made, by actions selected before these updates. With several groups of
    lanes a tick holds the lanes of one group, in turn: while its actions are selected, the other groups step. The order of all
    events is fixed, and a run is a function of its seed.

    Where the frames are in a buffer on the networks' device, actions are selected once the tick is stored: a network reads their
    stacks from the buffer instead of getting them from the host. The actions are the same.

    Environments gain from it that wait or release Python's lock: worker processes, C++ environments, networks, sleep.

    Args:
        stream: what the lanes are; with one group its stream.
        groups: all lanes, or parts of them.
        control: how to act.
    """

    kind: ClassVar[str | None] = "overlapped"

    def __init__(self, stream: Any, groups: Sequence[LaneGroup], control: ActingControl) -> None:
        super().__init__(stream, control)
        self.groups = groups
        self._turn = 0
        # the group whose next step is to be started, and whether its actions are uniform
        self._next_step: tuple[LaneGroup, bool] | None = None
        for group in groups:
            group.actor.stream.copies = True
        if control.observe is not None:
            self.proceed = self._start_step
            for group in groups:
                group.actor.observe = partial(control.observe, np.arange(group.lanes.start, group.lanes.stop))

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        if first is None:
            seed, self._turn = self.take_seed(), 0
            for group in self.groups:
                group.begin(None if seed is None else seed + group.lanes.start)
        while True:
            group = self.groups[self._turn]
            group.settle()
            rows = group.actor.rows
            assert rows is not None  # all groups have begun
            self._next_step = group, self.control.prepare()
            if self.proceed is None:
                self._start_step()
            self._turn = (self._turn + 1) % len(self.groups)
            self._latest = rows if len(self.groups) == 1 else among_all_lanes(rows, group.lanes, self.stream.num_envs)
            yield self._latest

    def _start_step(self) -> None:
        """Starts the step that follows the latest tick."""
        assert self._next_step is not None
        group, uniform = self._next_step
        group.start(uniform)

    def state(self, settled: bool, trust: bool) -> tuple[State | None, State | None, str]:
        if not settled or self._latest is None:
            return None, None, "the environment stopped in the middle of a step"
        try:
            groups = [group.state(trust) for group in self.groups]
        except (NoEnvState, EnvironmentFault) as why:
            return None, None, str(why)
        return {}, {KIND: self.kind, "turn": self._turn, "groups": groups}, ""

    def load_state(self, tick: State, stream: State, trust: bool) -> Rows | None:
        if len(stream["groups"]) != len(self.groups):
            raise CheckpointError(
                f"actors must have groups={len(stream['groups'])} as in the full checkpoint, got {len(self.groups)}. Load it with "
                f"the same actors."
            )
        for group, state in zip(self.groups, stream["groups"], strict=True):
            group.load_state(state, trust)
        self._turn = int(stream["turn"])
        return self.groups[self._turn].actor.rows

    def saved_parts(self) -> dict[str, Any]:
        if len(self.groups) == 1:
            return self.groups[0].actor.saved_parts()
        return {
            f"{name} of group {number}": part
            for number, group in enumerate(self.groups)
            for name, part in group.actor.saved_parts().items()
        }

    def close(self) -> None:
        for group in self.groups:
            group.drop_step()


class LaneGroup:
    """The actor of some lanes of a model, and a thread that steps them.

    Args:
        actor: the actor.
        lanes: their numbers within the model.
    """

    def __init__(self, actor: Actor, lanes: slice) -> None:
        self.actor = actor
        self.lanes = lanes
        self._step: Future[Rows] | None = None
        self._thread: StepThread | None = None

    def begin(self, seed: int | None) -> None:
        """Resets the environments; a step under way is waited for, and its rows are dropped."""
        self.drop_step()
        self.actor.begin(seed)

    def settle(self) -> None:
        """Waits for the step under way, if there is one: the rows to read next are the latest of the actor.

        Raises:
            EnvironmentFault: the environment raised.
        """
        if self._step is not None:
            self._step.result()
            self._step = None

    def start(self, uniform: bool) -> None:
        """Selects the actions that follow the latest rows, and starts the next step."""
        action = self.actor.select(uniform)
        if self._thread is None:
            self._thread = StepThread()
        self._step = self._thread.submit(partial(self.actor.step_environments, action))

    def drop_step(self) -> None:
        """Waits for the step under way and drops it."""
        if self._step is not None:
            self._step.exception()
        self._step = self.actor.rows = None

    def state(self, trust: bool) -> State:
        """Returns rows and environments between two steps.

        Raises:
            NoEnvState: the environments have no state of their own.
            EnvironmentFault: the environment raised.
        """
        self.settle()
        rows, state = self.actor.rows, self.actor.state(trust)
        infos = [] if rows is None else rows.make_infos()
        return {**state, "infos": [{key: info[key] for key in KEPT_INFOS if key in info} for info in infos]}

    def load_state(self, state: State, trust: bool) -> None:
        """Restores a `state`."""
        rows, infos = self.actor.load_state(state, trust), list(state["infos"])
        rows.make_infos = lambda: [dict(info) for info in infos]


def among_all_lanes(rows: Rows, lanes: slice, num_lanes: int) -> Rows:
    """Returns a tick of a model's lanes that holds those of one group; the others are empty.

    Args:
        rows: the tick of the group, with arrays `[k, ...]`.
        lanes: the group's lanes within the model.
        num_lanes: B, of the model.
    """

    def to_all_lanes(values: Array) -> Array:
        out = np.zeros((num_lanes, *values.shape[1:]), values.dtype)
        out[lanes] = values
        return out

    def infos() -> list[Info]:
        all_lanes: list[dict[str, Any]] = [{} for _ in range(num_lanes)]
        all_lanes[lanes] = rows.make_infos() or all_lanes[lanes]
        return all_lanes

    def slot_of_all(slot: Slot) -> Slot:
        arrays = {name: to_all_lanes(getattr(slot, name)) for name in ("reward", "score", "terminal", "last", "valid")}
        obs = {key: to_all_lanes(values) for key, values in slot.obs.items()}
        return Slot(obs, **arrays, full=False, mask=None if slot.mask is None else to_all_lanes(slot.mask))

    departed = np.zeros(num_lanes, np.bool_)
    departed[lanes] = rows.action is not None
    return replace(
        rows,
        action=None if rows.action is None else to_all_lanes(rows.action),
        slots=tuple(slot_of_all(slot) for slot in rows.slots),
        stepped=to_all_lanes(rows.stepped),
        make_infos=infos,
        extra={name: to_all_lanes(values) for name, values in rows.extra.items()},
        departed=departed,
    )


class StepThread:
    """A thread that runs one function after another; it ends with this object, and with the process."""

    def __init__(self) -> None:
        calls: Calls = SimpleQueue()
        self._calls = calls
        thread = threading.Thread(target=_run, args=(calls,), name="sb_dqn-step", daemon=True)
        thread.start()
        weakref.finalize(self, _end, calls, thread)

    def submit(self, call: Callable[[], Rows]) -> Future[Rows]:
        """Runs `call` in the thread; returns its future result."""
        future: Future[Rows] = Future()
        self._calls.put((call, future))
        return future


def _end(calls: Calls, thread: threading.Thread) -> None:
    """Ends a thread after the step under way: a process that exits in the middle of a C++ environment aborts."""
    calls.put(None)
    if thread is not threading.current_thread():  # the last reference may be dropped there
        thread.join(GRACE)


def _run(calls: Calls) -> None:
    while (item := calls.get()) is not None:
        call, future = item
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        del item, call, future  # so that nothing of a model is kept until the next call
