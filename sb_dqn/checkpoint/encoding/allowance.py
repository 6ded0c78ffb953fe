"""Memory limits for what a model file describes: its spaces, its lanes, and the networks that its arguments make."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sb_dqn.errors import CheckpointError
from sb_dqn.types import Kwargs

FREE_BYTES = 16 * 2**20
"""Bytes of networks that are always allowed."""
FREE_CALLS = 1_000
"""Tensors that are always allowed."""
FREE_SPACES = 128 * 2**20
"""Bytes of spaces and lanes that are always allowed."""
LANE_BYTES = 64  # of a model without an environment
FACTOR = 8
"""Further allowance: this many times the bytes and the number of the tensors in the file (online and target networks,
noise, copies)."""


class Allowance:
    """Counts the bytes that a file asks for, before they are allocated.

    Args:
        parameters: tensors of the file by name; those that share memory count once.
        free: bytes that are always allowed.
    """

    def __init__(self, parameters: Mapping[str, Tensor], free: int = FREE_SPACES) -> None:
        stored = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in parameters.values()}
        self.bytes_left: float = free + FACTOR * sum(storage.nbytes() for storage in stored.values())
        self.tensors_left = FREE_CALLS + FACTOR * len(stored)

    def take(self, count: float, what: str) -> None:
        """Subtracts `count` bytes from what is left.

        Raises:
            CheckpointError: less is left.
        """
        self.bytes_left -= count
        if not self.bytes_left >= 0:  # NaN is not
            raise CheckpointError(
                f"the file describes {what} far larger than the parameters in it. The file is damaged, or was made to exhaust "
                f"memory. Load another copy."
            )

    def take_lanes(self, count: int) -> None:
        """Subtracts the memory of `count` lanes; see `take`."""
        self.take(count * LANE_BYTES, "a number of lanes")


class AllocationGuard(TorchFunctionMode):
    """Context manager that limits what `torch.empty`, with which all layers allocate, may allocate on the CPU.

    A file whose arguments describe a network of terabytes, or of a million layers, is refused before memory is allocated.

    Args:
        parameters: tensors of the file by name.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.allowance = Allowance(parameters, FREE_BYTES)

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Kwargs | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            sizes = args[0] if args and isinstance(args[0], (tuple, list, torch.Size)) else args
            self._count(kwargs.get("size") or sizes)
        return func(*args, **kwargs)

    def _count(self, shape: Iterable[int]) -> None:
        """Subtracts one tensor of this shape, at 4 bytes per element, from what is left."""
        self.allowance.tensors_left -= 1
        size = 4 * math.prod(max(int(side), 0) for side in shape)
        self.allowance.take(math.inf if self.allowance.tensors_left < 0 else size, "networks")
