"""One callable, three ways to run it: eager, traced, compiled.

Small nets are all overhead: of an update of two layers of 64 most of the time goes to Python and autograd bookkeeping,
not to arithmetic. `traced` records the operations of one call, the backward pass included, and replays the record: by
numpy where it knows them all and they are small (`array_replay`), else by TorchScript. It needs no compiler and takes a
tenth of a second. What is recorded must be a function of fixed shapes without a Python branch on a tensor's value; state
lives in tensors that are written in place.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.overrides import TorchFunctionMode

from sb_dqn.accelerate.numpy_backend.replay import array_replay
from sb_dqn.accelerate.onednn_linear import replace_products
from sb_dqn.accelerate.torchscript_workarounds import script_refused
from sb_dqn.errors import ConfigurationError

Mode = Literal["eager", "traced", "compiled"]
Function = Callable[..., Any]


def choose_mode(modules: list[nn.Module], device: torch.device, torch_compile: bool) -> Mode:
    """How to run functions of these modules on this device.

    A user's own module may branch on values, which a recording would freeze; on CUDA the recording has not been tried.
    """
    if torch_compile:
        return "compiled"
    ours = all(
        type(part).__module__.split(".")[0] in ("torch", "sb_dqn") for module in modules for part in module.modules()
    )
    return "traced" if ours and device.type == "cpu" else "eager"


class AsProducts:
    """Marks a convolution that is a product of matrices by itself: so short that overhead matters, and to be recorded."""

    weight: Tensor
    places: int
    """Pixels of what it returns: rows of the product for each image."""


def are_small(modules: Sequence[nn.Module], device: torch.device, rows: int = 0) -> bool:
    """Whether what these modules compute of so many rows is too little to be shared among threads.

    On the CPU, without convolutions but those of small images, and with less than 2**23 multiplications in the largest
    layer: there a second thread begins to pay.
    """
    parts = [part for module in modules for part in module.modules()]
    large = any(isinstance(part, nn.Conv2d) and not isinstance(part, AsProducts) for part in parts)
    if device.type != "cpu" or large:
        return False
    # a memory takes one step after another, each of a few rows
    layers = [weight for part in parts if not isinstance(part, nn.RNNBase) for weight in part.parameters(recurse=False)]
    linear = [weight.numel() for weight in layers if weight.ndim == 2]
    images = [part.places * part.weight.numel() for part in parts if isinstance(part, AsProducts)]
    return rows * max([*linear, *images], default=0) < 2**23


def accelerate(function: Function, example: tuple[Tensor, ...], mode: Mode) -> Function:
    """`function`, run as `mode` says.

    Args:
        function: of tensors, to a tensor or a flat tuple of them; called with tensors like `example` ever after.
        example: arguments to record or compile with; `function` is called with them, so it must change no state that
            one more call would spoil.
        mode: "eager", "traced" or "compiled".

    Returns:
        A callable that gives the same results; `function` itself, with a line to stderr, where it cannot be done.
    """
    if mode == "eager":
        return function
    make, called = (_compiled, "torch.compile") if mode == "compiled" else (_traced, "recording")
    try:
        return make(function, example)
    except ConfigurationError:  # what was called is wrong, however it is run
        raise
    except Exception as error:  # a missing compiler shows as many kinds of error, a module that branches as another
        why = (str(error) or type(error).__name__).splitlines()[0]  # some errors say nothing
        print(f"sb_dqn: {called} failed here, going on without it: {why}", file=sys.stderr)
        return function


def by_arrays(function: Function, example: tuple[Tensor, ...]) -> Function:
    """`function`, replayed by numpy; itself where numpy does not know all that it does.

    What comes out may take part in gradients, unlike that of `accelerate`: this is for what is small beside an eager net.
    """
    return array_replay(_record(function, example), example) or function


def _record(function: Function, example: tuple[Tensor, ...]) -> GraphModule:
    """One call as a graph of tensor operations, without those that nobody reads."""
    from torch._decomp import get_decompositions
    from torch._guards import TracingContext, tracing
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx  # half a second to import

    # the tracer knows no lists of truths, which the backward pass of layer norm takes as an argument
    plain: Any = get_decompositions([torch.ops.aten.native_layer_norm_backward])
    # without a context of tracing each operation makes a mode of its own: half of the time
    with _NothingLeaves(), tracing(TracingContext(FakeTensorMode())):
        # it does not take bound methods
        graph = make_fx(lambda *arguments: function(*arguments), decomposition_table=plain)(*example)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


class _NothingLeaves(TorchFunctionMode):
    """Refuses to hand a tensor's numbers to Python, where the tracer does not: what comes back would be a constant."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("numpy", "tolist", "__array__"):
            raise RuntimeError(f"a tensor's {name} would be read once, and not at each update")
        return func(*args, **(kwargs or {}))


def _traced(function: Function, example: tuple[Tensor, ...]) -> Function:
    graph = _record(function, example)
    replay = array_replay(graph, example)
    if replay is not None:
        return replay
    replace_products(graph)
    script_refused(graph)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer warns of constants: they are the parameters and the ring
        recording = torch.jit.trace(graph, example, check_trace=False)  # type: ignore[no-untyped-call]  # torch's
    torch._C._jit_pass_inline(recording.graph)  # it does not keep the functions that it calls alive
    return _without_gradients(recording)


def _compiled(function: Function, example: tuple[Tensor, ...]) -> Function:
    graph = _record(function, example)
    state = _lift_state(graph)
    from torch._inductor import (
        compile as compile_graph,  # past torch.compile's checks, which cost as much as a small update
    )
    from torch._inductor import config as inductor_config

    # what is read late cannot be written in place: a copy of the whole priority tree would be
    settings = {"reorder_for_locality": False}
    if inductor_config.cpp.vec_isa_ok is None:
        settings["cpp.vec_isa_ok"] = True  # no trial of the vector instructions, which takes a third of the time
    with inductor_config.patch(settings):
        compiled = compile_graph(graph, [*state, *example])
    run = _without_gradients(lambda *arguments: compiled(*state, *arguments))
    run(*example)
    return run


def _lift_state(graph: GraphModule) -> list[Tensor]:
    """Turns the tensors that a recording holds into its first arguments; the compiler would freeze small ones."""
    first = next(node for node in graph.graph.nodes if node.op == "placeholder")
    held: dict[str, Node] = {}
    for node in [node for node in graph.graph.nodes if node.op == "get_attr"]:
        if node.target not in held:
            with graph.graph.inserting_before(first):
                held[node.target] = graph.graph.placeholder(f"state_{len(held)}")
        node.replace_all_uses_with(held[node.target])
        graph.graph.erase_node(node)
    graph.recompile()
    tensors = [getattr(graph, name).detach() for name in held]
    for name in held:
        delattr(graph, name)  # a second name for the same memory would make the compiler copy what is written in place
    return tensors


def _without_gradients(function: Function) -> Function:
    inference = torch.inference_mode()  # made once; it spares each operation a fifth of its cost

    def run(*arguments: Tensor) -> Any:
        with inference:
            return function(*arguments)

    return run


@contextmanager
def few_threads(small: bool) -> Iterator[None]:
    """One thread for small nets: to share so little work costs more than it saves. Put back afterwards."""
    before = torch.get_num_threads()
    if small:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keep_freed_memory() -> None:
    """Lets the C library keep freed blocks (glibc alone; else nothing happens).

    An update frees tens of megabytes of activations, which glibc gives back to the system and maps anew at once: page
    faults that take 17 to 28 % of a run from pixels. Two numbers of `mallopt` stop that, at the price of memory that
    stays with the process.
    """
    global _keeps_memory
    if _keeps_memory or not sys.platform.startswith("linux"):
        return
    _keeps_memory = True
    trim_threshold, mmap_threshold = -1, -3
    library = ctypes.CDLL(None)
    if getattr(library, "mallopt", None) is not None:
        library.mallopt(mmap_threshold, 1 << 30)
        library.mallopt(trim_threshold, (1 << 31) - 1)


_keeps_memory = False
