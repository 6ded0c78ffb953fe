"""Memory limit for networks that are built from the arguments in a model file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sb_dqn.errors import CheckpointError

FREE_BYTES = 16 * 2**20
"""Bytes that are always allowed."""
FREE_CALLS = 1_000
"""Tensors that are always allowed."""
FACTOR = 8
"""Further allowance: this many times the bytes and the number of the tensors in the file (online and target networks,
noise, copies)."""


class AllocationGuard(TorchFunctionMode):
    """Context manager that limits what `torch.empty`, with which all layers allocate, may allocate on the CPU.

    A file whose arguments describe a network of terabytes, or of a million layers, is refused before memory is allocated.

    Args:
        parameters: tensors of the file by name.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        stored = sum(tensor.numel() * tensor.element_size() for tensor in parameters.values())
        self.bytes_left = FREE_BYTES + FACTOR * stored
        self.calls_left = FREE_CALLS + FACTOR * len(parameters)

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            sizes = args[0] if args and isinstance(args[0], (tuple, list, torch.Size)) else args
            self._count(kwargs.get("size") or sizes)
        return func(*args, **kwargs)

    def _count(self, shape: Iterable[int]) -> None:
        """Subtracts one tensor of this shape, at 4 bytes per element, from what is left."""
        count = 4
        for side in shape:
            count *= max(int(side), 0)
        self.bytes_left -= count
        self.calls_left -= 1
        if self.bytes_left < 0 or self.calls_left < 0:
            raise CheckpointError(
                "the arguments of the file describe a far larger network than the parameters in it. The file is damaged, or "
                "was made to exhaust memory. Load another copy."
            )
