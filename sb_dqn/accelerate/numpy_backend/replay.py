"""Replays a recording by numpy, which takes a third of the time that torch takes to get from one small operation to the next."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node, map_arg

from sb_dqn.accelerate.numpy_backend.operations import DTYPES, INTO, OPERATIONS, aten
from sb_dqn.accelerate.numpy_backend.views import FILLS, MADE, VIEWS

PRODUCTS = {aten.mm.default: 0, aten.mv.default: 0, aten.addmm.default: 1}
"""Where the first factor stands among the arguments."""
MOST = 2**18
"""Multiplications in one product of matrices: from there on OpenBLAS shares it among threads, and arithmetic counts for more
than what is around it."""
MOST_OF_A_ROW = 9_000
"""The same where one of them is a single row."""


def array_replay(recording: GraphModule, example: tuple[Tensor, ...]) -> Callable[..., Any] | None:
    """What replays a recording on the memory of the tensors that it holds; None where it is not for numpy.

    Args:
        recording: on the CPU; it stays as it is.
        example: arguments to try it with; they are run once.
    """
    if not all(_is_known(node) for node in recording.graph.nodes):
        return None
    try:
        module = _translated(recording)
        with np.errstate(all="ignore"):
            _try(module, [given.numpy() for given in example])
    except (_Differs, TypeError, ValueError, KeyError, IndexError, AttributeError):
        return None  # an argument that numpy's form does not take
    module.recompile()
    forward, places = module.forward, _places(recording)

    @np.errstate(all="ignore")  # torch, too, divides by 0 in silence
    def run(*given: Tensor) -> Any:
        nonlocal forward, places
        for tensor, place in places:
            if tensor.data_ptr() != place:
                module = _translated(recording)
                module.recompile()
                forward, places = module.forward, _places(recording)
                break
        answer = forward(*[tensor.numpy() for tensor in given])
        if isinstance(answer, tuple):
            return tuple([torch.from_numpy(np.asarray(array)) for array in answer])
        return torch.from_numpy(np.asarray(answer))

    return run


def _places(recording: GraphModule) -> list[tuple[Tensor, int]]:
    """A tensor of each piece of memory that a recording holds, and where it lies: one that is sent to another process
    moves into shared memory."""
    held = [getattr(recording, str(node.target)) for node in recording.graph.nodes if node.op == "get_attr"]
    one = {tensor.untyped_storage().data_ptr(): tensor for tensor in held if torch.is_tensor(tensor)}
    return [(tensor, tensor.data_ptr()) for tensor in one.values()]


def _is_known(node: Node) -> bool:
    """Whether there is an operation of numpy's for this one, and it is small enough."""
    if node.op != "call_function" or node.target in (operator.getitem, aten.detach.default, aten.scalar_tensor.default):
        return node.op in ("placeholder", "get_attr", "output", "call_function")
    if node.target in PRODUCTS:
        first = PRODUCTS[node.target]
        left, right = (node.args[first + place].meta["val"].shape for place in (0, 1))  # type: ignore[union-attr]
        columns = right[1] if len(right) == 2 else 1
        alone = min(left[0], columns) == 1
        return bool(left[0] * left[1] * columns <= (MOST_OF_A_ROW if alone else MOST))
    if node.target in INTO and node.args[0].meta["val"].ndim == 0 and node.args[0].op != "get_attr":  # type: ignore[union-attr]
        return False  # numpy's numbers cannot be written into
    return any(node.target in known for known in (OPERATIONS, INTO, VIEWS, FILLS, MADE))


def _translated(recording: GraphModule) -> GraphModule:
    """A copy with numpy's operations in the place of torch's, on arrays in the place of the tensors that it holds."""
    graph = Graph()
    graph.output(graph.graph_copy(recording.graph, {}))
    module = GraphModule(recording, graph)
    for node in list(graph.nodes):
        if node.op == "get_attr" and torch.is_tensor(held := getattr(module, node.target)):
            delattr(module, node.target)
            setattr(module, node.target, held.detach().numpy())
        elif node.op == "call_function" and node.target is not operator.getitem:
            _translate(module, node)
    for node in reversed(list(graph.nodes)):  # what writes in place has no users either, and stays
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
    return module


def _translate(module: GraphModule, node: Node) -> None:
    source: Any = node.args[0]
    if node.target is aten.detach.default:
        node.replace_all_uses_with(source)
        module.graph.erase_node(node)
    elif node.target is aten.scalar_tensor.default:
        _hold(module, node, np.full((), source, _dtype(node)))
    elif node.target in FILLS and not any(user.target in INTO or user.target in VIEWS for user in node.users):
        _hold(module, node, _operation(node)())
    elif node.target in VIEWS and source.op == "get_attr" and torch.is_tensor(node.meta["val"]):
        # what is held never moves, and neither does a view of it
        _hold(module, node, _operation(node)(getattr(module, source.target), *node.args[1:], **node.kwargs))
    else:
        node.target = _operation(node)


def _hold(module: GraphModule, node: Node, array: Any) -> None:
    """Puts an array that is there before the first replay in the place of a node."""
    name = f"held_{node.name}"
    setattr(module, name, array)
    with module.graph.inserting_before(node):
        held = module.graph.create_node("get_attr", name)
    held.meta = dict(node.meta)
    node.replace_all_uses_with(held)
    module.graph.erase_node(node)


def _dtype(node: Node) -> np.dtype[Any]:
    return DTYPES[node.meta["val"].dtype]


def _operation(node: Node) -> Callable[..., Any]:
    """What numpy does for a node; told the dtype where its own rules give another than torch's."""
    if node.target in MADE:
        return MADE[node.target](*node.args)
    if node.target in FILLS:
        shape, dtype, value = tuple(node.meta["val"].shape), _dtype(node), FILLS[node.target]
        return lambda *_, **__: np.full(shape, value, dtype)
    known = {**OPERATIONS, **INTO, **VIEWS}[node.target]
    if isinstance(known, np.ufunc) and node.meta["val"].dtype != torch.bool:
        given = [_dtype(arg) if isinstance(arg, Node) else arg for arg in node.args]
        # single numbers, too: numpy before 2 takes a Python number for a double
        if np.result_type(*given) != _dtype(node) or node.meta["val"].ndim == 0:  # type: ignore[arg-type]
            return _with(known, dtype=_dtype(node))
    # torch.fx writes functions by module and name, which ufuncs do not have before numpy 2
    return known if getattr(known, "__module__", None) else _with(known)


def _with(function: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
    def settled(*arguments: Any, **kwargs: Any) -> Any:
        return function(*arguments, **kwargs, **settings)

    return settled


class _Differs(Exception):
    """Numpy answers in another shape or dtype."""


def _try(module: GraphModule, given: list[Any]) -> None:
    """Runs a translation once, node by node, and looks at shape and dtype of whatever comes out."""
    answers: dict[Node, Any] = {}
    arrays = iter(given)
    for node in module.graph.nodes:
        if node.op == "output":
            return
        if node.op == "call_function":
            args, kwargs = map_arg(node.args, answers.__getitem__), map_arg(node.kwargs, answers.__getitem__)
            answers[node] = node.target(*args, **kwargs)
        else:
            answers[node] = next(arrays) if node.op == "placeholder" else getattr(module, node.target)
        promised = node.meta["val"]
        if torch.is_tensor(promised):
            found = np.asarray(answers[node])
            if found.shape != tuple(promised.shape) or found.dtype != _dtype(node):
                raise _Differs(f"{node.name}: {found.dtype} {found.shape}, torch has {promised.dtype} {promised.shape}")
