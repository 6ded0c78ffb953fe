"""Large products of float32 matrices, by oneDNN where MKL leaves half of the processor unused.

PyTorch multiplies float32 matrices by MKL, which uses AVX-512 on Intel's processors alone. oneDNN, which is in every
PyTorch too and does the convolutions, uses it on all, but takes longer to begin: it is for large products.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.fx import GraphModule, Node
from torch.nn import functional

LARGE = 3 * 2**19
"""Multiplications from which oneDNN is faster there."""

aten = torch.ops.aten


@cache
def mkl_is_slow() -> bool:
    """Whether this processor has AVX-512 and MKL, made by another company, does without it."""
    told: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # newer than the oldest torch that we take
    both = torch._C.has_mkl and torch._C._has_mkldnn
    return bool(both and told.get("avx512_f") and "AMD" in told.get("cpu_name", ""))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""`torch.nn.functional.linear`: :math:`y = x W^T + b`, `[..., in]` -> `[..., out]`; differentiable once where it is large."""
    if not (x.is_cpu and x.dtype == torch.float32 and x.numel() * len(weight) >= LARGE and mkl_is_slow()):
        return functional.linear(x, weight, bias)
    if torch._C._len_torch_dispatch_stack():  # a recording knows PyTorch's own products, and replaces them itself
        return functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    learns = torch.is_grad_enabled()
    y: Tensor = _Linear.apply(rows, weight, bias) if learns else product(rows, weight, bias)  # type: ignore[no-untyped-call]
    return y if x.ndim == 2 else y.view(*x.shape[:-1], -1)


def replace_products(recording: GraphModule) -> None:
    """Has oneDNN calculate the large float32 products of a recording for TorchScript."""
    if not mkl_is_slow():
        return
    for node in list(recording.graph.nodes):
        if node.target not in (aten.mm.default, aten.addmm.default):
            continue
        bias, left, right = node.args if node.target is aten.addmm.default else (None, *node.args)
        if node.kwargs or not _is_large(node, left):
            continue
        if bias is not None and (bias.meta["val"].ndim != 1 or not bias.meta["val"].is_contiguous()):
            continue
        with recording.graph.inserting_before(node):
            if not _is_dense(right.meta["val"]):
                right = recording.graph.call_function(
                    aten.clone.default, (right,), {"memory_format": torch.contiguous_format}
                )
            weight = recording.graph.call_function(aten.t.default, (right,))
            replaced = recording.graph.call_function(
                torch.ops.mkldnn._linear_pointwise.default, (left, weight, bias, "none", [], "")
            )
        replaced.meta = node.meta
        node.replace_all_uses_with(replaced)
        recording.graph.erase_node(node)
    recording.recompile()


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`[N, in]`, `[out, in]`, `[out]` or None -> `[N, out]` by oneDNN."""
    if not _is_dense(weight):
        weight = weight.t().contiguous().t()
    bias = None if bias is None else bias.contiguous()  # its strides are not looked at
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


def _is_dense(matrix: Tensor) -> bool:
    """Whether nothing lies between its rows or columns: for a second factor with gaps oneDNN takes a hundred times as long."""
    return matrix.is_contiguous() or matrix.t().is_contiguous()


def _is_large(product: Node, left: Node) -> bool:
    given: Tensor = product.meta["val"]
    depth: int = left.meta["val"].shape[1]
    return given.dtype == torch.float32 and given.is_cpu and given.numel() * depth >= LARGE


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            product(gradient, weight.t(), None) if of_x else None,
            product(gradient.t(), x.t(), None) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )
