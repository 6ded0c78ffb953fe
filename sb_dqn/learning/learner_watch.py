"""Watch over the learners of a run: ends one that hangs, on which the others would wait for hours."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from sb_dqn.types import Settings

BEAT_SECONDS = 10.0
"""Time between two signs of life of a learner."""
HANG_SECONDS = 300.0
"""Time without a sign of life, or without work, after which a learner counts as hung."""
HUNG = 70
"""Exit status of a learner that ends itself."""


class LearnerWatch(threading.Thread):
    """Thread of a learner that gives signs of life, and looks for those of the others.

    A learner hangs if its process gives no sign (it is stopped, or holds Python's lock), or if the thread that called `learn`
    uses no processor time (Linux) and does not wait for other learners. In the first case the others on its machine kill it, in
    the second it ends itself; so its connections close, on which the others wait.

    Args:
        rank: number of this learner.
        members: "host" and "pid" of each learner.
        store: key-value store of the process group.
        failed: key under which the first failure is described.
    """

    def __init__(self, rank: int, members: Sequence[Settings], store: Any, failed: str) -> None:
        super().__init__(name="sb_dqn-watch", daemon=True)
        self.rank = rank
        self.members = members
        self.waiting = False
        """True while this learner waits for the others."""
        self.found = ""
        """The learner that hangs, once one does."""
        self._store = store.clone()  # a connection of its own, which no other thread waits for
        self._store.set(_key(rank), "")
        self._failed = failed
        self._clock: int | None = None
        """Processor time of the thread that learns, where the system counts it."""
        if sys.platform == "linux":
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._used = 0.0
        self._over = threading.Event()
        self._beats = [b""] * len(members)
        self._since = [time.monotonic()] * len(members)
        self._answered = time.monotonic()

    def end(self) -> None:
        """Ends the thread."""
        self._over.set()

    def run(self) -> None:
        threading.Thread(target=self._exchange, name="sb_dqn-beats", daemon=True).start()
        before = time.monotonic()
        while not self._over.wait(BEAT_SECONDS):
            self._look_at_own()
            now = time.monotonic()
            if now - before > HANG_SECONDS / 2:  # this process was stopped, perhaps with all others
                self._since = [now] * len(self._since)
            before = now
            if now - self._answered > 2 * BEAT_SECONDS:  # the first learner holds the store, or torchrun does
                self._since[1:] = [now] * (len(self._since) - 1)
            for rank, since in enumerate(self._since):
                if now - since > HANG_SECONDS and not self._over.is_set():
                    self._end_hung(rank)

    def _look_at_own(self) -> None:
        used = None if self._clock is None else time.clock_gettime(self._clock)
        if self.waiting or used is None or used != self._used:
            self._used, self._since[self.rank] = used or 0.0, time.monotonic()

    def _exchange(self) -> None:
        """Exchanges signs of life, in a thread of its own, since a store whose process is stopped does not answer."""
        beat = 0
        while not self._over.wait(BEAT_SECONDS):
            beat += 1
            with contextlib.suppress(RuntimeError):  # the process of the store has ended
                self._store.set(_key(self.rank), str(beat))
                for rank in range(len(self.members)):
                    found = self._store.get(_key(rank))
                    if rank != self.rank and found != self._beats[rank]:
                        self._beats[rank], self._since[rank] = found, time.monotonic()
                if self._store.check([self._failed]):
                    self.found = self._store.get(self._failed).decode(errors="replace")
                self._answered = time.monotonic()

    def _end_hung(self, rank: int) -> None:
        self.found = f"learner {rank}, which made no progress for {HANG_SECONDS:.0f} seconds"
        if rank == self.rank:
            self._describe()
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            time.sleep(2 * BEAT_SECONDS)  # the others read the reason, which the process of the first learner may hold
        elif sys.platform != "win32" and self.members[rank]["host"] == socket.gethostname():
            with contextlib.suppress(OSError):
                os.kill(self.members[rank]["pid"], signal.SIGKILL)
            self._describe()
            self._over.set()
            return
        print(f"sb_dqn: learner {self.rank} ends because of {self.found}", file=sys.__stderr__, flush=True)
        os._exit(HUNG)

    def _describe(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._store.compare_set(self._failed, "", self.found)


def _key(rank: int) -> str:
    return f"sb_dqn/beat/{rank}"
