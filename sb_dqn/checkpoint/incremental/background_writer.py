"""Writing of checkpoints in a background thread, from copies of the tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor


class BackgroundWrite:
    """A checkpoint that a thread is writing. The interpreter waits for the thread before it exits.

    Args:
        write: writes the checkpoint and returns its path.
    """

    def __init__(self, write: Callable[[], Path | None]) -> None:
        executor = ThreadPoolExecutor(1, "sb_dqn checkpoint")
        self._future = executor.submit(write)
        executor.shutdown(wait=False)  # the thread ends with the file, and frees the copies

    @property
    def finished(self) -> bool:
        """True once the checkpoint has been written or has failed."""
        return self._future.done()

    def wait(self) -> Path | None:
        """Waits until the checkpoint has been written and returns its path; None for an open file.

        Raises:
            OSError: writing failed; earlier checkpoints are unchanged.
        """
        return self._future.result()


def copy_members(members: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """Copies tensors to new memory on the CPU; tied tensors stay tied."""
    return {name: _copy_tensors(tensors) for name, tensors in members.items()}


def _copy_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    copies: dict[Any, Tensor] = {}
    result = {}
    for name, tensor in tensors.items():
        identity = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if identity not in copies or not tensor.numel():
            copies[identity] = tensor.detach().clone().cpu()
        result[name] = copies[identity]
    return result
