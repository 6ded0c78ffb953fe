"""One callable, three ways to run it: eager, traced, compiled.

Small nets are all overhead: of an update of two layers of 64 most of the time goes to Python and autograd bookkeeping,
not to arithmetic. `traced` records the operations of one call, the backward pass included, and replays the record
without Python. It needs no compiler and takes a tenth of a second. What is recorded must be a function of fixed shapes
without a Python branch on a tensor's value; state lives in tensors that are written in place.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

Mode = Literal["eager", "traced", "compiled"]
Function = Callable[..., Any]


def choose_mode(modules: list[nn.Module], device: torch.device, torch_compile: bool) -> Mode:
    """How to run functions of these modules on this device.

    Convolutions take so long that overhead does not matter; a user's own module may branch on values, which a
    recording would freeze; on CUDA the recording has not been tried.
    """
    if torch_compile:
        return "compiled"
    parts = [part for module in modules for part in module.modules()]
    ours = all(type(part).__module__.split(".")[0] in ("torch", "sb_dqn") for part in parts)
    images = any(isinstance(part, nn.Conv2d) for part in parts)
    return "traced" if ours and not images and device.type == "cpu" else "eager"


def accelerate(function: Function, example: tuple[Tensor, ...], mode: Mode) -> Function:
    """`function`, run as `mode` says.

    Args:
        function: of tensors, to a tensor or a flat tuple of them; called with tensors like `example` ever after.
        example: arguments to record or compile with; `function` is called with them, so it must change no state that
            one more call would spoil.
        mode: "eager", "traced" or "compiled".

    Returns:
        A callable that gives the same results.
    """
    if mode == "compiled":
        return _compiled(function, example)
    return _traced(function, example) if mode == "traced" else function


def _traced(function: Function, example: tuple[Tensor, ...]) -> Function:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda *arguments: function(*arguments))(*example)  # it does not take bound methods
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the recorder warns of constants: they are the parameters and the ring
        recording = torch.jit.trace(graph, example, check_trace=False)  # type: ignore[no-untyped-call]  # torch's

    no_grad = torch.no_grad()  # made once: making it costs more than entering it

    def replay(*arguments: Tensor) -> Any:
        with no_grad:
            return recording(*arguments)

    return replay


def _compiled(function: Function, example: tuple[Tensor, ...]) -> Function:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = function
    try:
        graph = make_fx(lambda *arguments: function(*arguments))(*example)
        compiled = torch.compile(graph)
        with torch.no_grad():
            compiled(*example)
    except Exception as error:  # a missing compiler shows as many kinds of error, a module that branches as another
        print(f"sb_dqn: torch.compile failed here, going on without it: {str(error).splitlines()[0]}", file=sys.stderr)
        return graph

    def run(*arguments: Tensor) -> Any:
        with torch.no_grad():
            return compiled(*arguments)

    return run


@contextmanager
def few_threads(mode: Mode) -> Iterator[None]:
    """One thread for recorded functions: what they compute is too small to be shared, and sharing costs more than it saves."""
    before = torch.get_num_threads()
    if mode == "traced":
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
