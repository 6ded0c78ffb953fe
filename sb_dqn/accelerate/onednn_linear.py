"""Large float32 matrix products with oneDNN, on processors where MKL uses half of the vector width.

PyTorch multiplies float32 matrices with MKL, which uses AVX-512 on Intel processors only. oneDNN, which every PyTorch has
for convolutions, uses it on all processors, but has a larger overhead per call: it is faster for large products.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.fx import GraphModule, Node
from torch.nn import functional

from sb_dqn.accelerate.torch_internals import has_mkl_and_onednn, is_tracing, onednn_linear
from sb_dqn.devices import cpu_capabilities

LARGE = 3 * 2**19
"""Number of multiplications from which oneDNN is faster on such processors."""

aten = torch.ops.aten


@cache
def mkl_is_slow() -> bool:
    """Returns True on AMD processors with AVX-512, which MKL does not use there."""
    capabilities = cpu_capabilities()
    return bool(has_mkl_and_onednn() and capabilities.get("avx512_f") and "AMD" in capabilities.get("cpu_name", ""))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Computes :math:`y = x W^T + b`, `[..., in]` -> `[..., out]`, like `torch.nn.functional.linear`.

    Large products are differentiable only once.
    """
    size = x.numel()
    known = type(size) is int  # while a network is exported it is symbolic, and a comparison would fix the batch size
    if not (known and x.is_cpu and x.dtype == torch.float32 and size * len(weight) >= LARGE and mkl_is_slow()):
        return functional.linear(x, weight, bias)
    if is_tracing():  # during tracing: `replace_large_products` replaces torch's products later
        return functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    needs_grad = torch.is_grad_enabled()
    y: Tensor = _Linear.apply(rows, weight, bias) if needs_grad else product(rows, weight, bias)  # type: ignore[no-untyped-call]
    return y if x.ndim == 2 else y.view(*x.shape[:-1], -1)


def replace_large_products(graph: GraphModule) -> None:
    """Replaces the large float32 matrix products of a graph by oneDNN's, in place."""
    if not mkl_is_slow():
        return
    for node in list(graph.graph.nodes):
        if not is_faster_with_onednn(node):
            continue
        bias, left, right = node.args if node.target is aten.addmm.default else (None, *node.args)
        with graph.graph.inserting_before(node):
            if not _is_dense(right.meta["val"]):
                right = graph.graph.call_function(
                    aten.clone.default, (right,), {"memory_format": torch.contiguous_format}
                )
            weight = graph.graph.call_function(aten.t.default, (right,))
            replacement = graph.graph.call_function(onednn_linear(), (left, weight, bias, "none", [], ""))
        replacement.meta = node.meta
        node.replace_all_uses_with(replacement)
        graph.graph.erase_node(node)
    graph.recompile()


def is_faster_with_onednn(node: Node) -> bool:
    """Returns True if a node of a graph is a large product that this processor computes faster with oneDNN."""
    if not mkl_is_slow() or node.target not in (aten.mm.default, aten.addmm.default):
        return False
    bias, left, _ = node.args if node.target is aten.addmm.default else (None, *node.args)
    if node.kwargs or not _is_large(node, left):  # type: ignore[arg-type]
        return False
    return bias is None or (bias.meta["val"].ndim == 1 and bias.meta["val"].is_contiguous())  # type: ignore[union-attr]


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Computes a linear layer with oneDNN: `[N, in]`, `[out, in]`, `[out]` or None -> `[N, out]`."""
    if not _is_dense(weight):
        weight = weight.t().contiguous().t()
    bias = None if bias is None else bias.contiguous()  # oneDNN ignores its strides
    y: Tensor = onednn_linear()(x, weight, bias, "none", [], "")
    return y


def _is_dense(matrix: Tensor) -> bool:
    """Returns True if rows or columns have no gaps: oneDNN takes a hundred times as long if the second factor has gaps."""
    return matrix.is_contiguous() or matrix.t().is_contiguous()


def _is_large(product: Node, left: Node) -> bool:
    result: Tensor = product.meta["val"]
    depth: int = left.meta["val"].shape[1]
    return result.dtype == torch.float32 and result.is_cpu and result.numel() * depth >= LARGE


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        x_needs_grad, weight_needs_grad, bias_needs_grad = ctx.needs_input_grad
        return (
            product(gradient, weight.t(), None) if x_needs_grad else None,
            product(gradient.t(), x.t(), None) if weight_needs_grad else None,
            gradient.sum(0) if bias_needs_grad else None,
        )
