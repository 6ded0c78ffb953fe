"""NumPy versions of torch's views, fills, gathers and scatters; see `numpy_backend.operations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.fx import Node

from sb_dqn.accelerate.numpy_backend.operations import Array, Operation

aten = torch.ops.aten
THREADED_BYTES = 2**21
"""Size from which torch copies rows faster, since it uses several threads and NumPy one."""


def _index_along(x: Array, dim: int, index: Any) -> Any:
    """Returns a full index that applies `index` to one axis."""
    before: tuple[Any, ...] = (slice(None),) * (dim % x.ndim)
    return (*before, index)


def _unsqueeze(x: Any, dim: int) -> Any:
    x = np.asarray(x)
    return np.expand_dims(x, dim) if dim < 0 else x[_index_along(x[..., None], dim, None)]


def _squeeze(x: Array, dim: int) -> Any:
    return x.squeeze(dim) if x.shape[dim] == 1 else x


def _select(x: Array, dim: int, index: int) -> Any:
    return x[_index_along(x, dim, index)]


def _slice(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x[_index_along(x, dim, slice(start, end, step))]


def _reshape(x: Array, shape: Sequence[int]) -> Any:
    return x.reshape(shape)


def _permute(x: Array, dims: Sequence[int]) -> Any:
    return x.transpose(dims)


def _expand(x: Array, shape: Sequence[int]) -> Any:
    old_shape = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [old if new == -1 else new for new, old in zip(shape, old_shape, strict=True)])


def _unfold(x: Array, dim: int, size: int, step: int) -> Any:
    return sliding_window_view(x, size, dim, writeable=True)[_index_along(x, dim, slice(None, None, step))]


def _unbind(x: Array, dim: int = 0) -> Any:
    return tuple(x if dim == 0 else np.moveaxis(x, dim, 0))


def _split(x: Array, size: int, dim: int = 0) -> Any:
    return np.split(x, range(size, x.shape[dim], size), dim)


def _split_with_sizes(x: Array, sizes: Sequence[int], dim: int = 0) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], dim)


VIEWS: dict[Any, Operation] = {
    aten.t.default: np.transpose,
    aten.view.default: _reshape,
    aten._unsafe_view.default: _reshape,
    aten.squeeze.dim: _squeeze,
    aten.unsqueeze.default: _unsqueeze,
    aten.select.int: _select,
    aten.slice.Tensor: _slice,
    aten.permute.default: _permute,
    aten.expand.default: _expand,
    aten.unfold.default: _unfold,
    aten.unbind.int: _unbind,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
}
"""Operations that return a view of their first argument."""

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
    unique = index.meta["val"].shape[axis] == 1  # no cell occurs twice

    def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Any:
        grids[axis] = index
        y = x.copy()
        if unique:
            y[tuple(grids)] += source
        else:
            np.add.at(y, tuple(grids), source)
        return y

    return scatter_add


def _take_rows(x: Array, dim: int, index: Array) -> Any:
    return x.take(index, dim)


def _take_rows_threaded(x: Array, dim: int, index: Array) -> Any:
    return torch.from_numpy(x).index_select(dim, torch.from_numpy(index)).numpy()


def _make_index_select(x: Node, dim: int, index: Node) -> Operation:
    tensor, rows = x.meta["val"], index.meta["val"].numel()
    elements = tensor.numel() // max(tensor.shape[dim], 1) * rows
    return _take_rows_threaded if elements * tensor.itemsize >= THREADED_BYTES else _take_rows


FACTORIES: dict[Any, Callable[..., Operation]] = {
    aten.index_select.default: _make_index_select,
    aten.gather.default: _make_gather,
    aten.scatter_add.default: _make_scatter_add,
}
"""Factories of operations that depend on the shapes of their node in the graph."""
