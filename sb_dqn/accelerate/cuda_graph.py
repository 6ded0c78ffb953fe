"""CUDA graphs: a function's kernels are recorded once and launched together by one call.

A small update is hundreds of kernels of a few microseconds each, and launching each of them from Python takes longer than
running it. A captured graph needs one launch. It reads and writes the same addresses each time, so all state must be in
tensors that are written in place, shapes must be fixed, and no value may be read by the host during the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

WARM_UP_CALLS = 3
"""Calls before the capture: libraries choose their kernels and allocate workspaces in the first ones."""


class Graph(Protocol):
    """Recorder of one call; a test replaces `CudaGraph` by one that runs on the CPU."""

    def capture(self, function: Callable[[], Any]) -> Any:
        """Returns the outputs of `function`, whose memory each `replay` writes again."""

    def replay(self) -> None: ...


class CudaGraph:
    """`torch.cuda.CUDAGraph`, with the warm-up on a side stream that PyTorch asks for.

    Args:
        device: of the tensors; a capture elsewhere would record nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._device = device

    def capture(self, function: Callable[[], Any]) -> Any:
        with torch.cuda.device(self._device):
            return self._capture(function)

    def _capture(self, function: Callable[[], Any]) -> Any:
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                function()
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self._graph):
            return function()

    def replay(self) -> None:
        self._graph.replay()


class Captured:
    """Version of a function that replays one captured call.

    The tensors of the example become the static inputs: arguments are copied into them, unless they are the same tensors.

    Args:
        function: function of tensors that returns a tensor or a flat tuple of tensors, without gradients.
        example: one or more arguments, of the shapes, dtypes and device of all later calls. The function is called with them a few
            times, so one more call must not spoil any state.
        graph: the recorder; None: a CUDA graph.

    Raises:
        RuntimeError: the function reads a value on the host or makes another call that cannot be captured.
    """

    def __init__(self, function: Callable[..., Any], example: tuple[Tensor, ...], graph: Graph | None = None) -> None:
        self._inputs = example
        self._graph = CudaGraph(example[0].device) if graph is None else graph
        self._outputs = self._graph.capture(lambda: function(*example))

    def __call__(self, *arguments: Tensor) -> Any:
        """Returns copies of the outputs, which later calls do not change."""
        for static, argument in zip(self._inputs, arguments, strict=True):
            if static is not argument:
                static.copy_(argument, non_blocking=True)
        self._graph.replay()
        if isinstance(self._outputs, Tensor):
            return self._outputs.clone()
        return tuple([output.clone() for output in self._outputs])
