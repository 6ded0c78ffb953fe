"""Python functions made from graphs of calls, with all constants as global variables of the function.

`GraphModule.forward` reads each parameter through `nn.Module.__getattr__` and makes each list of numbers again at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

LITERALS = (int, bool, str, type(None))
"""Types of arguments that are written into the code; others become global variables."""


def function_of(graph: Graph, attributes: Mapping[str, Any]) -> Callable[..., Any]:
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
    def __init__(self, attributes: Mapping[str, Any]) -> None:
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
        exec(f"def replay({', '.join(self.parameters)}):\n    {body}\n", self.variables)
        function: Callable[..., Any] = self.variables["replay"]
        return function

    def _variable(self, value: Any) -> str:
        name = self.known.get(id(value))
        if name is None:
            name = self.known[id(value)] = f"c{len(self.variables)}"
            self.variables[name] = value  # kept, so that its id stays its own
        return name

    def _expression(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, list | tuple):
            parts = [self._expression(one) for one in value]
            return f"({', '.join(parts)},)" if parts else "()"
        if type(value) in LITERALS:
            return repr(value)
        return self._variable(value)
