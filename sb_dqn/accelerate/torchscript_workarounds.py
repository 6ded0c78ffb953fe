"""Wrappers for operations that TorchScript can run but its tracer cannot record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

UNSUPPORTED = ("aten.convolution_backward.default", "mkldnn._linear_pointwise.default")
"""Operations with arguments that are lists of bools, or of optional numbers. Names, since some builds of torch lack oneDNN."""


def wrap_unsupported(graph: GraphModule) -> None:
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
    run = torch.jit.CompilationUnit(source).run

    def call(*tensors: Tensor) -> Any:
        computed = iter(run(*tensors))  # outputs that are not computed have no tensor, which the tracer rejects
        if is_single:
            return next(computed)
        return tuple(next(computed) if exists else None for exists in is_computed)

    return call
