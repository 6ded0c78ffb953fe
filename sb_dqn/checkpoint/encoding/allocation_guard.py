"""How much a file may ask for while its model is built: about as much as the parameters that lie in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sb_dqn.errors import CheckpointError

ROOM = 16 * 2**20
"""Bytes that are always allowed."""
TIMES = 8
"""And so many times the bytes, and the number, of the tensors in the file: online and target, noise, copies."""
CALLS = 1_000


class AllocationGuard(TorchFunctionMode):
    """While it is entered, `torch.empty` on the CPU, of which all layers are made, hands out no more than a file can need.

    A file whose arguments ask for a net of terabytes, or of a million layers, is refused before the memory is touched.

    Args:
        parameters: of the file.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        held = sum(tensor.numel() * tensor.element_size() for tensor in parameters.values())
        self.bytes, self.calls = ROOM + TIMES * held, CALLS + TIMES * len(parameters)

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func is torch.empty and torch.device(given.get("device") or "cpu").type == "cpu":
            self._count(args[0] if args and isinstance(args[0], (tuple, list, torch.Size)) else args, given.get("size"))
        return func(*args, **given)

    def _count(self, shape: Any, named: Any) -> None:
        count = 4
        for side in shape if named is None else named:
            count *= max(int(side), 0)
        self.bytes, self.calls = self.bytes - count, self.calls - 1
        if self.bytes < 0 or self.calls < 0:
            raise CheckpointError(
                "the arguments of the file ask for a far larger net than the parameters in it; the file is damaged, or made "
                "to use up the memory"
            )
