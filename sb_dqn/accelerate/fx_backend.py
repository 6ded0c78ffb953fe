"""Execution of traced graphs by a Python function that calls torch, without autograd.

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

from sb_dqn.types import Settings

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


def fx_function(traced: GraphModule, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Returns a function that runs a graph under `torch.inference_mode`.

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


LITERALS = (int, bool, str, type(None))
"""Types of arguments that are written into the code; others become global variables."""


def function_of(graph: Graph, attributes: Settings) -> Callable[..., Any]:
    """Returns a function that makes the calls of a graph, and drops each result after its last use.

    Args:
        graph: graph of placeholders, attributes, and calls of functions.
        attributes: values of the `get_attr` nodes by target; bound when the function is made.
    """
    code = _Code(attributes)
    last_uses = _last_uses(graph)
    for node in graph.nodes:
        code.add(node, last_uses.get(node, []))
    return code.function()


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Returns the arguments that each node is the last to use."""
    used: set[Node] = set()
    result: dict[Node, list[Node]] = {}
    for node in reversed(graph.nodes):
        result[node] = [one for one in node.all_input_nodes if one not in used]
        used.update(node.all_input_nodes)
        if not node.users:
            result[node].append(node)
    return result


def without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of tensors that runs under `torch.inference_mode`, where each operation costs a fifth less."""
    inference = torch.inference_mode()  # made once

    def run(*arguments: Tensor) -> Any:
        with inference:
            return function(*arguments)

    return run


class _Code:
    def __init__(self, attributes: Settings) -> None:
        self.attributes = attributes
        self.variables: dict[str, Any] = {}
        self.names: dict[Node, str] = {}
        self.parameters: list[str] = []
        self.lines: list[str] = []
        self.known: dict[int, str] = {}

    def add(self, node: Node, dropped: list[Node]) -> None:
        if node.op == "get_attr":
            self.names[node] = self._variable(self.attributes[str(node.target)])
        elif node.op == "placeholder":
            self.names[node] = f"v{len(self.names)}"
            self.parameters.append(self.names[node])
        elif node.op == "output":
            self.lines.append(f"return {self._expression(node.args[0])}")
        else:
            arguments = [self._expression(one) for one in node.args]
            arguments += [f"{key}={self._expression(one)}" for key, one in node.kwargs.items()]
            name = self.names[node] = f"v{len(self.names)}"
            self.lines.append(f"{name} = {self._variable(node.target)}({', '.join(arguments)})")
            names = [self.names[one] for one in dropped if one.op == "call_function"]
            if names:
                self.lines.append(f"{' = '.join(names)} = None")

    def function(self) -> Callable[..., Any]:
        body = "\n    ".join(self.lines)
        exec(f"def run({', '.join(self.parameters)}):\n    {body}\n", self.variables)
        function: Callable[..., Any] = self.variables["run"]
        return function

    def _variable(self, value: object) -> str:
        name = self.known.get(id(value))
        if name is None:
            name = self.known[id(value)] = f"c{len(self.variables)}"
            self.variables[name] = value  # kept, so that its id stays its own
        return name

    def _expression(self, value: object) -> str:
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, list | tuple):
            parts = [self._expression(one) for one in value]
            return f"({', '.join(parts)},)" if parts else "()"
        if type(value) in LITERALS:
            return repr(value)
        return self._variable(value)
