"""NumPy versions of torch's views, fills, gathers and scatters; see `numpy_backend.operations`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.fx import Node

from sb_dqn.accelerate.numpy_backend.operations import Operation
from sb_dqn.types import Array

aten = torch.ops.aten
THREADED_BYTES = 2**21
"""Size from which torch copies rows faster, since it uses several threads and NumPy one."""


def _reshape(x: Array, shape: Sequence[int]) -> Array:
    return x.reshape(shape)


def _expand(x: Array, shape: Sequence[int]) -> Array:
    old_shape = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [old if new == -1 else new for new, old in zip(shape, old_shape, strict=True)])


VIEWS: dict[Any, Operation] = {
    aten.t.default: np.ndarray.transpose,
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.squeeze.dim: lambda x, dim: x.squeeze(dim) if x.shape[dim] == 1 else x,
    aten.permute.default: np.ndarray.transpose,
    aten.expand.default: _expand,
    aten.unbind.int: lambda x, dim=0: tuple(x if dim == 0 else np.moveaxis(x, dim, 0)),
}
"""Operations that return a view of their first argument."""


def _index_along(dimensions: int, dim: int, index: object) -> tuple[Any, ...]:
    """Returns a full index that applies `index` to one axis."""
    return (*(slice(None),) * (dim % dimensions), index)


def _make_indexing(dimensions: int, dim: int, index: object) -> Operation:
    full = _index_along(dimensions, dim, index)

    def indexed(x: Array, *_: object) -> Any:
        return x[full]

    return indexed


def _make_unfold(x: Node, dim: int, size: int, step: int) -> Operation:
    steps = _index_along(x.meta["val"].ndim, dim, slice(None, None, step))

    def unfold(x: Array, *_: object) -> Any:
        return sliding_window_view(x, size, dim, writeable=True)[steps]

    return unfold


def _make_split_with_sizes(x: Node, sizes: Sequence[int], dim: int = 0) -> Operation:
    tensor, ends = x.meta["val"], np.cumsum(sizes).tolist()
    parts = [_index_along(tensor.ndim, dim, slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]

    def split(x: Array, *_: object) -> tuple[Array, ...]:
        return tuple([x[part] for part in parts])  # a list: a generator expression is slower

    return split


def _make_split(x: Node, size: int, dim: int = 0) -> Operation:
    length = x.meta["val"].shape[dim]
    return _make_split_with_sizes(x, [min(size, length - start) for start in range(0, length, size)], dim)


VIEW_FACTORIES: dict[Any, Callable[..., Operation]] = {
    aten.unsqueeze.default: lambda x, dim: _make_indexing(x.meta["val"].ndim + 1, dim, None),
    aten.select.int: lambda x, dim, index: _make_indexing(x.meta["val"].ndim, dim, index),
    aten.slice.Tensor: lambda x, dim=0, start=None, end=None, step=1: _make_indexing(
        x.meta["val"].ndim, dim, slice(start, end, step)
    ),
    aten.unfold.default: _make_unfold,
    aten.split.Tensor: _make_split,
    aten.split_with_sizes.default: _make_split_with_sizes,
}
"""Factories of views, which compute the index for their node in the graph once."""

FILLS = {
    aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
    aten.zeros.default: 0,
    aten.ones_like.default: 1,
    aten.ones.default: 1,
}
"""Values of the operations that return a constant array."""


def _index_grids(index: Node, dim: int) -> tuple[list[Any], int]:
    """Returns open grids over all axes of an index, and the axis whose grid the index replaces."""
    shape = index.meta["val"].shape
    return list(np.ogrid[tuple(slice(size) for size in shape)]), dim % len(shape)


def _make_gather(x: Node, dim: int, index: Node) -> Operation:
    grids, axis = _index_grids(index, dim)

    def gather(x: Array, dim: int, index: Array) -> Any:
        grids[axis] = index
        return x[tuple(grids)]

    return gather


def _make_scatter_add(x: Node, dim: int, index: Node, source: Node) -> Operation:
    grids, axis = _index_grids(index, dim)
    tensor = x.meta["val"]
    unique = index.meta["val"].shape[axis] == 1  # no cell occurs twice
    strides = [math.prod(tensor.shape[number + 1 :]) for number in range(tensor.ndim)]
    others: Any = sum(
        grid * stride for number, (grid, stride) in enumerate(zip(grids, strides, strict=True)) if number != axis
    )

    def scatter_add_once(x: Array, dim: int, index: Array, source: Array) -> Any:
        grids[axis] = index
        y = x.copy()
        y[tuple(grids)] += source
        return y

    def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
        cells = (index * strides[axis] + others).reshape(-1)
        added = np.bincount(cells, source.reshape(-1), x.size).reshape(x.shape)  # several times as fast as np.add.at
        return (x + added).astype(x.dtype)

    if source.meta["val"].shape != index.meta["val"].shape:
        raise ValueError("source and index must be of one shape")
    return scatter_add_once if unique else scatter_add


SCATTERED = {"amax": np.maximum, "amin": np.minimum, "sum": np.add, "prod": np.multiply}
"""Reductions of `scatter_reduce` with their NumPy functions."""


def _make_scatter_reduce(
    x: Node, dim: int, index: Node, source: Node, reduce: str, *, include_self: bool = True
) -> Operation:
    if not include_self:
        raise TypeError(f"include_self must be True, got {include_self}")
    grids, axis = _index_grids(index, dim)
    combine: Any = SCATTERED[reduce]

    def scatter_reduce(x: Array, dim: int, index: Array, source: Array, reduce: str) -> Any:
        grids[axis] = index
        y = x.copy()
        combine.at(y, tuple(grids), source)
        return y

    return scatter_reduce


def _make_slice_backward(gradient: Node, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Operation:
    index = _index_along(len(sizes), dim, slice(start, end, step))
    shape = tuple(sizes)

    def slice_backward(gradient: Array, *_: object) -> Array:
        y = np.zeros(shape, gradient.dtype)
        y[index] = gradient
        return y

    return slice_backward


def _take_rows_threaded(x: Array, dim: int, index: Array) -> Array:
    return torch.from_numpy(x).index_select(dim, torch.from_numpy(index)).numpy()


def _make_index_select(x: Node, dim: int, index: Node) -> Operation:
    tensor, rows = x.meta["val"], index.meta["val"].numel()
    elements = tensor.numel() // max(tensor.shape[dim], 1) * rows
    return (
        _take_rows_threaded
        if elements * tensor.itemsize >= THREADED_BYTES
        else lambda x, dim, index: x.take(index, dim)
    )


FACTORIES: dict[Any, Callable[..., Operation]] = {
    aten.index_select.default: _make_index_select,
    aten.gather.default: _make_gather,
    aten.scatter_add.default: _make_scatter_add,
    aten.scatter_reduce.two: _make_scatter_reduce,
    aten.slice_backward.default: _make_slice_backward,
}
"""Factories of operations that depend on the shapes of their node in the graph."""
