"""Execution of traced graphs by TorchScript, which is deprecated in torch and unavailable from Python 3.14 on.

It runs a graph without Python. `fx_backend` computes the same in 1.06 to 1.23 times the time for updates of several hundred
operations of medium size, such as SAC's with layers of 256 units. This file can be deleted without other changes than the
removal of its call in `backends.py`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from sb_dqn.accelerate.fx_backend import without_gradients
from sb_dqn.accelerate.torch_internals import inline_functions

UNSUPPORTED = (
    "aten.convolution_backward.default",
    "aten.native_layer_norm_backward.default",
    "mkldnn._linear_pointwise.default",
)
"""Operations with arguments that are lists of bools, or of optional numbers. Names, since some builds of torch lack oneDNN."""


def is_available() -> bool:
    """Returns True if this Python supports TorchScript and the environment variable `SB_DQN_TORCHSCRIPT` is not "0"."""
    return sys.version_info < (3, 14) and os.environ.get("SB_DQN_TORCHSCRIPT", "1") != "0"


def torchscript_function(traced: GraphModule, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Returns a function that runs a graph under `torch.inference_mode`.

    Args:
        traced: graph of operations; it is modified.
        example: arguments of two trial runs.

    Raises:
        RuntimeError: the tracer does not support an operation.
    """
    _wrap_unsupported(traced)
    with torch.no_grad(), warnings.catch_warnings():
        # the tracer warns of constants, which are the parameters and the ring, and of its own deprecation
        warnings.simplefilter("ignore")
        script = torch.jit.trace(traced, example, check_trace=False)  # type: ignore[no-untyped-call]  # torch's
    inline_functions(script)  # the trace does not keep the functions that it calls alive
    run = without_gradients(script)
    run(*example)  # the first run is profiled, the others are optimized: sums may be in another order
    return run


def _wrap_unsupported(graph: GraphModule) -> None:
    """Replaces those operations in a graph by TorchScript functions of their tensors; other arguments become constants."""
    for number, node in enumerate(graph.graph.nodes):
        if str(node.target) in UNSUPPORTED:
            tensors = tuple(argument for argument in node.args if isinstance(argument, Node))
            function = _scripted(node)
            function.__name__ = f"scripted_{number}"
            node.target = function
            node.args = tensors
    graph.recompile()


def _scripted(node: Node) -> Callable[..., Any]:
    names = {argument: f"x{number}" for number, argument in enumerate(node.args) if isinstance(argument, Node)}
    parameters = ", ".join(f"{name}: Tensor" for name in names.values())
    arguments = ", ".join(names[value] if isinstance(value, Node) else repr(value) for value in node.args)
    results = node.meta["val"]
    is_single = isinstance(results, Tensor)
    is_computed = [True] if is_single else [result is not None for result in results]
    outputs = [f"y{number}" for number in range(len(is_computed))]
    returned = ", ".join(name for name, computed in zip(outputs, is_computed, strict=True) if computed)
    operation = f"torch.ops.{str(node.target).removesuffix('.default')}({arguments})"
    source = f"def run({parameters}):\n    {', '.join(outputs)} = {operation}\n    return [{returned}]\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        run = torch.jit.CompilationUnit(source).run

    def call(*tensors: Tensor) -> Any:
        computed = iter(run(*tensors))  # outputs that are not computed have no tensor, which the tracer rejects
        if is_single:
            return next(computed)
        return tuple(next(computed) if exists else None for exists in is_computed)

    return call
