"""A checkpoint that a thread writes while training goes on: from copies, so that nothing it reads can change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor


class Writing:
    """A checkpoint that is being written. The interpreter waits for it before it ends.

    Args:
        work: writes it, and answers its path.
    """

    def __init__(self, work: Callable[[], Path | None]) -> None:
        self._work = work
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sb_dqn checkpoint", daemon=False)
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether it is written, or has failed."""
        return not self._thread.is_alive()

    def wait(self) -> Path | None:
        """Its path, as soon as it is written; None for an open file.

        Raises:
            OSError: it could not be written; the checkpoints before it are as they were.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._path

    def _run(self) -> None:
        try:
            self._path = self._work()
        except BaseException as error:
            self._error = error
        finally:
            del self._work  # the copies


def copied(members: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """The tensors on the CPU, apart from those that training writes to; what was tied stays tied."""
    return {name: _copied(tensors) for name, tensors in members.items()}


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    made: dict[Any, Tensor] = {}
    found = {}
    for name, tensor in tensors.items():
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if identity not in made or not tensor.numel():
            made[identity] = tensor.detach().clone().cpu()
        found[name] = made[identity]
    return found
