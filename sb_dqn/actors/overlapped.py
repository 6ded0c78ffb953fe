"""Collector whose environments step in a thread while the learner learns from the rows before."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

from sb_dqn.core.collector import KIND, Collector
from sb_dqn.core.resume import tick_state
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import EnvironmentFault
from sb_dqn.types import Rows

GRACE = 5.0
"""Seconds that a step under way may take at the exit of the process."""
Calls = SimpleQueue[tuple[Callable[[], Rows], Future[Rows]] | None]
"""Functions to run, with the futures of their results; None ends the thread."""
KEPT_INFOS = ("is_success",)
"""Entries of the infos of a tick under way that a checkpoint keeps."""


class OverlappedCollector(Collector):
    """Selects the actions of a tick, lets the environment step in a thread, and yields that tick meanwhile.

    So the updates of tick t run while tick t + 1 is made, by actions selected before these updates. Everything else is as
    with the plain collector: the order of all events is fixed, and a run is a function of its seed.

    Environments gain from it that wait or release Python's lock: worker processes, C++ environments, networks, sleep.
    """

    kind: ClassVar[str | None] = "overlapped"
    _thread: StepThread | None = None
    _step: Future[Rows] | None = None

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        """Yields one tick after another, while the next one is under way.

        Args:
            first: a tick that was under way when a checkpoint was written; None resets the environment.
        """
        if first is None:
            self._forget()
            first = self.begin()
        rows = first
        if self._thread is None:
            self._thread = StepThread()
        while True:
            action = self.choose(rows)
            extras = self.extras()
            self._step = self._thread.submit(partial(self.stream.step, action))
            self._extras = extras
            self.latest = rows
            yield rows
            rows = self.settle()
            self._step = None

    def settle(self) -> Rows:
        """Waits for the step under way and returns its rows.

        Raises:
            EnvironmentFault: the environment raised.
        """
        assert self._step is not None
        rows = self._step.result()
        rows.extra = self._extras
        return rows

    def _forget(self) -> None:
        """Waits for the step of an earlier `learn`, whose rows nobody reads."""
        if self._step is not None:
            self._step.exception()
            self._step = None

    def state(self, settled: bool, trust: bool) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
        if not settled or self._step is None:
            return None, None, "the environment stopped in the middle of a step"
        try:
            rows = self.settle()
            stream = self.stream.state_dict(trust)
        except (NoEnvState, EnvironmentFault) as why:
            return None, None, str(why)
        infos = [{key: info[key] for key in KEPT_INFOS if key in info} for info in rows.make_infos()]
        return tick_state(rows), {KIND: self.kind, "infos": infos, **stream}, ""

    def restore(self, tick: Mapping[str, Any] | None, stream: Mapping[str, Any] | None, trust: bool) -> Rows | None:
        rows = super().restore(tick, stream, trust)
        if rows is not None and stream is not None:
            infos = list(stream["infos"])
            rows.make_infos = lambda: [dict(info) for info in infos]
        return rows

    def close(self) -> None:
        self._forget()


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
