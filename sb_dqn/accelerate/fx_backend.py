"""Replay of recorded graphs by a Python function that calls torch, without autograd.

Each operation is called through its function in torch's public interface where there is one: `torch.add(x, y)` reads its
arguments in half of the time of `torch.ops.aten.add.Tensor(x, y)`, which matches them with a schema.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from sb_dqn.accelerate.graph_code import function_of

aten = torch.ops.aten
tensor_methods = torch.Tensor

FUNCTIONS: dict[Any, Callable[..., Any]] = {
    aten.add.Tensor: torch.add,
    aten.sub.Tensor: torch.sub,
    aten.rsub.Scalar: torch.rsub,
    aten.mul.Tensor: torch.mul,
    aten.mul.Scalar: torch.mul,
    aten.div.Tensor: torch.div,
    aten.div.Scalar: torch.div,
    aten.neg.default: torch.neg,
    aten.reciprocal.default: torch.reciprocal,
    aten.abs.default: torch.abs,
    aten.exp.default: torch.exp,
    aten.expm1.default: torch.expm1,
    aten.log.default: torch.log,
    aten.log1p.default: torch.log1p,
    aten.xlogy.Tensor: torch.xlogy,
    aten.sqrt.default: torch.sqrt,
    aten.cos.default: torch.cos,
    aten.pow.Tensor_Scalar: torch.pow,
    aten.pow.Tensor_Tensor: torch.pow,
    aten.remainder.Scalar: torch.remainder,
    aten.minimum.default: torch.minimum,
    aten.maximum.default: torch.maximum,
    aten.fmax.default: torch.fmax,
    aten.hypot.default: torch.hypot,
    aten.clamp.default: torch.clamp,
    aten.clamp.Tensor: torch.clamp,
    aten.clamp_min.default: torch.clamp_min,
    aten.clamp_max.default: torch.clamp_max,
    aten.tanh.default: torch.tanh,
    aten.relu.default: torch.relu,
    aten.gt.Scalar: torch.gt,
    aten.ge.Scalar: torch.ge,
    aten.lt.Scalar: torch.lt,
    aten.le.Scalar: torch.le,
    aten.gt.Tensor: torch.gt,
    aten.ge.Tensor: torch.ge,
    aten.lt.Tensor: torch.lt,
    aten.le.Tensor: torch.le,
    aten.eq.Scalar: torch.eq,
    aten.eq.Tensor: torch.eq,
    aten.ne.Tensor: torch.ne,
    aten.bitwise_and.Tensor: torch.bitwise_and,
    aten.bitwise_or.Tensor: torch.bitwise_or,
    aten.bitwise_not.default: torch.bitwise_not,
    aten.logical_and.default: torch.logical_and,
    aten.logical_not.default: torch.logical_not,
    aten.where.self: torch.where,
    aten.mm.default: torch.mm,
    aten.mv.default: torch.mv,
    aten.bmm.default: torch.bmm,
    aten.dot.default: torch.dot,
    aten.addmm.default: torch.addmm,
    aten.convolution.default: torch.convolution,
    aten.native_layer_norm.default: torch.native_layer_norm,
    aten.sum.default: torch.sum,
    aten.sum.dim_IntList: torch.sum,
    aten.mean.default: torch.mean,
    aten.mean.dim: torch.mean,
    aten.amax.default: torch.amax,
    aten.amin.default: torch.amin,
    aten.max.default: torch.max,
    aten.min.default: torch.min,
    aten.any.dim: torch.any,
    aten.argmax.default: torch.argmax,
    aten.cumsum.default: torch.cumsum,
    aten.cumprod.default: torch.cumprod,
    aten.clone.default: torch.clone,
    aten.take.default: torch.take,
    aten.flip.default: torch.flip,
    aten.searchsorted.Tensor: torch.searchsorted,
    aten.cat.default: torch.cat,
    aten.stack.default: torch.stack,
    aten.gather.default: torch.gather,
    aten.scatter_add.default: torch.scatter_add,
    aten.index_select.default: torch.index_select,
    aten.t.default: torch.t,
    aten.unsqueeze.default: torch.unsqueeze,
    aten.squeeze.dim: torch.squeeze,
    aten.select.int: torch.select,
    aten.permute.default: torch.permute,
    aten.unbind.int: torch.unbind,
    aten.split_with_sizes.default: torch.split_with_sizes,
    aten.view.default: tensor_methods.view,
    aten._unsafe_view.default: tensor_methods.view,
    aten.expand.default: tensor_methods.expand,
    aten.unfold.default: tensor_methods.unfold,
    aten.mul_.Tensor: tensor_methods.mul_,
    aten.sub_.Tensor: tensor_methods.sub_,
    aten.copy_.default: tensor_methods.copy_,
    aten.zero_.default: tensor_methods.zero_,
    aten.masked_fill_.Scalar: tensor_methods.masked_fill_,
    aten.index_put_.default: tensor_methods.index_put_,
    aten.logical_and_.default: tensor_methods.logical_and_,
}
"""Operations with a public function of the same positional arguments."""


def public_function(node: Node) -> Callable[..., Any]:
    """Returns the public function of a node's operation; the operation itself if there is none."""
    if node.target is aten.index_put_.default and None in node.args[1]:  # type: ignore[operator]
        return node.target  # the method does not accept None
    return FUNCTIONS.get(node.target, node.target)  # type: ignore[arg-type]


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
    replay = function_of(graph, attributes)
    inference = torch.inference_mode()  # made once; without autograd each operation costs a fifth less

    def run(*arguments: Tensor) -> Any:
        with inference:
            return replay(*arguments)

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
        node.target = tensor_methods.to
        node.kwargs = {**node.kwargs, "copy": True}
    else:
        node.target = public_function(node)
