"""Collector whose lanes are stepped by workers: requests chunks, sends weights, reads finished chunks, replaces dead workers."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sb_dqn.acting.collector import KIND, ActingControl, Collector
from sb_dqn.actors.chunks import FinishedChunk, Report
from sb_dqn.actors.processes import Failure, GetState, Message, SetState, StateAnswer, WorkerProcesses
from sb_dqn.actors.settings import ProcessActors
from sb_dqn.actors.worker import ChunkRequest, Seeds
from sb_dqn.errors import CheckpointError, EnvironmentFault, user_stacklevel
from sb_dqn.rng import later_seed
from sb_dqn.types import Rows

PATIENCE = 5
"""Ends of a worker without a finished chunk in between after which the run ends."""


class WorkerCollector(Collector):
    """Reads the rows that workers have made, chunk by chunk.

    A worker gets the request for its next chunk, with the weights of that moment, when the learner has read one of its chunks to
    the end, so at most `ahead` chunks of it are under way or unread. With `order="lane"` a chunk of every worker is read at a
    time, with "arrival" those that are finished.

    Args:
        stream: what the lanes are.
        workers: the processes.
        settings: reading order, and chunks ahead.
        write_weights: copies the current weights into an array.
        control: how to act.
        learner: number of the learner.
    """

    kind: ClassVar[str | None] = "workers"

    def __init__(
        self,
        stream: Any,
        workers: WorkerProcesses,
        settings: ProcessActors,
        write_weights: Callable[[npt.NDArray[np.float32]], None],
        control: ActingControl,
        learner: int,
    ) -> None:
        super().__init__(stream, control)
        self.workers = workers
        self.lanes = settings.lane_slices
        self.reading_order = settings.order
        self.ahead = settings.ahead
        self.learner = learner
        self._write_weights = write_weights
        self._everyone = range(len(self.lanes))
        self._clear()
        self._generation = 0  # of seeds: each start of lanes has its own
        self.restarts = 0
        """Number of workers that were replaced."""
        self._ends = [0] * len(self.lanes)
        self._warned: set[str] = set()
        self._rates: deque[tuple[float, int]] = deque(maxlen=100)
        self._staleness: deque[int] = deque(maxlen=100)

    def _clear(self) -> None:
        self._next_index = [0] * len(self.lanes)
        self._open_requests: list[deque[ChunkRequest]] = [deque() for _ in self.lanes]
        self._unread: list[deque[Report]] = [deque() for _ in self.lanes]
        self._updates_of: dict[tuple[int, int], int] = {}
        self._new_seeds: dict[int, Seeds] = {}  # of workers that begin with their next request
        self._newest_weights = 0
        self._reading: dict[int, FinishedChunk] = {}
        self._tick = 0
        self._waiting = False

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        """Yields one tick after another, see `Collector`.

        Raises:
            EnvironmentFault: a worker ended again and again.
        """
        if first is None:
            self._latest = None
            self._begin()
        ticks = self.workers.layout.ticks
        while True:
            if not self._reading:
                self._reading = self._finished_chunks()
                self._tick = 0
            while self._tick < ticks:
                self._tick += 1
                self._latest = self.workers.chunks.rows(self._tick - 1, list(self._reading.values()))
                yield self._latest
            done, self._reading = list(self._reading), {}
            place = self._publish()
            for worker in done:
                self._request_chunk(worker, place)

    # -- requests

    def _begin(self) -> None:
        """Resets all lanes, by new processes where the old ones are in the middle of something."""
        self._settle_or_end()
        self._clear()
        if not self.workers.running:
            self.workers.start(self._everyone)
        seed = self.take_seed()
        place = self._publish()
        for worker in self._everyone:
            self._new_seeds[worker] = self._seeds(worker, None if seed is None else seed + self.lanes[worker].start)
            for _ in range(self.ahead):
                self._request_chunk(worker, place)
        self._generation += 1

    def _settle_or_end(self) -> None:
        if self.workers.running and not self._waiting:
            self.settle()
        elif self.workers.running:  # interrupted in the middle of a message
            self.workers.start(self._everyone)

    def _seeds(self, worker: int, env_seed: int | None) -> Seeds:
        return Seeds(env_seed, (self.control.rng.seed, self.learner, worker, self._generation))

    def _publish(self) -> int:
        """Writes the current weights to a free place and returns it; the place of the newest if none is free."""
        used = {request.weights for requests in self._open_requests for request in requests}
        copies = len(self.workers.weights)
        free = [place for place in range(copies) if place not in used and place != self._newest_weights]
        if free:
            self._write_weights(self.workers.weights[free[0]])
            self._newest_weights = free[0]
        return self._newest_weights

    def _request_chunk(self, worker: int, weights: int) -> None:
        index = self._next_index[worker]
        self._next_index[worker] += 1
        control, uniform = self.control, self.control.prepare()
        self._updates_of[worker, index] = control.count_updates()
        exploration = None if control.exploration is None else control.exploration.state_dict()
        self._send(worker, ChunkRequest(index, index % self.ahead, weights, uniform, exploration))

    def _send(self, worker: int, request: ChunkRequest) -> None:
        request = request._replace(seeds=self._new_seeds.pop(worker, None))
        self._open_requests[worker].append(request)
        self.workers.send(worker, request)

    # -- finished chunks

    def _finished_chunks(self) -> dict[int, FinishedChunk]:
        """Waits for the chunks to read next: one of every worker, or those of the workers that have finished one."""
        while True:
            missing = [worker for worker in self._everyone if not self._unread[worker]]
            if not missing or (self.reading_order == "arrival" and len(missing) < len(self.lanes)):
                break
            self._receive(missing)
        for worker in self._everyone if self.reading_order == "arrival" else ():
            while self._open_requests[worker] and self.workers.has_message(worker):  # those that are there already
                self._receive([worker])
        finished = {}
        updates = self.control.count_updates()
        for worker in self._everyone:
            if self._unread[worker]:
                report = self._unread[worker].popleft()
                finished[worker] = FinishedChunk(self.lanes[worker], report.chunk % self.ahead, report)
                self._staleness.append(updates - self._updates_of.pop((worker, report.chunk), updates))
        self._rates.append((monotonic(), sum(chunk.size for chunk in finished.values()) * self.workers.layout.ticks))
        return finished

    def _receive(self, workers: Sequence[int]) -> None:
        self._waiting = True
        messages = self.workers.receive(workers)
        self._waiting = False
        for worker, message in messages:
            self._take(worker, message)

    def _take(self, worker: int, message: Message) -> None:
        if isinstance(message, Report):
            self._open_requests[worker].popleft()
            self._unread[worker].append(message)
            self._ends[worker] = 0
        elif isinstance(message, Failure):
            self._replace(worker, message)

    def _replace(self, worker: int, failure: Failure) -> None:
        """Starts another process for a worker, with other seeds, and requests again what it has not finished."""
        cause = failure.cause
        if failure.error is not None:
            self.workers.close()
            raise failure.error
        lanes = self.lanes[worker]
        numbers = f"lanes {lanes.start} to {lanes.stop - 1}" if lanes.stop > lanes.start + 1 else f"lane {lanes.start}"
        name = f"the actor of {numbers}"
        self._ends[worker] += 1
        if self._ends[worker] >= PATIENCE:
            self.workers.close()
            raise EnvironmentFault(
                f"{name} {cause}, {PATIENCE} times without finishing a chunk of {self.workers.layout.ticks} steps; all actors were "
                f"ended. Fix the environment."
            )
        self.restarts += 1
        if cause not in self._warned:
            self._warned.add(cause)
            warnings.warn(
                f"{name} {cause}; a new one continues with new episodes, the interrupted ones count as truncated. Fix the "
                f"environment if this repeats.",
                stacklevel=user_stacklevel(),
            )
        self.workers.start([worker])
        seed = later_seed(self.control.rng.seed, (self.learner + 1) * self.restarts)
        self._new_seeds[worker] = self._seeds(worker, seed + lanes.start)
        self._generation += 1
        requests = list(self._open_requests[worker])
        self._open_requests[worker].clear()
        for request in requests:
            self._send(worker, request)

    # -- checkpoints

    def settle(self) -> None:
        """Waits until no worker has anything to do; what they have made is kept, unread."""
        while busy := [worker for worker in self._everyone if self._open_requests[worker]]:
            self._receive(busy)

    def state(self, settled: bool, trust: bool) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
        if not settled or self._latest is None or not self.workers.running:
            return None, None, "the environments stopped in the middle of a step"
        self.settle()
        states, why = self._worker_states(trust)
        if why:
            return None, None, why
        unread = []
        for worker in self._everyone:
            reports = [self._reading[worker].report] if worker in self._reading else []
            reports += self._unread[worker]
            unread.append([self._chunk_state(worker, report) for report in reports])
        stream = {
            KIND: self.kind,
            "layout": [len(self.lanes), self.workers.layout.ticks, self.ahead, self.reading_order],
            "workers": states,
            "unread": unread,
            "reading": [worker in self._reading for worker in self._everyone],
            "tick": self._tick,
            "generation": self._generation,
        }
        return {}, stream, ""

    def _worker_states(self, trust: bool) -> tuple[list[dict[str, Any]], str]:
        states: list[dict[str, Any]] = []
        for worker in self._everyone:
            self.workers.send(worker, GetState(trust))
            answer = self.workers.receive([worker])[0][1]
            if not isinstance(answer, StateAnswer):
                if isinstance(answer, Failure):
                    self._replace(worker, answer)
                return [], "an actor ended while the checkpoint was written"
            if answer.state is None:
                return [], answer.why
            states.append(answer.state)
        return states, ""

    def _chunk_state(self, worker: int, report: Report) -> dict[str, Any]:
        arrays = self.workers.chunks.take(report.chunk % self.ahead, self.lanes[worker])
        infos = [[tick, infos] for tick, infos in report.infos.items()]
        return {
            "index": report.chunk,
            "arrays": arrays,
            "extras": report.extras,
            "infos": infos,
            "updates": self._updates_of.get((worker, report.chunk), 0),
        }

    def load_state(self, tick: dict[str, Any], stream: dict[str, Any], trust: bool) -> Rows:
        layout = [len(self.lanes), self.workers.layout.ticks, self.ahead, self.reading_order]
        if list(stream["layout"]) != layout:
            names = "(processes, chunk, ahead, order)"
            raise CheckpointError(
                f"actors must have {names} {tuple(stream['layout'])} as in the full checkpoint, got {tuple(layout)}. Load it with the "
                f"same actors."
            )
        self._clear()
        self.workers.start(self._everyone)
        for worker in self._everyone:
            self.workers.send(worker, SetState(stream["workers"][worker], trust))
            answer = self.workers.receive([worker])[0][1]
            if isinstance(answer, Failure):
                raise CheckpointError(
                    f"the state of the environments must fit those of the actors, but one {answer.cause}. Load it with the same "
                    f"environments."
                )
            for saved in stream["unread"][worker]:
                index = int(saved["index"])
                self.workers.chunks.put(index % self.ahead, self.lanes[worker], saved["arrays"])
                infos = {int(tick): list(infos) for tick, infos in saved["infos"]}
                self._unread[worker].append(Report(index, list(saved["extras"]), infos))
                self._updates_of[worker, index] = int(saved["updates"])
                self._next_index[worker] = index + 1
            if stream["reading"][worker]:
                report = self._unread[worker].popleft()
                self._reading[worker] = FinishedChunk(self.lanes[worker], report.chunk % self.ahead, report)
        self._tick = int(stream["tick"])
        self._generation = int(stream["generation"])
        self._latest = self.workers.chunks.rows(self._tick - 1, list(self._reading.values()))
        return self._latest

    # -- the rest

    def log_facts(self) -> dict[str, float]:
        entries: dict[str, float] = {}
        if len(self._rates) > 1:
            elapsed = self._rates[-1][0] - self._rates[0][0]
            steps = sum(count for _, count in self._rates) - self._rates[0][1]
            entries["actors/steps_per_second"] = steps / max(elapsed, 1e-9) / len(self.lanes)
        if self._staleness:
            entries["actors/updates_behind"] = sum(self._staleness) / len(self._staleness)
        entries["actors/unread_chunks"] = sum(len(unread) for unread in self._unread)
        return entries | ({"rollout/env_restarts": self.restarts} if self.restarts else {})

    def close(self) -> None:
        self.workers.close()
