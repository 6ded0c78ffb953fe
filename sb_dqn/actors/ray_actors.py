"""Workers as Ray actors, on this machine or on a cluster: connection, messages, and how they end."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import math
import os
import platform
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from multiprocessing import util
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.actors.chunks import ChunkLayout, Chunks, Report, pack_chunk, unpack_chunk
from sb_dqn.actors.processes import CLOSE_SECONDS, POLL, STARTUP, Failure, GetState, Message, Request, StateAnswer
from sb_dqn.actors.settings import RayActors
from sb_dqn.actors.worker import ChunkRequest, Worker
from sb_dqn.errors import ConfigurationError, EnvironmentFault, import_extra

T = TypeVar("T")

PACKAGES = ("sb_dqn", "torch", "numpy", "gymnasium")
"""Packages whose versions must be the same on all nodes; Ray compares its own and Python's."""
OLDEST = (2, 52)
"""First version of Ray with token authentication."""
CONNECT_SECONDS = 10.0
"""Time for a cluster to answer."""
STARTS = 20
"""Times that an actor is started again before its first answer."""
LOOK_SECONDS = 2.0
"""Time between two looks whether the head of the cluster answers."""
LOOKS = 5
"""Looks without an answer after which the head counts as lost; Ray ends the process after a minute."""
START_SECONDS = 120.0
"""Time for the first actors to start, which includes the import of torch on each node."""


def import_ray() -> Any:
    """Returns the module `ray`.

    Raises:
        ConfigurationError: it is not installed, or too old.
    """
    ray = import_extra("ray", "ray", "for RayActors")
    if tuple(int(part) for part in ray.__version__.split(".")[:2]) < OLDEST:
        raise ConfigurationError(
            f"ray must be {'.'.join(map(str, OLDEST))} or newer, where a cluster asks for a token, got {ray.__version__}, with which "
            f'anyone on the network runs code in the learner. Run pip install -U "sb_dqn[ray]".'
        )
    return ray


def connect(address: str | None, num_cpus: float) -> bool:
    """Connects this process to a Ray cluster, unless it is connected. Returns True if the cluster was started here.

    Args:
        address: "auto" for the cluster of this machine, "HOST:PORT" of a cluster's head, or None to start one, which listens on
            the loopback interface only and wants a token.
        num_cpus: CPUs of a cluster that is started here.

    Raises:
        ConfigurationError: Ray is not installed or too old, or no cluster answers.
    """
    ray = import_ray()
    if ray.is_initialized():
        return False
    if sys.platform != "win32":  # or a fork that ends would end the cluster
        os.register_at_fork(after_in_child=partial(atexit.unregister, ray.shutdown))
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        _require_token()
        with _on_loopback():
            ray.init(address="local", num_cpus=math.ceil(num_cpus), include_dashboard=False, **quiet)
        return True
    if address != "auto":
        _check_listener(address)
    try:
        ray.init(address=address, **quiet)
    except (Exception, SystemExit) as error:  # Ray ends the process if the head does not answer
        raise ConfigurationError(
            f"address must be that of a running Ray cluster, got {address!r} ({error}). Start one with ray start --head, or remove "
            f"the address to start one for this run."
        ) from error
    return False


def _require_token() -> None:
    """Makes clusters that this process starts ask for a token, which only this user can read."""
    os.environ["RAY_AUTH_MODE"] = "token"
    importlib.import_module("ray._raylet").Config.initialize("")  # reads the variable again
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH"):
        return
    path = Path.home() / ".ray" / "auth_token"  # Ray makes it readable by all
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        path.chmod(0o600)
        return
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(secrets.token_hex(32))


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Makes Ray take 127.0.0.1 as the address of this node, as it does on macOS and Windows: then all its servers listen there."""
    constants: Any = importlib.import_module("ray._private.ray_constants")
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


class HeadWatch(threading.Thread):
    """Thread that disconnects this process from a cluster whose head is lost, before Ray ends the process.

    Args:
        address: of the head.
        lock: held while Ray is called.
    """

    def __init__(self, address: str, lock: Any) -> None:
        super().__init__(name="sb_dqn-head", daemon=True)
        self.address = address
        self.lost = False
        """True once the head is lost."""
        self._lock = lock
        self._over = threading.Event()

    def end(self) -> None:
        """Ends the thread."""
        self._over.set()

    def run(self) -> None:
        host, _, port = self.address.rpartition(":")
        failures = 0
        while not self._over.wait(LOOK_SECONDS):
            try:
                socket.create_connection((host.strip("[]"), int(port)), LOOK_SECONDS).close()
                failures = 0
            except OSError:
                failures += 1
            if failures >= LOOKS:
                self.lost = True
                with self._lock:  # a learner that calls Ray meanwhile sees `lost`
                    if not self._over.is_set():
                        import_ray().shutdown()
                return


def _check_listener(address: str) -> None:
    """Raises an error at once where Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigurationError(
            f"address must be 'auto' or HOST:PORT of the head of a running Ray cluster, got {address!r}, where nothing answers "
            f"({error}). Start it with ray start --head --port=6379."
        ) from None


def versions() -> dict[str, str]:
    """Returns the versions that must agree, without the kind of build ("+cpu")."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            found[name] = "none"
    return found


class RayWorker:
    """A worker in the process of a Ray actor. Errors are answers, so that Ray restarts it only when its process ends.

    Args:
        config: pickled `WorkerConfig`.
        layout: of the chunks of its lanes alone.
        expected: versions of the learner's packages.
        home: id of the learner's node; images are compressed on other nodes.
    """

    def __init__(self, config: bytes, layout: ChunkLayout, expected: Mapping[str, str], home: str) -> None:
        torch.set_num_threads(1)
        self._config = config
        self._layout = layout
        self._lanes = slice(0, layout.num_lanes)
        self._expected = expected
        self._compress = import_ray().get_runtime_context().get_node_id() != home
        self._failure: Failure | None = None
        self._worker: Worker | None = None
        self.renew()

    def renew(self) -> None:
        """Makes the worker, again after an error."""
        self.close()
        self._has_begun = False
        own = versions()
        different = [f"{name} {own[name]} instead of {of}" for name, of in self._expected.items() if own[name] != of]
        self.wrong_versions = f"has {', '.join(different)} on node {platform.node()}" if different else ""
        self._failure = Failure(self.wrong_versions) if different else None
        if different:
            return
        try:
            self._chunks = Chunks(self._layout, np.zeros(max(self._layout.nbytes, 1), np.uint8))
            self._worker = Worker(cloudpickle.loads(self._config), self._chunks, self._lanes)
        except Exception as error:
            self._failure = Failure.from_error(error)

    def close(self) -> None:
        """Closes the environments."""
        if self._worker is not None:
            with contextlib.suppress(Exception):
                self._worker.close()
            self._worker = None

    def check(self) -> str:
        """Returns which versions are wrong; empty if none."""
        return self.wrong_versions

    def collect(self, request: ChunkRequest, weights: npt.NDArray[Any]) -> Failure | tuple[Report, dict[str, Any]]:
        """Collects one chunk; returns it with its arrays."""
        if self._failure is None and not self._has_begun and request.seeds is None:
            self._failure = Failure("was started again by Ray, because its process or node had ended")
        self._has_begun = True

        def chunk(worker: Worker) -> tuple[Report, dict[str, Any]]:
            *_, report = worker.collect(request, np.array(weights))  # Ray's array is read-only
            assert report is not None
            return report, pack_chunk(self._chunks.take(request.place, self._lanes), self._compress)

        return self._answer(chunk)

    def state(self, trust: bool) -> Failure | StateAnswer:
        """Returns the state of the worker, see `Worker.state`."""
        return self._answer(lambda worker: StateAnswer(*worker.state(trust)))

    def load_state(self, state: dict[str, Any], trust: bool) -> Failure | StateAnswer:
        """Restores a state."""
        self._has_begun = True

        def load(worker: Worker) -> StateAnswer:
            worker.load_state(state, trust)
            return StateAnswer(None, "")

        return self._answer(load)

    def _answer(self, call: Callable[[Worker], T]) -> Failure | T:
        """Returns the result of `call`, or how the worker has ended."""
        if self._failure is not None:
            return self._failure
        assert self._worker is not None  # where it could not be made, there is a failure
        try:
            return call(self._worker)
        except Exception as error:
            self._failure = Failure.from_error(error)
            return self._failure


class WeightVersions:
    """Copies of the weights in Ray's object store, each put there once, when it is first sent.

    Args:
        copies: number of copies.
        size: numbers in one copy.
    """

    def __init__(self, copies: int, size: int) -> None:
        self._arrays = np.zeros((copies, size), np.float32)
        self._references: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, place: int) -> npt.NDArray[np.float32]:
        """Returns a copy to write to; what it held before is no longer sent."""
        self._references.pop(place, None)
        array: npt.NDArray[np.float32] = self._arrays[place]
        return array

    def reference(self, place: int) -> Any:
        """Returns Ray's reference to a copy."""
        if place not in self._references:
            self._references[place] = import_ray().put(self._arrays[place])
        return self._references[place]


class RayWorkers:
    """One Ray actor per worker, with the methods of `WorkerProcesses`.

    An actor whose process or node ends while it starts is started again by Ray (`max_restarts=-1`). Later its calls under way
    fail, and it is replaced by a new actor, as is one that hangs; the collector repeats the requests.

    Args:
        configs: a pickled `WorkerConfig` for each worker.
        lanes: lanes of each worker, within those of the model.
        layout: of the chunks of all lanes.
        weights: numbers in one copy of the weights.
        copies: copies of the weights to keep.
        settings: address, CPUs and time limits.
    """

    def __init__(
        self,
        configs: Sequence[bytes],
        lanes: Sequence[slice],
        layout: ChunkLayout,
        weights: int,
        copies: int,
        settings: RayActors,
    ) -> None:
        self.configs = list(configs)
        self.lanes = list(lanes)
        self.layout = layout
        self.settings = settings
        self.chunks = Chunks(layout, np.zeros(max(layout.nbytes, 1), np.uint8))
        self.weights = WeightVersions(copies, weights)
        self._actors: dict[int, Any] = {}
        self._pending: list[deque[tuple[Any, Request]]] = [deque() for _ in self.configs]
        self._since = [0.0] * len(self.configs)
        """When the call that is first in `_pending` began, as far as it is known here."""
        self._lost: set[int] = set()
        """Workers whose process or node has ended, or that hang."""
        self._starts: dict[int, int] = {}
        """How often a worker was started without an answer yet."""
        self._owned = [False]  # a list, so that the finalizer sees changes
        self._lock = threading.RLock()
        self._watch: list[HeadWatch] = []
        # unlike weakref.finalize, this does nothing in a fork of this process
        util.Finalize(self, _close, (self._actors, self._owned, self._watch), exitpriority=0)

    def start(self, workers: Collection[int]) -> None:
        """Starts workers; those that run already begin again with new environments.

        Raises:
            ConfigurationError: Ray is not installed, no cluster answers, it has too few CPUs or other versions of the packages.
        """
        is_first = not self._actors
        if is_first:
            self._owned[0] = connect(self.settings.address, self.settings.num_cpus * len(self.configs))
        for worker in workers:
            self._pending[worker].clear()
            if worker in self._lost:
                import_ray().kill(self._actors.pop(worker), no_restart=True)
                self._lost.discard(worker)
            if worker in self._actors:
                self._actors[worker].renew.remote()
            else:
                self._actors[worker] = self._create(worker)
                self._starts[worker] = 1
            self._since[worker] = time.monotonic() + START_SECONDS
        if is_first:
            self._check_started(list(workers))
            watch = HeadWatch(import_ray().get_runtime_context().gcs_address, self._lock)
            self._watch[:] = [watch]
            watch.start()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Keeps the watch from disconnecting this process.

        Raises:
            EnvironmentFault: it has, since the head of the cluster is lost.
        """
        with self._lock:
            if self._watch and self._watch[0].lost:
                address = self._watch[0].address
                import_ray().shutdown()
                self.close()
                self._lost.clear()
                raise EnvironmentFault(
                    f"the head of the Ray cluster must answer, got no answer at {address} for {LOOKS * LOOK_SECONDS:.0f} s; all "
                    f"actors are lost. The model is complete: save it, and continue with another cluster."
                )
            yield

    def _create(self, worker: int) -> Any:
        ray = import_ray()
        part = self.lanes[worker]
        kind = ray.remote(num_cpus=self.settings.num_cpus, max_restarts=-1, max_task_retries=0)(RayWorker)
        home = ray.get_runtime_context().get_node_id()
        layout = replace(self.layout, num_lanes=part.stop - part.start)
        return kind.remote(self.configs[worker], layout, versions(), home)

    def _check_started(self, workers: Sequence[int]) -> None:
        ray = import_ray()
        answers = [self._actors[worker].check.remote() for worker in workers]
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=START_SECONDS)
        if len(ready) < len(answers):
            need, have = self.settings.num_cpus * len(workers), ray.cluster_resources().get("CPU", 0)
            self.close()
            raise ConfigurationError(
                f"{len(workers)} Ray actors must start within {START_SECONDS:.0f} s, got {len(ready)}; they need {need:g} CPUs, the "
                f"cluster has {have:g}. Lower the number of actors or num_cpus, or add nodes."
            )
        for answer in ready:
            with contextlib.suppress(ray.exceptions.RayError):  # an actor that has ended is noticed by its calls
                wrong = ray.get(answer)
                if wrong:
                    self.close()
                    raise ConfigurationError(
                        f"all nodes must have the versions of the learner, got an actor that {wrong}. Install the same versions."
                    )

    @property
    def running(self) -> bool:
        """True once all workers have been started."""
        return len(self._actors) == len(self.configs)

    def send(self, worker: int, message: Request) -> None:
        """Sends a message; a worker that has died shows in `receive`."""
        with self._connected():
            actor = self._actors[worker]
            if not self._pending[worker]:
                self._since[worker] = max(self._since[worker], time.monotonic())
            if isinstance(message, ChunkRequest):
                answer = actor.collect.remote(message, self.weights.reference(message.weights))
            elif isinstance(message, GetState):
                answer = actor.state.remote(message.trust)
            else:
                answer = actor.load_state.remote(message.state, message.trust)
            self._pending[worker].append((answer, message))

    def receive(self, workers: Collection[int]) -> list[tuple[int, Message]]:
        """Waits until one of the workers has answered or has ended; returns the first answer of each that has.

        Raises:
            EnvironmentFault: the head of the cluster is lost.
        """
        while True:
            with self._connected():
                messages = self._answers(workers)
            if messages:
                return messages

    def _answers(self, workers: Collection[int]) -> list[tuple[int, Message]]:
        """Returns the first answers that come within `POLL` seconds, and the workers that hang."""
        ray = import_ray()
        first = {self._pending[worker][0][0]: worker for worker in workers if self._pending[worker]}
        if ray.wait(list(first), num_returns=1, timeout=POLL, fetch_local=False)[0]:
            ready = ray.wait(list(first), num_returns=len(first), timeout=0, fetch_local=False)[0]
            answers = [(first[reference], self._read(first[reference])) for reference in ready]
            return [(worker, message) for worker, message in answers if message is not None]
        hanging = [worker for worker in first.values() if self._hangs(worker)]
        cause = f"finished no chunk in time (step_timeout={self.settings.step_timeout})"
        return [(worker, Failure(cause)) for worker in hanging]

    def has_message(self, worker: int) -> bool:
        """Returns True if `receive` would not wait for this worker."""
        with self._connected():
            pending = self._pending[worker]
            is_there = bool(pending and import_ray().wait([pending[0][0]], timeout=0, fetch_local=False)[0])
            return is_there and not self._died_while_starting(worker)

    def _read(self, worker: int) -> Message | None:
        """Returns the first answer of a worker; None if it has ended before any answer, and a new one got its messages."""
        if self._died_while_starting(worker):
            return None
        ray = import_ray()
        reference, message = self._pending[worker].popleft()
        try:
            answer = ray.get(reference)
        except ray.exceptions.RayError as error:
            self._lost.add(worker)
            return Failure(f"ended with its process or node ({type(error).__name__})")
        self._starts.pop(worker, None)
        self._since[worker] = time.monotonic()
        if isinstance(answer, Failure) or not isinstance(message, ChunkRequest):
            return answer  # type: ignore[no-any-return]
        report, arrays = answer
        self.chunks.put(message.place, self.lanes[worker], unpack_chunk(arrays))
        return report  # type: ignore[no-any-return]

    def _died_while_starting(self, worker: int) -> bool:
        """Starts a worker again that has ended before its first answer, at most `STARTS` times in a row: its environment has
        not begun, so that nothing is lost."""
        ray = import_ray()
        if self._starts.get(worker, STARTS) >= STARTS:
            return False
        try:
            ray.get(self._pending[worker][0][0])
            return False
        except ray.exceptions.RayError:
            messages = [message for _, message in self._pending[worker]]
        starts = self._starts[worker]
        self._lost.add(worker)
        self.start([worker])
        self._starts[worker] = starts + 1
        for message in messages:
            self.send(worker, message)
        return True

    def _hangs(self, worker: int) -> bool:
        if self.settings.step_timeout is None:
            return False
        limit = self.settings.step_timeout * max(self.layout.ticks, STARTUP)
        hangs = time.monotonic() - self._since[worker] > limit
        if hangs:
            self._lost.add(worker)
        return hangs

    def close(self) -> None:
        """Ends all workers, and the cluster if it was started for them."""
        with self._lock:
            _close(self._actors, self._owned, self._watch)
            self._watch.clear()


def _close(actors: dict[int, Any], owned: list[bool], watches: list[HeadWatch]) -> None:
    for watch in watches:
        watch.end()
    ray = import_ray() if actors or owned[0] else None
    if ray is not None and ray.is_initialized():
        with contextlib.suppress(Exception):  # actors that have ended, or a cluster
            closing = [actor.close.remote() for actor in actors.values()]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for actor in actors.values():
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)
        if owned[0]:
            ray.shutdown()
    actors.clear()
    owned[0] = False
