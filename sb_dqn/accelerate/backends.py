"""Faster versions of a function of tensors: the execution modes, and the backends of traced functions.

With small networks most of the time is overhead: an update of two layers of 64 spends it on Python and autograd
bookkeeping, not on arithmetic. `traced` turns the operations of one call, including the backward pass, into a graph
(`torch.fx`), and runs it with the first backend that supports it: NumPy if the operations are small
(`numpy_backend`), TorchScript where it is available (`torchscript`), otherwise a Python function that calls torch
(`fx_backend`). This needs no compiler and takes a tenth of a second. `compiled` passes the same graph to inductor.
`captured` holds the kernels of one call as a CUDA graph (`cuda_graph`). A traced function must have fixed shapes and no
Python branch on a tensor's value; its state must be in tensors that are written in place.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from sb_dqn.accelerate import cuda_graph, torchscript
from sb_dqn.accelerate.fx_backend import fx_function, without_gradients
from sb_dqn.accelerate.modes import Mode, traces_samples
from sb_dqn.accelerate.numpy_backend.function import numpy_function, slow_elements
from sb_dqn.accelerate.onednn_linear import replace_large_products
from sb_dqn.accelerate.simplification import simplify
from sb_dqn.accelerate.torch_internals import compile_graph, forgotten_source, shared_tracing_context
from sb_dqn.errors import ConfigurationError

Function = Callable[..., Any]


MAX_SLOW_ELEMENTS = 8_000
"""Results of exponentials and scatters in a graph above which TorchScript is faster than NumPy, as for C51."""


def accelerate(
    function: Function, example: tuple[Tensor, ...], mode: Mode, kept: Collection[int] | None = None
) -> Function:
    """Returns a version of `function` that runs in the given mode.

    Args:
        function: function of tensors that returns a tensor or a flat tuple of tensors.
        example: arguments to trace or compile with, of the shapes and dtypes of all later calls. `function` is called
            with them, so one more call must not spoil any state.
        mode: "eager", "traced", "compiled", or "captured" on CUDA, where compiled functions are captured too.
        kept: numbers of the outputs that later calls must not change; those of a captured function are copied, which costs a
            launch each. None: all.

    Returns:
        A callable with the same results; `function` itself if that fails, with a line on stderr.
    """
    if mode == "eager":
        return function
    make, method = MAKERS[mode]
    try:
        made = make(function, example)
    except ConfigurationError:  # a wrong argument is an error in any mode
        raise
    except Exception as error:  # missing compilers and modules that branch raise many types of errors
        reason = (str(error) or type(error).__name__).splitlines()[0]  # some errors have no message
        if isinstance(error, torch.cuda.OutOfMemoryError):
            reason += " Reduce batch_size or buffer_size, or set buffer_device='cpu'."
        print(f"sb_dqn: {method} failed, running without it: {reason}", file=sys.stderr)
        return function
    if isinstance(made, cuda_graph.Captured):
        made.kept = kept
    return made


def numpy_version(function: Function, example: tuple[Tensor, ...]) -> Function:
    """Returns a version of `function` that runs with NumPy; `function` itself if NumPy does not support an operation.

    Unlike those of `accelerate`, the results may take part in gradients: this is for small work around an eager network.
    """
    if not traces_samples():
        return function
    with forgotten_source():
        graph = _trace(function, example)
        simplify(graph)
        return numpy_function(graph, example) or function


def _trace(function: Function, example: tuple[Tensor, ...]) -> GraphModule:
    """Traces one call as a graph of tensor operations, without unused ones."""
    from torch.fx.experimental.proxy_tensor import make_fx  # half a second to import

    with _NoTensorToPython(), shared_tracing_context():
        # make_fx does not accept bound methods
        graph = make_fx(lambda *arguments: function(*arguments))(*example)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


class _NoTensorToPython(TorchFunctionMode):
    """Raises on conversions of tensors to Python that the tracer permits: the result would become a constant."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("numpy", "tolist", "__array__"):
            raise RuntimeError(
                f"a traced function must work on tensors only, got a call of {name}(), whose result would be read once instead "
                f"of at each update. Use operations of torch, or set torch_compile=False."
            )
        return func(*args, **(kwargs or {}))


@forgotten_source()
def _traced(function: Function, example: tuple[Tensor, ...]) -> Function:
    graph = _trace(function, example)
    simplify(graph)
    slow = torchscript.is_available() and slow_elements(graph) > MAX_SLOW_ELEMENTS
    by_numpy = None if slow else numpy_function(graph, example)
    if by_numpy is not None:
        return by_numpy
    replace_large_products(graph)
    if torchscript.is_available():
        return torchscript.torchscript_function(graph, example)
    return fx_function(graph, example)


def _compiled(function: Function, example: tuple[Tensor, ...]) -> Function:
    """Compiles a function, and captures it on CUDA."""
    graph = _trace(function, example)
    state = _lift_state(graph)
    compiled = compile_graph(graph, [*state, *example])
    run = without_gradients(lambda *arguments: compiled(*state, *arguments))
    run(*example)
    return cuda_graph.Captured(run, example) if all(tensor.is_cuda for tensor in example) else run


def _captured(function: Function, example: tuple[Tensor, ...]) -> Function:
    """Captures a function of fewer operations with the same results, bit for bit: without autograd, unused and repeated ones.

    Captures `function` itself if tracing does not support one of its operations.
    """
    try:
        with forgotten_source():
            graph = _trace(function, example)
            simplify(graph)
            function = fx_function(graph, example)
    except Exception:  # of many types; cuDNN's recurrent layers are not supported
        pass
    return cuda_graph.Captured(function, example)


MAKERS: dict[str, tuple[Callable[[Function, tuple[Tensor, ...]], Function], str]] = {
    "traced": (_traced, "tracing"),
    "compiled": (_compiled, "torch.compile"),
    "captured": (_captured, "capturing a CUDA graph"),
}
"""How to make each mode, and its name in messages."""


def _lift_state(graph: GraphModule) -> list[Tensor]:
    """Turns the tensors that are attributes of a graph into its first arguments; the compiler would freeze small ones."""
    first = next(node for node in graph.graph.nodes if node.op == "placeholder")
    inputs: dict[str, Node] = {}
    for node in [node for node in graph.graph.nodes if node.op == "get_attr"]:
        if node.target not in inputs:
            with graph.graph.inserting_before(first):
                inputs[node.target] = graph.graph.placeholder(f"state_{len(inputs)}")
        node.replace_all_uses_with(inputs[node.target])
        graph.graph.erase_node(node)
    graph.recompile()
    tensors = [getattr(graph, name).detach() for name in inputs]
    for name in inputs:
        delattr(graph, name)  # with a second name for the same memory, the compiler would copy on in-place writes
    return tensors


@contextmanager
def limit_threads(small: bool) -> Iterator[None]:
    """Sets torch to one thread for the block if `small`, since sharing little work among threads is slower."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def keep_freed_memory() -> None:
    """Makes the C library keep freed memory (glibc only; no effect elsewhere, or a second time).

    An update frees tens of megabytes of activations, which glibc returns to the system and maps again immediately. The
    page faults take 17 to 28 % of a run from pixels. Two `mallopt` parameters prevent this; the process keeps the memory.
    """
    if not sys.platform.startswith("linux"):
        return
    trim_threshold, mmap_threshold = -1, -3
    library = ctypes.CDLL(None)
    if getattr(library, "mallopt", None) is not None:
        # Some versions of glibc refuse more than 32 MiB, and setting either parameter ends the threshold's own growth.
        if not library.mallopt(mmap_threshold, 1 << 30):
            library.mallopt(mmap_threshold, 1 << 25)
        library.mallopt(trim_threshold, (1 << 31) - 1)
