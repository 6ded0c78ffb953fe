"""Torch's views, fills and scattered reads by numpy; see `array_operations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch.fx import Node

from sb_dqn.accelerate.numpy_backend.operations import Array, Operation

aten = torch.ops.aten
MANY_BYTES = 2**21
"""To copy so many rows torch shares among threads, numpy does not."""


def _at(x: Array, dim: int, there: Any) -> Any:
    """An index that is `there` along one axis and everything along those before it."""
    place: tuple[Any, ...] = (slice(None),) * (dim % x.ndim)
    return (*place, there)


def _with_new_axis(x: Any, dim: int) -> Any:
    x = np.asarray(x)
    return np.expand_dims(x, dim) if dim < 0 else x[_at(x[..., None], dim, None)]


def _squeezed(x: Array, dim: int) -> Any:
    return x.squeeze(dim) if x.shape[dim] == 1 else x


def _selected(x: Array, dim: int, index: int) -> Any:
    return x[_at(x, dim, index)]


def _sliced(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x[_at(x, dim, slice(start, end, step))]


def _reshaped(x: Array, shape: Sequence[int]) -> Any:
    return x.reshape(shape)


def _permuted(x: Array, dims: Sequence[int]) -> Any:
    return x.transpose(dims)


def _expanded(x: Array, shape: Sequence[int]) -> Any:
    known = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [size if wanted == -1 else wanted for wanted, size in zip(shape, known, strict=True)])


def _unfolded(x: Array, dim: int, size: int, step: int) -> Any:
    return sliding_window_view(x, size, dim, writeable=True)[_at(x, dim, slice(None, None, step))]


def _unbind(x: Array, dim: int = 0) -> Any:
    return tuple(x if dim == 0 else np.moveaxis(x, dim, 0))


def _split(x: Array, size: int, dim: int = 0) -> Any:
    return np.split(x, range(size, x.shape[dim], size), dim)


def _split_with_sizes(x: Array, sizes: Sequence[int], dim: int = 0) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], dim)


VIEWS: dict[Any, Operation] = {
    aten.t.default: np.transpose, aten.view.default: _reshaped, aten._unsafe_view.default: _reshaped,
    aten.squeeze.dim: _squeezed, aten.unsqueeze.default: _with_new_axis, aten.select.int: _selected,
    aten.slice.Tensor: _sliced, aten.permute.default: _permuted, aten.expand.default: _expanded,
    aten.unfold.default: _unfolded, aten.unbind.int: _unbind, aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split_with_sizes,
}  # fmt: skip
"""Those that show the memory of their first argument."""

FILLS = {
    aten.zeros_like.default: 0, aten.new_zeros.default: 0, aten.zeros.default: 0,
    aten.ones_like.default: 1, aten.ones.default: 1,
}  # fmt: skip
"""What those fill their answer with that need to know no more than its shape."""


def _places(index: Node, dim: int) -> tuple[list[Any], int]:
    """Open grids over all axes of an index, one of which gives way to the index itself."""
    shape = index.meta["val"].shape
    return list(np.ogrid[tuple(slice(size) for size in shape)]), dim % len(shape)


def _make_gather(x: Node, dim: int, index: Node) -> Operation:
    grids, axis = _places(index, dim)

    def gather(x: Array, dim: int, index: Array) -> Any:
        grids[axis] = index
        return x[tuple(grids)]

    return gather


def _make_scatter_add(x: Node, dim: int, index: Node, source: Node) -> Operation:
    grids, axis = _places(index, dim)
    alone = index.meta["val"].shape[axis] == 1  # no place is met twice

    def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Any:
        grids[axis], y = index, x.copy()
        if alone:
            y[tuple(grids)] += source
        else:
            np.add.at(y, tuple(grids), source)
        return y

    return scatter_add


def _take_rows(x: Array, dim: int, index: Array) -> Any:
    return x.take(index, dim)


def _take_many_rows(x: Array, dim: int, index: Array) -> Any:
    return torch.from_numpy(x).index_select(dim, torch.from_numpy(index)).numpy()


def _make_index_select(x: Node, dim: int, index: Node) -> Operation:
    stored, chosen = x.meta["val"], index.meta["val"].numel()
    count = stored.numel() // max(stored.shape[dim], 1) * chosen
    return _take_many_rows if count * stored.itemsize >= MANY_BYTES else _take_rows


MADE: dict[Any, Callable[..., Operation]] = {
    aten.index_select.default: _make_index_select,
    aten.gather.default: _make_gather,
    aten.scatter_add.default: _make_scatter_add,
}
