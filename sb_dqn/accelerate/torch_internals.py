"""All private names of torch that the package uses, with a fallback where there is one.

`tests/accelerate/test_torch_internals.py` fails when a new torch moves or removes a name.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule

from sb_dqn.types import Kwargs

TRACING_MODULES = ("torch._dynamo", "torch.fx.experimental.proxy_tensor")
"""Modules that the first tracing imports, which is slow and takes memory."""


@contextmanager
def shared_tracing_context() -> Iterator[None]:
    """Lets all operations of a trace share one fake-tensor mode, which halves its time; no effect if torch lacks it."""
    try:
        from torch._guards import TracingContext, tracing
        from torch._subclasses.fake_tensor import FakeTensorMode
    except ImportError:
        yield
        return
    with tracing(TracingContext(FakeTensorMode())):
        yield


@contextmanager
def forgotten_source() -> Iterator[None]:
    """Drops the source of the graphs that the block compiles, which torch keeps for tracebacks as long as the process runs;
    no effect if torch has moved it."""
    try:
        from torch.fx.graph_module import _loader

        kept: dict[str, str] = _loader.eval_cache
    except (ImportError, AttributeError):
        yield
        return
    before = set(kept)
    try:
        yield
    finally:
        for name in kept.keys() - before:
            del kept[name]
            linecache.cache.pop(name, None)


def compile_graph(graph: GraphModule, example: list[Any]) -> Callable[..., Any]:
    """Compiles a graph with inductor, without the checks of `torch.compile`, which take as long as a small update.

    Falls back on `torch.compile` if torch has moved the function.
    """
    try:
        from torch._inductor import compile as compile_by_inductor
        from torch._inductor import config
    except ImportError:
        return torch.compile(graph)
    # reordered reads would prevent writing in place and copy the whole priority tree
    settings: Kwargs = {"reorder_for_locality": False}
    if config.cpp.vec_isa_ok is None:
        settings["cpp.vec_isa_ok"] = True  # skips a test of the vector instructions, a third of the compile time
    with config.patch(settings):
        return compile_by_inductor(graph, example)  # type: ignore[no-any-return]


def has_mkl_and_onednn() -> bool:
    """Returns True if torch was built with both libraries; False if it does not say so."""
    has_mkl, has_onednn = (getattr(torch._C, name, False) for name in ("has_mkl", "_has_mkldnn"))
    return bool(has_mkl and has_onednn and onednn_linear() is not None)


def onednn_linear() -> Any:
    """Returns oneDNN's linear layer as an operation for graphs; None if torch has none."""
    packet = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if packet is None else packet.default


def is_tracing() -> bool:
    """Returns True while `make_fx` or another dispatch mode traces operations; False if torch does not say so."""
    length: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", int)
    return length() > 0


def fused_adam_kernel(decoupled: bool) -> Callable[..., Any] | None:
    """Returns the kernel of `Adam` or, with decoupled weight decay, `AdamW`; None if torch has moved it."""
    return getattr(torch, "_fused_adamw_" if decoupled else "_fused_adam_", None)


def inline_functions(script: Any) -> None:
    """Inlines the functions that a TorchScript trace calls; without effect if torch has moved the pass."""
    inline = getattr(torch._C, "_jit_pass_inline", None)
    if inline is not None:
        inline(script.graph)
