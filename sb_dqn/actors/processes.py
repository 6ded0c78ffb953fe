"""Workers in processes of this machine: start, messages, and how they end."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Collection, Iterator, Sequence
from multiprocessing import connection
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate.torch_internals import RECORDING_MODULES
from sb_dqn.actors.chunks import ChunkLayout, Chunks, Report
from sb_dqn.actors.worker import Order, Worker
from sb_dqn.envs.vector.worker_processes import GRACE, cause_of_death
from sb_dqn.envs.vector.worker_reports import describe_error
from sb_dqn.errors import ConfigurationError, EnvironmentFault

STARTING = -1
"""Progress of a worker that is making its environments; later it is the number of its steps."""
STARTUP = 10
"""Factor of `step_timeout` for a worker that is starting."""
POLL = 0.2
"""Seconds between two looks at the workers' progress while waiting for them."""
PRELOADED = ["sb_dqn.actors.processes", *RECORDING_MODULES]
"""Modules that the server loads once for all workers, which share its memory."""


class Failure(NamedTuple):
    """The end of a worker."""

    cause: str
    """What happened, as a clause about the worker."""
    error: EnvironmentFault | ConfigurationError | None = None
    """Error that ends the run, since it would be that of the next worker too; None: the worker is replaced."""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Returns the end of a worker by an exception: one that an environment raised, or one about what it returned."""
        own = isinstance(error, ConfigurationError) or (isinstance(error, EnvironmentFault) and not error.crashed)
        return cls(f"raised {describe_error(error)}", error if own else None)  # type: ignore[arg-type]  # narrowed


class State(NamedTuple):
    """Answer to a request for the state of a worker; see `Worker.state`."""

    state: dict[str, Any] | None
    why: str


class GetState(NamedTuple):
    """Request for the state of a worker."""

    trust: bool


class SetState(NamedTuple):
    """Request to restore a state."""

    state: dict[str, Any]
    trust: bool


Message = Report | State | Failure


class WorkerProcesses:
    """One process per worker, with shared memory for chunks and weights, and a pipe each for messages.

    Args:
        configs: a pickled `WorkerConfig` for each worker.
        layout: of the memory of the chunks.
        weights: numbers in one copy of the weights.
        copies: copies of the weights that the memory holds.
        step_timeout: seconds without a step after which a worker counts as hung; None: never.
    """

    def __init__(
        self, configs: Sequence[bytes], layout: ChunkLayout, weights: int, copies: int, step_timeout: float | None
    ) -> None:
        self.configs = list(configs)
        self.layout = layout
        self.step_timeout = step_timeout
        self._context: Any = start_context()
        self._memory = self._context.RawArray("B", max(layout.nbytes, 1))
        self._weights = self._context.RawArray("f", max(copies * weights, 1))
        self._progress = self._context.RawArray("q", len(self.configs))
        self._size = weights
        self.chunks = Chunks(layout, self._memory)
        self.weights = weight_copies(self._weights, weights)
        """`[copies, P]`."""
        self._processes: dict[int, Any] = {}
        self._pipes: dict[int, Any] = {}
        self._seen = [(0, 0.0)] * len(self.configs)  # progress of each worker, and when it was first seen
        weakref.finalize(self, end_processes, self._processes, self._pipes)

    def start(self, workers: Collection[int]) -> None:
        """Starts processes for workers, and ends the ones they had."""
        for worker in workers:
            end_processes(self._processes, self._pipes, [worker])
        with without_main_module():
            for worker in workers:
                ours, theirs = self._context.Pipe()
                arguments = (
                    theirs, self.configs[worker], self.layout, self._memory, self._weights, self._size,
                    self._progress, worker,
                )  # fmt: skip
                process = self._context.Process(target=run_worker, args=arguments, daemon=True, name=f"actor-{worker}")
                self._progress[worker] = STARTING
                process.start()
                theirs.close()
                self._processes[worker], self._pipes[worker] = process, ours
                self._seen[worker] = (self._progress[worker], time.monotonic())

    @property
    def running(self) -> bool:
        """True once all workers have been started."""
        return len(self._processes) == len(self.configs)

    def send(self, worker: int, message: Order | GetState | SetState) -> None:
        """Sends a message; a worker that has died shows in `receive`."""
        with contextlib.suppress(OSError):
            self._pipes[worker].send(message)
        if self._idle(worker):
            self._seen[worker] = (self._progress[worker], time.monotonic())

    def _idle(self, worker: int) -> bool:
        return bool(self._progress[worker] == self._seen[worker][0])

    def receive(self, workers: Collection[int]) -> list[tuple[int, Message]]:
        """Waits until one of the workers has sent a message or has ended; returns all messages that are there."""
        pipes = {self._pipes[worker]: worker for worker in workers}
        while True:
            ready = connection.wait(list(pipes), POLL)
            messages = [(pipes[pipe], self._read(pipes[pipe])) for pipe in ready]
            messages += [(worker, failure) for worker in workers if (failure := self._hangs(worker)) is not None]
            if messages:
                return messages

    def has_message(self, worker: int) -> bool:
        """Returns True if `receive` would not wait for this worker."""
        return bool(self._pipes[worker].poll(0))

    def _read(self, worker: int) -> Message:
        try:
            message: Message = self._pipes[worker].recv()
        except (EOFError, OSError):
            process = self._processes[worker]
            process.join(GRACE)
            code = process.exitcode
            return Failure("closed its pipe" if code is None else cause_of_death(code))
        self._seen[worker] = (self._progress[worker], time.monotonic())
        return message

    def _hangs(self, worker: int) -> Failure | None:
        now, (count, since) = time.monotonic(), self._seen[worker]
        if self.step_timeout is None or self._pipes[worker].poll(0):
            return None
        if self._progress[worker] != count:
            self._seen[worker] = (self._progress[worker], now)
        elif now - since > self.step_timeout * (STARTUP if count == STARTING else 1):
            return Failure(f"made no step for {now - since:.0f} seconds (step_timeout={self.step_timeout:g})")
        return None

    def close(self) -> None:
        """Ends all processes; `start` may start them again."""
        end_processes(self._processes, self._pipes)


def weight_copies(memory: Any, size: int) -> npt.NDArray[np.float32]:
    """Returns shared memory as copies of the weights, `[copies, P]`."""
    return np.frombuffer(memory, np.float32)[: len(memory) // max(size, 1) * size].reshape(-1, size)


def start_context() -> Any:
    """Returns how processes are started: from a server that has loaded torch already, or each from the start where there is none."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@contextlib.contextmanager
def without_main_module() -> Iterator[None]:
    """Keeps new processes from importing the user's script, which would run again without `if __name__ == "__main__"`.

    They do not need it: what a worker is made from is pickled by cloudpickle, with the classes of the script in it.
    """
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__spec__", "__file__") if name in vars(main)}
    try:
        main.__spec__ = None
        if "__file__" in kept:
            del main.__file__
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


def end_processes(processes: dict[int, Any], pipes: dict[int, Any], workers: Collection[int] | None = None) -> None:
    """Ends processes, all or those of `workers`, and forgets them."""
    ending = [
        processes.pop(worker) for worker in (list(processes) if workers is None else workers) if worker in processes
    ]
    for worker in list(pipes) if workers is None else workers:
        if worker in pipes:
            pipes.pop(worker).close()  # a worker that waits for a message ends then
    for process in ending:
        process.kill()
    for process in ending:
        process.join(GRACE)


# -- in the process of a worker


def run_worker(
    pipe: Any,
    config: bytes,
    layout: ChunkLayout,
    memory: Any,
    weights_memory: Any,
    size: int,
    progress: Any,
    number: int,
) -> None:
    """Makes a worker and does what the messages say, until the pipe is closed."""
    gc.freeze()  # a collection would write to the memory of all modules, which the workers share until one of them does
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the learner, which ends its workers
    end_with_parent()
    torch.set_num_threads(1)
    try:
        worker = Worker(cloudpickle.loads(config), Chunks(layout, memory))
        weights = weight_copies(weights_memory, size)
        progress[number] = 0
        while True:
            message = pipe.recv()
            if isinstance(message, GetState):
                pipe.send(State(*worker.state(message.trust)))
            elif isinstance(message, SetState):
                worker.load_state(message.state, message.trust)
                pipe.send(State(None, ""))
            else:
                for report in worker.collect(message, weights[message.weights]):
                    progress[number] += 1
                    if report is not None:
                        pipe.send(report)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the learner has closed the pipe
        return
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(Failure.of(error))


def end_with_parent() -> None:
    """Starts a thread that ends this process as soon as the process that started it has ended, however it did."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="sb_dqn-parent", daemon=True).start()
