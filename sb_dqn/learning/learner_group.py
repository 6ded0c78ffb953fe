"""Several learners of one model: processes that share gradients (synchronous data parallelism)."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from sb_dqn.errors import ConfigurationError, LearnerLost
from sb_dqn.learning.learner_watch import LearnerWatch
from sb_dqn.types import Settings

T = TypeVar("T")
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that `torchrun` sets in each process."""
LOOPBACK = ("127.0.0.1", "localhost")
"""Values of MASTER_ADDR with which all learners are on this machine."""
INTERFACES = {"linux": "lo", "darwin": "lo0"}
"""Names of the loopback interface."""
TIMEOUT = timedelta(hours=2)
"""Time that a learner waits for another one, which may be playing the episodes of an evaluation."""
SEARCH_SECONDS = 2.0
"""Time to find out which learner has ended."""
LINGER_SECONDS = 1.0
"""Time for the others to read the reason."""
FAILED = "sb_dqn/failed"
"""Key of the process group's store under which the first learner that fails describes itself."""


class LearnerGroup:
    """The learners of a run, one per process, which hold the same parameters and average their gradients.

    A process has a group of several learners if `torch.distributed` is initialized or the environment variables of
    `torchrun` are set; otherwise it is a group of one, whose methods return their argument. Processes are connected at the
    first `learn`.

    Args:
        rank: number of this learner, [0, size).
        size: number of learners.
        local_rank: number of this learner on its machine.
    """

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = local_rank
        self.calls_back = False
        """True if a learner has callbacks, so that the end of each tick must be agreed upon."""
        self._device = torch.device("cpu")
        self._owns_group = False
        self._members: list[Settings] = []
        self._watch: LearnerWatch | None = None

    @classmethod
    def of_process(cls) -> LearnerGroup:
        """Returns the group that this process belongs to."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size(), int(os.environ.get("LOCAL_RANK", dist.get_rank())))
        if any(name not in os.environ for name in TORCHRUN):
            return cls()
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return cls(rank, size, int(os.environ.get("LOCAL_RANK", rank)))

    @property
    def cuda_index(self) -> int:
        """Number of the device that "cuda" stands for: the current one, or one per learner of a machine.

        Raises:
            ConfigurationError: there are fewer devices than learners.
        """
        if self.size == 1:  # CUDA stays as it is in a process that has not used it: device="auto" may choose the CPU
            initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's
            return torch.cuda.current_device() if initialized else 0
        if self.local_rank >= torch.cuda.device_count():
            raise ConfigurationError(
                f"learners on one machine must be at most its {torch.cuda.device_count()} CUDA devices, got learner "
                f"{self.local_rank + 1}. Start fewer, or set device='cpu'."
            )
        return self.local_rank

    def use_device(self, device: torch.device) -> torch.device:
        """Notes the device of this learner, which is the current one from now on if there are several learners."""
        self._device = device
        if self.size > 1 and device.type == "cuda":
            torch.cuda.set_device(device)
        return device

    def own_path(self, path: Path) -> Path:
        """Returns the path of this learner's part of a full checkpoint: for learners after the first in a subfolder."""
        return path if self.rank == 0 else path.parent / f"learner{self.rank}" / path.name

    @contextmanager
    def connected(self, settings: Settings, calls_back: bool) -> Iterator[None]:
        """Connects the learners for a `learn`; if it fails here, the others end too.

        Args:
            settings: values by name that must be the same for all learners.
            calls_back: True if this learner has callbacks.

        Raises:
            ConfigurationError: the settings differ.
            LearnerLost: another learner has ended.
        """
        if self.size == 1:
            yield
            return
        try:
            own = {
                "settings": dict(settings),
                "calls_back": calls_back,
                "host": socket.gethostname(),
                "pid": os.getpid(),
            }
            self._members = self.gather(own)
            self._watch = LearnerWatch(self.rank, self._members, _store(), FAILED)
            self._watch.start()
            self.calls_back = any(each["calls_back"] for each in self._members)
            for name in settings:
                values = [each["settings"].get(name) for each in self._members]
                if any(value != values[0] for value in values):
                    raise ConfigurationError(
                        f"{name} must be the same for all learners, got {values}. Use one script, without settings that depend on "
                        f"the rank."
                    )
            yield
        except LearnerLost:
            raise
        except BaseException as error:
            self._report_failure(error)
            raise
        finally:
            if self._watch is not None:
                self._watch.end()
                self._watch = None

    def total(self, count: int) -> int:
        """Returns the sum of a count over all learners."""
        return count if self.size == 1 else self._reduced(count, "SUM")

    def minimum(self, count: int) -> int:
        """Returns the smallest of the learners' counts."""
        return count if self.size == 1 else self._reduced(count, "MIN")

    def maximum(self, count: int) -> int:
        """Returns the largest of the learners' counts."""
        return count if self.size == 1 else self._reduced(count, "MAX")

    def _reduced(self, count: int, operation: str) -> int:
        number = torch.tensor([count])
        self._call(lambda: dist.all_reduce(number, op=getattr(dist.ReduceOp, operation)))
        return int(number)

    def average(self, tensor: Tensor) -> None:
        """Replaces a tensor by its mean over the learners."""
        self._call(lambda: dist.all_reduce(tensor))
        tensor.div_(self.size)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors by those of the first learner."""
        for tensor in tensors:
            self._call(lambda tensor=tensor: dist.broadcast(tensor.detach(), src=0))  # type: ignore[misc]

    def gather(self, value: T) -> list[T]:
        """Returns a value of each learner; plain data only."""
        values: list[Any] = [value] * self.size
        if self.size > 1:
            self._connect()
            self._call(lambda: dist.all_gather_object(values, value))
        return values

    def gather_array(self, array: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
        """Returns an array of each learner, all of the same shape."""
        arrays = [torch.empty(array.shape, dtype=torch.float64) for _ in range(self.size)]
        self._call(lambda: dist.all_gather(arrays, torch.from_numpy(array)))
        return [each.numpy() for each in arrays]

    def _connect(self) -> None:
        if dist.is_initialized():
            return
        backend = "cpu:gloo,cuda:nccl" if self._device.type == "cuda" else "gloo"
        store = self._loopback_store()
        ranks: dict[str, Any] = {} if store is None else {"store": store, "rank": self.rank, "world_size": self.size}
        dist.init_process_group(backend, timeout=TIMEOUT, **ranks)
        self._owns_group = True
        atexit.register(self._disconnect)

    def _loopback_store(self) -> Any:
        """Returns a store that no other machine reaches; None if learners are on several, or `torchrun` has one.

        PyTorch's own store and gloo would listen on all interfaces, and answer anyone.
        """
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if host not in LOOPBACK or "TORCHELASTIC_USE_AGENT_STORE" in os.environ:
            return None
        if sys.platform in INTERFACES:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", INTERFACES[sys.platform])
        listener = socket.create_server((host, port)).detach() if self.rank == 0 else None
        return dist.TCPStore(  # type: ignore[attr-defined]  # documented, and not in __all__
            host, port, self.size, self.rank == 0, TIMEOUT, master_listen_fd=listener
        )

    def _disconnect(self) -> None:
        with suppress(RuntimeError):
            if self._owns_group and dist.is_initialized():
                dist.destroy_process_group()

    def _call(self, collective: Callable[[], object]) -> None:
        """Runs a collective operation.

        Raises:
            LearnerLost: another learner has ended.
        """
        if self._watch is not None:
            self._watch.waiting = True
        try:
            collective()
        except RuntimeError as error:  # gloo's and NCCL's errors; a closed connection, most often
            raise LearnerLost(
                f"all {self.size} learners must run until the end, got the end of {self._find_lost()}. Fix its error and start all of "
                f"them again, from the last full checkpoint if there is one."
            ) from error
        finally:
            if self._watch is not None:
                self._watch.waiting = False

    def _report_failure(self, error: BaseException) -> None:
        """Stores the reason for the other learners and closes the connections, on which they wait."""
        with suppress(RuntimeError):
            text = f"learner {self.rank} ({type(error).__name__}: {str(error).rstrip('.')})"
            _store().compare_set(FAILED, "", text)
        self._linger()
        self._disconnect()

    def _linger(self) -> None:
        """Waits until the others have read the reason, if this process serves the store."""
        if self.rank == 0 and "TORCHELASTIC_USE_AGENT_STORE" not in os.environ:
            time.sleep(LINGER_SECONDS)

    def _find_lost(self) -> str:
        """Returns the first learner that ended, with its reason if it reported one."""
        if self._watch is not None and self._watch.found:
            return self._watch.found
        deadline, found = time.monotonic() + SEARCH_SECONDS, "another learner"
        while time.monotonic() < deadline:
            with suppress(RuntimeError):
                if _store().check([FAILED]):
                    break
            gone = [f"learner {rank}" for rank, each in enumerate(self._members) if _has_ended(each)]
            if gone:
                found = f"{' and '.join(gone)} without an error message"
                break
            time.sleep(0.05)
        with suppress(RuntimeError):  # learners that end because of this one name the same
            found = _store().compare_set(FAILED, "", found).decode(errors="replace")
        self._linger()
        return found


def _store() -> Any:
    """Returns the key-value store of the process group."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _has_ended(member: Settings) -> bool:
    """Returns True if the process of a learner on this machine does not exist any more."""
    if member["host"] != socket.gethostname() or sys.platform == "win32":  # there, os.kill ends the process
        return False
    try:
        os.kill(member["pid"], 0)
        state = Path(f"/proc/{member['pid']}/stat")
        return state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True
