"""Execution of traced graphs with NumPy, whose overhead per small operation is a third of torch's."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node, map_arg

from sb_dqn.accelerate.fx_backend import function_of, public_function
from sb_dqn.accelerate.numpy_backend.operations import DTYPES, IN_PLACE, OPERATIONS, aten
from sb_dqn.accelerate.numpy_backend.views import FACTORIES, FILLS, VIEW_FACTORIES, VIEWS
from sb_dqn.accelerate.onednn_linear import is_faster_with_onednn, product
from sb_dqn.accelerate.simplification import CONSTANT, root, written_roots
from sb_dqn.types import Array

PRODUCTS = {aten.mm.default: 0, aten.bmm.default: 0, aten.mv.default: 0, aten.addmm.default: 1}
"""Matrix products, with the position of the first factor among the arguments."""
MAX_PRODUCT = 2**18
"""Multiplications in a matrix product; above, OpenBLAS would use several threads, and torch computes the product."""
MAX_ROW_PRODUCT = 9_000
"""Limit for a product in which one factor is a single row."""
SLOW = {aten._softmax.default, aten._log_softmax.default, aten.exp.default, aten.log.default, aten.scatter_add.default}
MAX_ELEMENTS = 2**15
"""Elements of a result in a graph with large products; above, torch is faster for the other operations as well."""


class NumpyFunction:
    """A graph as a function that NumPy runs on the memory of its tensors.

    Args:
        traced: graph of operations on the CPU; it is not modified.
        translated: the same with NumPy's operations.
    """

    def __init__(self, traced: GraphModule, translated: GraphModule) -> None:
        self._traced = traced
        self._forward = _function(translated)
        self._addresses = _addresses(traced)

    def __call__(self, *inputs: Tensor) -> Any:
        """Returns the results for tensors, as tensors."""
        result = self.on_arrays(*[tensor.numpy() for tensor in inputs])
        if isinstance(result, tuple):
            return tuple([torch.from_numpy(np.asarray(array)) for array in result])
        return torch.from_numpy(np.asarray(result))

    @np.errstate(all="ignore")  # torch does not warn of a division by 0 either
    def on_arrays(self, *inputs: Array) -> Any:
        """Returns the results for arrays, as arrays or NumPy scalars."""
        for tensor, address in self._addresses:
            if tensor.data_ptr() != address:
                self._forward, self._addresses = _function(_translated(self._traced)), _addresses(self._traced)
                break
        return self._forward(*inputs)


def numpy_function(traced: GraphModule, example: tuple[Tensor, ...]) -> NumpyFunction | None:
    """Returns a function that runs a graph with NumPy; None if NumPy does not support it.

    Args:
        traced: graph of operations on the CPU; it is not modified.
        example: arguments for one trial run.
    """
    nodes = list(traced.graph.nodes)
    if not all(_is_supported(node) for node in nodes):
        return None
    if any(map(_is_large_product, nodes)) and max(map(_elements, nodes)) > MAX_ELEMENTS:
        return None
    try:
        module = _translated(traced)
        with np.errstate(all="ignore"):
            _check(module, [tensor.numpy() for tensor in example])
    except (_ResultDiffers, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None  # the NumPy version does not support an argument
    return NumpyFunction(traced, module)


def _function(translated: GraphModule) -> Callable[..., Any]:
    names = [str(node.target) for node in translated.graph.find_nodes(op="get_attr")]
    return function_of(translated.graph, {name: getattr(translated, name) for name in names})


def _addresses(traced: GraphModule) -> list[tuple[Tensor, int]]:
    """Returns a tensor of each storage in a graph with its address, which changes if it is sent to another process."""
    names = [str(node.target) for node in traced.graph.nodes if node.op == "get_attr"]
    attributes = [getattr(traced, name) for name in names if not name.startswith(CONSTANT)]
    by_storage = {tensor.untyped_storage().data_ptr(): tensor for tensor in attributes if torch.is_tensor(tensor)}
    return [(tensor, tensor.data_ptr()) for tensor in by_storage.values()]


def _is_supported(node: Node) -> bool:
    """Returns True if the operation has a NumPy version and is small enough."""
    if node.op != "call_function" or node.target is operator.getitem:
        return node.op in ("placeholder", "get_attr", "output", "call_function")
    if node.target in IN_PLACE and node.args[0].meta["val"].ndim == 0 and node.args[0].op != "get_attr":  # type: ignore[union-attr]
        return False  # NumPy scalars cannot be written to
    return any(node.target in table for table in (OPERATIONS, IN_PLACE, VIEWS, VIEW_FACTORIES, FILLS, FACTORIES))


def _elements(node: Node) -> int:
    """Returns the number of elements of a computed result."""
    if node.op != "call_function" or not torch.is_tensor(node.meta["val"]):
        return 0
    return int(node.meta["val"].numel())


def slow_elements(traced: GraphModule) -> int:
    """Returns the number of results of operations for which NumPy takes much longer than torch: exponentials and scatters."""
    return sum(_elements(node) for node in traced.graph.nodes if node.target in SLOW)


def _is_large_product(node: Node) -> bool:
    """Returns True if OpenBLAS would compute the product with several threads, or is slower than torch."""
    if node.target not in PRODUCTS:
        return False
    first = PRODUCTS[node.target]
    left, right = (node.args[first + offset].meta["val"].shape for offset in (0, 1))  # type: ignore[union-attr]
    columns = right[-1] if len(right) > 1 else 1
    is_row = min(left[-2] if len(left) > 1 else 1, columns) == 1
    return bool(left.numel() * columns > (MAX_ROW_PRODUCT if is_row else MAX_PRODUCT))


def _translated(traced: GraphModule) -> GraphModule:
    """Returns a copy of a graph with NumPy operations and arrays in place of torch operations and tensors."""
    graph = Graph()
    graph.output(graph.graph_copy(traced.graph, {}))
    module = GraphModule(traced, graph)
    written = written_roots(graph)
    for node in graph.find_nodes(op="call_function", target=aten.expand.default):
        node.meta["is_written"] = root(node) in written  # before the operations are translated
    for node in list(graph.nodes):
        if node.op == "get_attr" and torch.is_tensor(tensor := getattr(module, node.target)):
            delattr(module, node.target)
            setattr(module, node.target, tensor.detach().numpy())
        elif node.op == "call_function" and node.target is not operator.getitem:
            node.target = _operation(node)
    for node in reversed(list(graph.nodes)):  # in-place operations have no users either, but must stay
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return module


def _dtype(node: Node) -> np.dtype[Any]:
    return DTYPES[node.meta["val"].dtype]


def _operation(node: Node) -> Callable[..., Any]:
    """Returns the NumPy version of a node's operation, with an explicit dtype if NumPy's default differs from torch's."""
    if _is_large_product(node):
        return _by_torch(node)
    factory = VIEW_FACTORIES.get(node.target) or FACTORIES.get(node.target)
    if factory is not None:
        return factory(*node.args, **node.kwargs)
    if node.target in FILLS:
        shape, dtype, value = tuple(node.meta["val"].shape), _dtype(node), FILLS[node.target]
        return lambda *_, **__: np.full(shape, value, dtype)
    if node.target is aten.expand.default and _elements(node) <= MAX_ELEMENTS and not node.meta["is_written"]:
        shape, dtype = tuple(node.meta["val"].shape), _dtype(node)

        def expand(x: object, _: Any) -> Any:
            """Copies memory that no operation writes; `np.broadcast_to` takes longer."""
            y = np.empty(shape, dtype)
            y[...] = x
            return y

        return expand
    function = {**OPERATIONS, **IN_PLACE, **VIEWS}[node.target]
    if isinstance(function, np.ufunc) and node.meta["val"].dtype != torch.bool:
        operands = [_dtype(arg) if isinstance(arg, Node) else arg for arg in node.args]
        # also for 0-d results: NumPy before 2 treats a Python number as float64
        if np.result_type(*operands) != _dtype(node) or node.meta["val"].ndim == 0:  # type: ignore[arg-type]
            return partial(function, dtype=_dtype(node))
    return function


def _by_torch(node: Node) -> Callable[..., Any]:
    """Returns torch's version of a product on arrays, with oneDNN where that is faster."""
    if is_faster_with_onednn(node):
        if node.target is aten.mm.default:
            return lambda x, w: product(_tensor(x), _tensor(w).t(), None).numpy()
        return lambda bias, x, w: product(_tensor(x), _tensor(w).t(), _tensor(bias)).numpy()
    multiply = public_function(node)
    return lambda *arrays: multiply(*[_tensor(array) for array in arrays]).numpy()


_tensor: Callable[[Any], Tensor] = torch.from_numpy


class _ResultDiffers(Exception):
    """A NumPy result has another shape or dtype than torch's."""


def _check(module: GraphModule, inputs: list[Any]) -> None:
    """Runs a translated graph once, node by node, and checks the shape and dtype of each result."""
    results: dict[Node, Any] = {}
    arrays = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "output":
            return
        if node.op == "call_function":
            args, kwargs = map_arg(node.args, results.__getitem__), map_arg(node.kwargs, results.__getitem__)
            results[node] = node.target(*args, **kwargs)
        else:
            results[node] = next(arrays) if node.op == "placeholder" else getattr(module, node.target)
        expected = node.meta["val"]
        if torch.is_tensor(expected):
            array = np.asarray(results[node])
            if array.shape != tuple(expected.shape) or array.dtype != _dtype(node):
                raise _ResultDiffers(
                    f"{node.name} must be {expected.dtype} {tuple(expected.shape)}, got {array.dtype} {array.shape}"
                )
