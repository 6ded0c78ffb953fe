"""Parameters in one flat tensor: one norm, one optimizer step and one copy for all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def flatten_parameters(parameters: Sequence[nn.Parameter], dtype: torch.dtype = torch.float32) -> Tensor:
    """Moves parameters into a new flat tensor, of which they become views; 4-d weights in channels_last order.

    Args:
        parameters: parameters, which are changed in place; their values stay.
        dtype: dtype of the flat tensor.

    Returns:
        `[P]`, in the order of `parameters`.
    """
    flat = flat_copy(parameters).to(dtype)
    point_into(zip(parameters, flat_views(flat, parameters), strict=True))
    return flat


@torch.no_grad()
def point_into(places: Iterable[tuple[nn.Parameter, Tensor]]) -> None:
    """Makes parameters views of their places in flat storage, with their current values.

    Args:
        places: pairs of a parameter and its place; pairs that already share storage are skipped.
    """
    moved = [(parameter, place, parameter.clone()) for parameter, place in places if _form(parameter) != _form(place)]
    for parameter, place, value in moved:  # after all clones: places may overlap the old storage of others
        parameter.data = place.copy_(value)


def _form(x: Tensor) -> tuple[Any, ...]:
    return x.data_ptr(), x.stride(), x.dtype


def flat_copy(tensors: Iterable[Tensor]) -> Tensor:
    """Returns tensors concatenated into a new flat tensor, in the layout of `flatten_parameters`."""
    return torch.cat([as_row(tensor.detach()) for tensor in tensors])


def flat_views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Returns views of `flat` in the shapes of `like`; the inverse of `flat_copy`."""
    views = []
    start = 0
    for tensor in like:
        view = flat[start : start + tensor.numel()]
        start += tensor.numel()
        views.append(unflattened(view, tensor.shape))
    return views


def as_row(tensor: Tensor) -> Tensor:
    """Returns a tensor as one row, 4-d ones in channels_last order."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)


def unflattened(row: Tensor, shape: torch.Size) -> Tensor:
    """Returns a row as a view of this shape; the inverse of `as_row`."""
    if len(shape) != 4:
        return row.view(shape)
    out, depth, height, width = shape
    return row.view(out, height, width, depth).permute(0, 3, 1, 2)
