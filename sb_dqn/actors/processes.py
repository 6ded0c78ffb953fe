"""Workers in processes of this machine: start, messages, and how they end."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from multiprocessing import connection, util
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate.torch_internals import TRACING_MODULES
from sb_dqn.actors.chunks import ChunkLayout, Chunks, Report
from sb_dqn.actors.worker import ChunkRequest, Worker
from sb_dqn.envs.vector.worker_processes import GRACE, cause_of_death, describe_error
from sb_dqn.errors import ConfigurationError, EnvironmentFault

STARTING = -1
"""Progress of a worker that is making its environments; later it is the number of its steps."""
STARTUP = 10
"""Factor of `step_timeout` for a worker that is starting."""
POLL = 0.2
"""Seconds between two looks at the workers' progress while waiting for them."""
CLOSE_SECONDS = 5.0
"""Time for a worker to close its environments."""
MAIN_MODULE = threading.Lock()
"""Held while `__main__` is changed."""
PRELOADED = ["sb_dqn.actors.processes", *TRACING_MODULES]
"""Modules that the server loads once for all workers, which share its memory."""


class Failure(NamedTuple):
    """The end of a worker."""

    cause: str
    """What happened, as a clause about the worker."""
    error: EnvironmentFault | ConfigurationError | None = None
    """Error that ends the run, since it would be that of the next worker too; None: the worker is replaced."""

    @classmethod
    def from_error(cls, error: BaseException) -> Failure:
        """Returns the end of a worker by an exception: one that an environment raised, or one about what it returned."""
        own = isinstance(error, ConfigurationError) or (isinstance(error, EnvironmentFault) and not error.crashed)
        return cls(f"raised {describe_error(error)}", error if own else None)  # type: ignore[arg-type]  # narrowed


class StateAnswer(NamedTuple):
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


Message = Report | StateAnswer | Failure
Request = ChunkRequest | GetState | SetState


class SharedMemory(NamedTuple):
    """Memory that the learner shares with its workers."""

    layout: ChunkLayout
    chunks: Any
    """Bytes of the chunks."""
    weights: Any
    """Copies of the weights, one after the other."""
    size: int
    """Numbers in one copy of the weights."""
    progress: Any
    """Number of the steps of each worker."""
    ending: Any
    """1 for each worker that must end after its tick."""

    def weight_copies(self) -> npt.NDArray[np.float32]:
        """Returns the copies of the weights, `[copies, P]`."""
        number = len(self.weights) // max(self.size, 1)
        return np.frombuffer(self.weights, np.float32)[: number * self.size].reshape(-1, self.size)


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
        self._shared = SharedMemory(
            layout,
            chunks=self._context.RawArray("B", max(layout.nbytes, 1)),
            weights=self._context.RawArray("f", max(copies * weights, 1)),
            size=weights,
            progress=self._context.RawArray("q", len(self.configs)),
            ending=self._context.RawArray("b", len(self.configs)),
        )
        self._progress, self._ending = self._shared.progress, self._shared.ending
        self.chunks = Chunks(layout, self._shared.chunks)
        self.weights = self._shared.weight_copies()
        """`[copies, P]`."""
        self._processes: dict[int, BaseProcess] = {}
        self._pipes: dict[int, Any] = {}
        self._seen = [(0, 0.0)] * len(self.configs)  # progress of each worker, and when it was first seen
        # unlike weakref.finalize, this does nothing in a fork of this process
        util.Finalize(self, end_processes, (self._processes, self._pipes, self._ending), exitpriority=0)

    def start(self, workers: Collection[int]) -> None:
        """Starts processes for workers, and ends the ones they had.

        Raises:
            ConfigurationError: this process is daemonic.
        """
        if multiprocessing.current_process().daemon:
            raise ConfigurationError(
                "process actors must be started by a process that may have children, got a daemonic one, such as a worker of "
                "multiprocessing.Pool. Use concurrent.futures.ProcessPoolExecutor instead of the pool, or actors=None."
            )
        end_processes(self._processes, self._pipes, self._ending, workers)
        with without_main_module():
            for worker in workers:
                ours, theirs = self._context.Pipe()
                arguments = (theirs, self.configs[worker], self._shared, worker)
                process = self._context.Process(target=run_worker, args=arguments, daemon=True, name=f"actor-{worker}")
                self._progress[worker], self._ending[worker] = STARTING, 0
                process.start()
                theirs.close()
                self._processes[worker], self._pipes[worker] = process, ours
                self._seen[worker] = (self._progress[worker], time.monotonic())

    @property
    def running(self) -> bool:
        """True once all workers have been started."""
        return len(self._processes) == len(self.configs)

    def send(self, worker: int, message: Request) -> None:
        """Sends a message; a worker that has died shows in `receive`."""
        with contextlib.suppress(OSError):
            self._pipes[worker].send(message)
        if self._progress[worker] == self._seen[worker][0]:  # it had nothing to do
            self._seen[worker] = (self._progress[worker], time.monotonic())

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
            kill_group(self._processes[worker])  # at once: it would not close its environments
            return Failure(f"made no step for {now - since:.0f} seconds (step_timeout={self.step_timeout:g})")
        return None

    def close(self) -> None:
        """Ends all processes; `start` may start them again."""
        end_processes(self._processes, self._pipes, self._ending)


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
    with MAIN_MODULE:
        kept = {name: getattr(main, name) for name in ("__spec__", "__file__") if name in vars(main)}
        try:
            main.__spec__ = None
            if "__file__" in kept:
                del main.__file__
            yield
        finally:
            for name, value in kept.items():
                setattr(main, name, value)


def end_processes(
    processes: dict[int, BaseProcess], pipes: dict[int, Any], ending: Any, workers: Collection[int] | None = None
) -> None:
    """Ends processes, all or those of `workers`, and forgets them. They close their environments first, in `CLOSE_SECONDS`."""
    chosen = [worker for worker in list(processes) if workers is None or worker in workers]
    closing = [processes.pop(worker) for worker in chosen]
    for worker in chosen:
        ending[worker] = 1
        pipe = pipes.pop(worker)
        shut_down(pipe)
        pipe.close()
    deadline = time.monotonic() + CLOSE_SECONDS
    for process in closing:
        process.join(max(deadline - time.monotonic(), 0.0))
    for process in closing:
        kill_group(process)
    for process in closing:
        process.join(GRACE)


def shut_down(pipe: Any) -> None:
    """Ends a connection for both sides, also where a fork of this process holds it open."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


def kill_group(process: Any) -> None:
    """Kills a process, if it still runs, and those that its environments have started."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # they have ended, or the process has just been started
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


# -- in the process of a worker


def run_worker(pipe: Any, config: bytes, shared: SharedMemory, number: int) -> None:
    """Makes a worker and does what the messages say, until the pipe is closed; then closes the environments."""
    gc.freeze()  # a collection would write to the memory of all modules, which the workers share until one of them does
    start_group()
    progress, ending = shared.progress, shared.ending
    end_with_parent(pipe, ending, number)
    torch.set_num_threads(1)
    worker = None
    try:
        made = cloudpickle.loads(config)
        worker = Worker(made, Chunks(shared.layout, shared.chunks), made.lanes)
        weights = shared.weight_copies()
        progress[number] = 0
        while not ending[number]:
            message = pipe.recv()
            if isinstance(message, GetState):
                pipe.send(StateAnswer(*worker.state(message.trust)))
            elif isinstance(message, SetState):
                worker.load_state(message.state, message.trust)
                pipe.send(StateAnswer(None, ""))
            else:
                for report in worker.collect(message, weights[message.weights]):
                    progress[number] += 1
                    if ending[number]:
                        break
                    if report is not None:
                        pipe.send(report)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the learner has closed the pipe
        pass
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(Failure.from_error(error))
    finally:
        if worker is not None:
            with contextlib.suppress(BaseException):  # the process ends, also where the user's code raises
                worker.close()
        end_group()


def start_group() -> None:
    """Makes this process the leader of a group, with what its environments start, and leaves signals to the learner.

    Ctrl-C, and the SIGTERM of a scheduler to all processes, are for the learner, which ends its workers.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which the programs that environments start would inherit
    if sys.platform != "win32":
        os.setpgid(0, 0)


def end_group() -> None:
    """Kills the processes that environments have started and not ended; this one too, if it cannot leave the group."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.setpgid(0, os.getpgid(os.getppid()))
        with contextlib.suppress(OSError):
            os.killpg(os.getpid(), signal.SIGKILL)


def end_with_parent(pipe: object, ending: Any, number: int) -> None:
    """Starts a thread that ends this process as soon as the process that started it has ended, however it did."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    sentinel = parent.sentinel

    def watch() -> None:
        connection.wait([sentinel])
        ending[number] = 1
        shut_down(pipe)
        time.sleep(CLOSE_SECONDS)
        end_group()
        os._exit(1)

    threading.Thread(target=watch, name="sb_dqn-parent", daemon=True).start()
