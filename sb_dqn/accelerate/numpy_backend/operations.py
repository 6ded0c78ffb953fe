"""NumPy versions of torch operations: same arguments, same results up to rounding.

Views, and operations that are specialized for their node in a graph, are in `numpy_backend.views`. An unsupported
argument raises an error, and torch runs the graph instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from sb_dqn.types import Array

Operation = Callable[..., Any]
aten = torch.ops.aten

DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.int64: np.dtype(np.int64),
    torch.int32: np.dtype(np.int32),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.bool: np.dtype(np.bool_),
}
ZERO = np.zeros((), np.float32)
# the type hints of ufunc methods accept only a literal keepdims
reduce_sum: Callable[..., Array] = np.add.reduce
reduce_max: Callable[..., Array] = np.maximum.reduce
reduce_min: Callable[..., Array] = np.minimum.reduce
reduce_any: Callable[..., Array] = np.logical_or.reduce


def _addmm(bias: Array, x: Array, w: Array) -> Array:
    y: Array = np.matmul(x, w)
    y += bias
    return y


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    scaled = x * beta
    return np.where(scaled > threshold, x, np.log1p(np.exp(scaled)) / beta)


def _softplus_backward(gradient: Array, x: Array, beta: float, threshold: float) -> Array:
    scaled = x * beta
    z = np.exp(scaled)
    return np.where(scaled > threshold, gradient, gradient * z / (z + 1))


def _xlogy(x: Array, y: Array) -> Array:
    product = x * np.log(y)
    return np.where((x == 0) & ~np.isnan(y), ZERO, product)


def _layer_norm(x: Array, shape: Sequence[int], weight: Array, bias: Array, eps: float) -> tuple[Array, ...]:
    (width,) = shape  # only the last axis is supported
    mean = reduce_sum(x, -1, keepdims=True) / width
    centered = x - mean
    rstd = 1 / np.sqrt(reduce_sum(centered * centered, -1, keepdims=True) / width + eps)
    return centered * rstd * weight + bias, mean, rstd


def _layer_norm_backward(
    gradient: Array,
    x: Array,
    shape: Sequence[int],
    mean: Array,
    rstd: Array,
    weight: Array,
    bias: Array,
    needed: Sequence[bool],
) -> tuple[Array, ...]:
    (width,) = shape
    normalized = (x - mean) * rstd
    weighted = gradient * weight
    rows = tuple(range(x.ndim - 1))
    along = reduce_sum(weighted * normalized, -1, keepdims=True) / width
    of_x = rstd * (weighted - reduce_sum(weighted, -1, keepdims=True) / width - normalized * along)
    return of_x, reduce_sum(gradient * normalized, rows), reduce_sum(gradient, rows)


def _softmax(x: Array, dim: int, half_to_float: bool) -> Any:
    y = np.exp(x - reduce_max(x, dim, keepdims=True))
    return y / reduce_sum(y, dim, keepdims=True)


def _log_softmax(x: Array, dim: int, half_to_float: bool) -> Array:
    y = x - reduce_max(x, dim, keepdims=True)
    return y - np.log(reduce_sum(np.exp(y), dim, keepdims=True))


def _huber(x: Array, y: Array, reduction: int = 1, delta: float = 1.0) -> Any:
    if reduction:
        raise TypeError(f"reduction must be 0 (none), got {reduction}. Use 'none'.")
    distance = np.abs(x - y)
    clipped = np.minimum(distance, delta)
    return clipped * (distance - 0.5 * clipped)


def _sum_over(x: Array, dims: Sequence[int], keepdim: bool = False) -> Array:
    if x.dtype == np.float64:
        # the sums of a priority tree must be rounded as those that torch computes when a checkpoint is loaded
        return torch.from_numpy(x).sum(tuple(dims), keepdim).numpy()
    return reduce_sum(x, tuple(dims), keepdims=keepdim)


def _mean(x: Array) -> Any:
    return reduce_sum(x, None) / x.dtype.type(x.size)  # an int would give a float64 before NumPy 2


def _mean_over(x: Array, dims: Sequence[int], keepdim: bool = False) -> Array:
    axes = tuple(dims)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return reduce_sum(x, axes, keepdims=keepdim) / count


def _sort(x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, ...]:
    if descending:
        raise TypeError(f"descending must be False, got {descending}")
    order = x.argsort(dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


def _norm(x: Array) -> Any:
    flat = x.reshape(-1)
    return np.sqrt(np.dot(flat, flat))


def _clamp(x: Array, low: Any = None, high: Any = None) -> Array:
    y = x if low is None else np.maximum(x, low)
    return y if high is None else np.minimum(y, high)


def _arange(*bounds: int, dtype: torch.dtype = torch.int64, **_: object) -> Any:
    return np.arange(*bounds, dtype=DTYPES[dtype])


def _pad(x: Array, pad: Sequence[int], value: float = 0) -> Array:
    widths = [(0, 0)] * x.ndim
    for axis, start in enumerate(range(0, len(pad), 2)):  # torch counts the pairs from the last axis
        widths[-1 - axis] = (pad[start], pad[start + 1])
    padded = np.full(
        [before + size + after for size, (before, after) in zip(x.shape, widths, strict=True)], value, x.dtype
    )
    inside = [
        slice(max(before, 0), before + size + min(after, 0))
        for size, (before, after) in zip(x.shape, widths, strict=True)
    ]
    kept = [slice(max(-before, 0), size + min(after, 0)) for size, (before, after) in zip(x.shape, widths, strict=True)]
    padded[tuple(inside)] = x[tuple(kept)]
    return padded


def _searchsorted(edges: Array, x: Array, *, right: bool = False) -> Array:
    if edges.ndim == 1:
        return edges.searchsorted(x, "right" if right else "left")
    below = edges[..., None, :] <= x[..., None] if right else edges[..., None, :] < x[..., None]
    return reduce_sum(below, -1)  # each row has its own edges, which are few


def _masked_fill_in_place(x: Array, mask: Array, value: float) -> Array:
    np.copyto(x, value, where=mask)
    return x


def _index_put_in_place(x: Array, indices: Sequence[Any], values: Array, accumulate: bool = False) -> Array:
    index: Any = tuple(slice(None) if index is None else index for index in indices)
    if accumulate:
        np.add.at(x, index, values)
    else:
        x[index] = values
    return x


def _copy_in_place(x: Array, y: object) -> Array:
    x[...] = y
    return x


def _index_fill_in_place(x: Array, dim: int, index: Array, value: float) -> Array:
    if dim != 0:
        raise TypeError(f"dim must be 0, got {dim}. Fill along the first axis.")
    x[index] = value
    return x


def _scatter_reduce_in_place(x: Array, dim: int, index: Array, source: Array, reduce: str) -> Array:
    if x.ndim != 1 or reduce != "amax":
        raise TypeError(f"x must have one axis and reduce be 'amax', got {x.ndim} and {reduce!r}. Use scatter_reduce.")
    np.maximum.at(x, index, source)
    return x


OPERATIONS: dict[Any, Operation] = {
    aten.add.Tensor: np.add,
    aten.sub.Tensor: np.subtract,
    aten.rsub.Scalar: lambda x, y: np.subtract(y, x),
    aten.mul.Tensor: np.multiply,
    aten.mul.Scalar: np.multiply,
    aten.div.Tensor: np.divide,
    aten.div.Scalar: np.divide,
    aten.neg.default: np.negative,
    aten.reciprocal.default: np.reciprocal,
    aten.abs.default: np.abs,
    aten.exp.default: np.exp,
    aten.expm1.default: np.expm1,
    aten.log.default: np.log,
    aten.log1p.default: np.log1p,
    aten.xlogy.Tensor: _xlogy,
    aten.sqrt.default: np.sqrt,
    aten.cos.default: np.cos,
    aten.pow.Tensor_Scalar: np.power,
    aten.pow.Tensor_Tensor: np.power,
    aten.remainder.Scalar: np.remainder,
    aten.floor_divide.default: np.floor_divide,
    aten.minimum.default: np.minimum,
    aten.maximum.default: np.maximum,
    aten.fmax.default: np.fmax,
    aten.hypot.default: np.hypot,
    aten.clamp.default: _clamp,
    aten.clamp.Tensor: _clamp,
    aten.clamp_min.default: np.maximum,
    aten.clamp_max.default: np.minimum,
    aten.tanh.default: np.tanh,
    aten.tanh_backward.default: lambda gradient, y: gradient * (1 - y * y),
    aten.softplus.default: _softplus,
    aten.softplus_backward.default: _softplus_backward,
    aten.relu.default: lambda x: np.maximum(x, ZERO),
    aten.threshold_backward.default: lambda gradient, x, threshold: np.where(x <= threshold, ZERO, gradient),
    aten.gt.Scalar: np.greater,
    aten.ge.Scalar: np.greater_equal,
    aten.lt.Scalar: np.less,
    aten.le.Scalar: np.less_equal,
    aten.gt.Tensor: np.greater,
    aten.ge.Tensor: np.greater_equal,
    aten.lt.Tensor: np.less,
    aten.le.Tensor: np.less_equal,
    aten.eq.Scalar: np.equal,
    aten.eq.Tensor: np.equal,
    aten.ne.Tensor: np.not_equal,
    aten.bitwise_and.Tensor: np.bitwise_and,
    aten.bitwise_or.Tensor: np.bitwise_or,
    aten.bitwise_not.default: np.invert,
    aten.__rshift__.Scalar: np.right_shift,
    aten.logical_and.default: np.logical_and,
    aten.logical_or.default: np.logical_or,
    aten.logical_not.default: np.logical_not,
    aten.where.self: np.where,
    aten.masked_fill.Scalar: lambda x, mask, value: np.where(mask, x.dtype.type(value), x),
    aten.mm.default: np.matmul,
    aten.bmm.default: np.matmul,
    aten.mv.default: np.matmul,
    aten.dot.default: np.dot,
    aten.addmm.default: _addmm,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten._log_softmax_backward_data.default: lambda gradient, y, dim, dtype: (
        gradient - np.exp(y) * reduce_sum(gradient, dim, keepdims=True)
    ),
    aten.huber_loss.default: _huber,
    aten.huber_loss_backward.default: lambda gradient, x, y, reduction, delta: (
        gradient * np.maximum(np.minimum(x - y, delta), -delta)
    ),
    aten.sum.default: lambda x: reduce_sum(x, None),
    aten.sum.dim_IntList: _sum_over,
    aten.mean.default: _mean,
    aten.mean.dim: _mean_over,
    aten.amax.default: lambda x, dims, keepdim=False: reduce_max(x, tuple(dims), keepdims=keepdim),
    aten.amin.default: lambda x, dims=(), keepdim=False: reduce_min(x, tuple(dims) or None, keepdims=keepdim),
    aten.max.default: np.ndarray.max,
    aten.max.dim: lambda x, dim, keepdim=False: (reduce_max(x, dim, keepdims=keepdim), x.argmax(dim, keepdims=keepdim)),
    aten.min.default: np.ndarray.min,
    aten.min.dim: lambda x, dim, keepdim=False: (reduce_min(x, dim, keepdims=keepdim), x.argmin(dim, keepdims=keepdim)),
    aten.sort.default: _sort,
    aten.any.dim: lambda x, dim, keepdim=False: reduce_any(x, dim, keepdims=keepdim),
    aten.argmax.default: np.ndarray.argmax,
    aten.linalg_vector_norm.default: _norm,
    aten.cumsum.default: np.ndarray.cumsum,
    aten.cumprod.default: np.ndarray.cumprod,
    aten._to_copy.default: lambda x, dtype, device=None: x.astype(DTYPES[dtype]),
    aten.clone.default: lambda x, memory_format=None: x.copy(),
    aten.index.Tensor: lambda x, indices: x[tuple(slice(None) if index is None else index for index in indices)],
    aten.take.default: np.ndarray.take,
    aten.arange.default: _arange,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
    aten.constant_pad_nd.default: _pad,
    aten.flip.default: lambda x, dims: np.flip(x, tuple(dims)).copy(),
    aten.searchsorted.Tensor: _searchsorted,
    aten.cat.default: np.concatenate,
    aten.stack.default: lambda parts, dim=0: np.array(parts) if dim == 0 else np.stack(parts, dim),
}
"""Operations that return new arrays."""

IN_PLACE: dict[Any, Operation] = {
    aten.mul_.Tensor: operator.imul,
    aten.sub_.Tensor: operator.isub,
    aten.logical_and_.default: lambda x, y: np.logical_and(x, y, out=x),
    aten.copy_.default: _copy_in_place,
    aten.zero_.default: lambda x: _copy_in_place(x, 0),
    aten.masked_fill_.Scalar: _masked_fill_in_place,
    aten.index_put_.default: _index_put_in_place,
    aten.index_fill_.int_Scalar: _index_fill_in_place,
    aten.scatter_reduce_.two: _scatter_reduce_in_place,
}
"""Operations that write to their first argument."""
