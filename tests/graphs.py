"""A stand-in for CUDA graphs, so that captured training runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class CpuGraph:
    """Graph that calls the function again at each launch and writes its outputs to the same memory."""

    def __init__(self) -> None:
        self.launches = 0

    def capture(self, function: Callable[[], Any]) -> Any:
        self.function = function
        self.outputs = function()
        return self.outputs

    def launch(self) -> None:
        self.launches += 1
        new = self.function()
        single = isinstance(self.outputs, Tensor)
        with torch.inference_mode():  # outputs of a trace are inference tensors
            for static, output in zip(
                [self.outputs] if single else self.outputs, [new] if single else new, strict=True
            ):
                static.data.copy_(output)
