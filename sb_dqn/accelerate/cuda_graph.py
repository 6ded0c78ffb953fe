"""CUDA graphs: a function's kernels are captured once and launched together by one call.

A small update is hundreds of kernels of a few microseconds each, and launching each of them from Python takes longer than
running it. A captured graph needs one launch. It reads and writes the same addresses each time, so all state must be in
tensors that are written in place, shapes must be fixed, and no value may be read by the host during the call.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

WARM_UP_CALLS = 3
"""Calls before the capture: libraries choose their kernels and allocate workspaces in the first ones."""


class CudaGraph:
    """`torch.cuda.CUDAGraph`, warmed up and captured on a side stream of its own.

    A capture that fails leaves the current stream and torch's generator as they were.

    Args:
        device: of the tensors, with its index; a capture elsewhere would capture nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graph = torch.cuda.CUDAGraph()
        self._side = _side_stream(device)
        self._side.graphs.append(self._graph)

    def capture(self, function: Callable[[], Any]) -> Any:
        """Returns the outputs of `function`, whose memory each `launch` writes again."""
        with torch.cuda.device(self._device):
            stream = self._side.stream
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(WARM_UP_CALLS):
                    function()
            torch.cuda.current_stream().wait_stream(stream)
            # the graph's memory is a pool of its own, for which a capture cannot free what is cached
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            with torch.cuda.stream(stream), _no_garbage_collection():
                return self._captured(function)

    def _captured(self, function: Callable[[], Any]) -> Any:
        # other threads may allocate memory and query events meanwhile, as writers of checkpoints do
        self._graph.capture_begin(capture_error_mode="thread_local")
        try:
            outputs = function()
        except BaseException:
            with suppress(RuntimeError):  # says only that an earlier call failed
                self._graph.capture_end()
            _capture_nothing()
            raise
        self._graph.capture_end()
        return outputs

    def launch(self) -> None:
        self._graph.replay()


class _SideStream:
    """Stream with the graphs that were captured on it, whose memory is freed together.

    cuBLAS allocates a workspace for each stream, whose address a graph keeps. From torch 2.13 on, a graph that is destroyed
    frees the workspaces of its stream, so no other graph may use them any more. A second graph gets the stream only if torch,
    which has 32 for a device, has no other.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.graphs: list[torch.cuda.CUDAGraph] = []
        weakref.finalize(self, _free, self.graphs, stream, _idle_streams[stream.device])


_idle_streams: defaultdict[torch.device, list[torch.cuda.Stream]] = defaultdict(list)
"""Streams whose graphs are gone. They are used again, since their workspaces of 65 MiB stay allocated before torch 2.13."""
_side_streams: weakref.WeakValueDictionary[torch.cuda.Stream, _SideStream] = weakref.WeakValueDictionary()


def _side_stream(device: torch.device) -> _SideStream:
    try:
        stream = _idle_streams[device].pop()
    except IndexError:
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's
    side = _side_streams.get(stream)
    if side is None:
        side = _side_streams[stream] = _SideStream(stream)
    return side


def _free(graphs: list[torch.cuda.CUDAGraph], stream: torch.cuda.Stream, idle: list[torch.cuda.Stream]) -> None:
    for graph in graphs:
        graph.reset()  # before the next graph gets the stream
    idle.append(stream)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keeps cyclic garbage for the block: destroying another graph or pinned memory may make a capture fail."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _capture_nothing() -> None:
    """Ends the capturing state of torch's global generator, in which a failed capture leaves it up to torch 2.11."""
    graph = torch.cuda.CUDAGraph()
    with suppress(RuntimeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the graph is empty
        graph.capture_begin(capture_error_mode="thread_local")
        graph.capture_end()


class Captured:
    """Version of a function that launches the kernels of one captured call.

    The tensors of the example become the static inputs: arguments are copied into them, unless they are the same tensors.
    The next call overwrites outputs that are not `kept`.

    Args:
        function: function of tensors that returns a tensor or a flat tuple of tensors, without gradients.
        example: one or more arguments, of the shapes, dtypes and device of all later calls. The function is called with them a few
            times, so one more call must not spoil any state.
        graph: an object with the methods of `CudaGraph`; None: a CUDA graph.

    Raises:
        RuntimeError: the function reads a value on the host or makes another call that cannot be captured.
    """

    def __init__(self, function: Callable[..., Any], example: tuple[Tensor, ...], graph: Any = None) -> None:
        self.kept: Collection[int] | None = None
        """Numbers of the outputs that are copied; None: all."""
        self._inputs = example
        self._graph: Any = CudaGraph(example[0].device) if graph is None else graph
        self._outputs = self._graph.capture(lambda: function(*example))

    def __call__(self, *arguments: Tensor) -> Any:
        """Returns the outputs: copies of those that are kept."""
        for static, argument in zip(self._inputs, arguments, strict=True):
            if static is not argument:
                static.copy_(argument, non_blocking=True)
        self._graph.launch()
        if isinstance(self._outputs, Tensor):
            return self._kept(0, self._outputs)
        return tuple([self._kept(number, output) for number, output in enumerate(self._outputs)])

    def _kept(self, number: int, output: Tensor) -> Tensor:
        return output.clone() if self.kept is None or number in self.kept else output
