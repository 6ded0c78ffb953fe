"""Collector whose environments step in threads while the learner learns from the rows before."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy.typing as npt

from sb_dqn.acting.inline_collector import KIND, Collector
from sb_dqn.acting.tick_state import tick_of, tick_state
from sb_dqn.actors.lane_groups import among_all_lanes
from sb_dqn.envs.streams.base import Stream
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError, EnvironmentFault
from sb_dqn.types import ActionArray, Rows

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

    Environments gain from it that wait or release Python's lock: worker processes, C++ environments, networks, sleep.

    Args:
        stream: what the lanes are; with one group its stream.
        groups: all lanes, or parts of them.
        env_seed: seed of the first reset; None: the environments' own.
    """

    kind: ClassVar[str | None] = "overlapped"

    def __init__(self, stream: Any, groups: Sequence[LaneGroup], env_seed: int | None) -> None:
        super().__init__(stream, groups[0].choose, env_seed)
        self.groups = groups
        self._turn = 0

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        """Yields one tick after another.

        Args:
            first: not None after `restore`: continues there; None resets all lanes.
        """
        if first is None:
            seed, self.env_seed, self._turn = self.env_seed, None, 0
            for group in self.groups:
                group.begin(None if seed is None else seed + group.lanes.start)
        while True:
            group = self.groups[self._turn]
            rows = group.take()
            self._turn = (self._turn + 1) % len(self.groups)
            self.latest = rows if len(self.groups) == 1 else among_all_lanes(rows, group.lanes, self.stream.num_envs)
            yield self.latest

    def state(self, settled: bool, trust: bool) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
        if not settled or self.latest is None:
            return None, None, "the environment stopped in the middle of a step"
        try:
            groups = [group.state(trust) for group in self.groups]
        except (NoEnvState, EnvironmentFault) as why:
            return None, None, str(why)
        return {}, {KIND: self.kind, "turn": self._turn, "groups": groups}, ""

    def restore(self, tick: Mapping[str, Any] | None, stream: Mapping[str, Any] | None, trust: bool) -> Rows | None:
        if tick is None or stream is None:
            return None
        self.check_kind(stream)
        if len(stream["groups"]) != len(self.groups):
            raise CheckpointError(
                f"actors must have groups={len(stream['groups'])} as in the full checkpoint, got {len(self.groups)}. Load it with "
                f"the same actors."
            )
        for group, state in zip(self.groups, stream["groups"], strict=True):
            group.load_state(state, trust)
        self._turn = int(stream["turn"])
        rows: Rows | None = self.groups[self._turn].rows
        return rows

    def close(self) -> None:
        for group in self.groups:
            group.forget()


class LaneGroup:
    """Some lanes of a model, and a thread that steps them.

    Args:
        stream: their environments.
        lanes: their numbers within the model.
        choose: from a tick of the group to the `[k, ...]` actions for its open rows.
        extras: returns the arrays `[k, ...]` that are stored with the latest actions.
    """

    def __init__(
        self,
        stream: Stream,
        lanes: slice,
        choose: Callable[[Rows], ActionArray],
        extras: Callable[[], dict[str, npt.NDArray[Any]]],
    ) -> None:
        self.stream = stream
        self.lanes = lanes
        self.choose = choose
        self.extras = extras
        self.rows: Rows | None = None
        """The tick that is read next; None while it is under way."""
        self._extras: dict[str, npt.NDArray[Any]] = {}
        self._step: Future[Rows] | None = None
        self._thread: StepThread | None = None

    def begin(self, seed: int | None) -> None:
        """Resets the environments; a step under way is waited for, and its rows are dropped."""
        self.forget()
        self.rows = self.stream.begin(seed)

    def settle(self) -> Rows:
        """Waits for the step under way, if there is one, and returns the rows to read next.

        Raises:
            EnvironmentFault: the environment raised.
        """
        if self.rows is None:
            assert self._step is not None
            rows = self._step.result()
            rows.extra = self._extras
            self.rows, self._step = rows, None
        return self.rows

    def take(self) -> Rows:
        """Returns the rows to read next; before that, selects the actions that follow them and starts the next step."""
        rows = self.settle()
        action = self.choose(rows)
        self._extras = self.extras()
        if self._thread is None:
            self._thread = StepThread()
        self._step, self.rows = self._thread.submit(partial(self.stream.step, action)), None
        return rows

    def forget(self) -> None:
        """Waits for the step under way and drops it."""
        if self._step is not None:
            self._step.exception()
        self._step = self.rows = None

    def state(self, trust: bool) -> dict[str, Any]:
        """Returns rows and environments between two steps.

        Raises:
            NoEnvState: the environments have no state of their own.
            EnvironmentFault: the environment raised.
        """
        rows = self.settle()
        infos = [{key: info[key] for key in KEPT_INFOS if key in info} for info in rows.make_infos()]
        return {"tick": tick_state(rows), "infos": infos, "stream": self.stream.state_dict(trust)}

    def load_state(self, state: Mapping[str, Any], trust: bool) -> None:
        """Restores a `state`."""
        self.stream.load_state_dict(state["stream"], trust)
        rows, infos = tick_of(state["tick"], self.stream), list(state["infos"])
        rows.make_infos = lambda: [dict(info) for info in infos]
        self.rows = rows


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
