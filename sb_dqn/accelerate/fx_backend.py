"""Replay of recorded graphs by a Python function that calls torch, without autograd.

Each operation is called through its function in torch's public interface where there is one: `torch.add(x, y)` reads its
arguments in half of the time of `torch.ops.aten.add.Tensor(x, y)`, which matches them with a schema.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from sb_dqn.accelerate.graph_code import function_of, without_gradients

aten = torch.ops.aten

IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType)
"""Types of the functions of torch, and of the methods of its tensors, that take the arguments of their operation in its order."""


def public_function(node: Node) -> Any:
    """Returns the function or method of torch with the name of a node's operation; the operation itself if there is none."""
    operation: Any = node.target
    library, name, *_ = (*str(operation).split("."), "")
    if library != "aten" or (name.startswith("index_put") and None in node.args[1]):  # type: ignore[operator]
        return operation  # the functions of this name do not accept None
    name = "view" if name == "_unsafe_view" else name
    found = [getattr(place, name, None) for place in (torch, Tensor)]
    return next((function for function in found if isinstance(function, IN_C)), operation)


def fx_replay(traced: GraphModule, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Returns a function that replays a graph under `torch.inference_mode`.

    Args:
        traced: graph of operations, which is not modified. Its tensors are read and written in place.
        example: arguments of one trial run.

    Raises:
        RuntimeError: an operation does not support inference mode.
    """
    graph = Graph()
    graph.output(graph.graph_copy(traced.graph, {}))
    for node in graph.nodes:
        if node.op == "call_function":
            _translate(node)
    attributes = {str(node.target): _detached(traced, str(node.target)) for node in graph.find_nodes(op="get_attr")}
    run = without_gradients(function_of(graph, attributes))
    run(*example)
    return run


def _detached(traced: GraphModule, name: str) -> Any:
    value = getattr(traced, name)
    return value.detach() if isinstance(value, Tensor) else value


def _translate(node: Node) -> None:
    if node.target is aten.slice.Tensor:
        source: Any = node.args[0]
        arguments: list[Any] = list(node.args[1:])
        axis, start, end, step = arguments + [0, None, None, 1][len(arguments) :]
        before: tuple[Any, ...] = (slice(None),) * (axis % source.meta["val"].ndim)
        node.target = operator.getitem
        node.args = (source, (*before, slice(start, end, step)))
    elif node.target is aten._to_copy.default and set(node.kwargs) <= {"dtype", "device"}:
        node.target = Tensor.to
        node.kwargs = {**node.kwargs, "copy": True}
    else:
        node.target = public_function(node)
