"""All parameters of a module in one flat tensor: one norm, one optimiser step and one copy instead of one each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def flatten_parameters(parameters: Sequence[nn.Parameter], dtype: torch.dtype = torch.float32) -> Tensor:
    """Moves parameters into one new flat tensor, of which they become views; 4-d weights in channels_last order.

    Args:
        parameters: re-pointed in place; values stay.
        dtype: of the new storage.

    Returns:
        `[P]`, in the order given.
    """
    flat = flat_copy(parameters).to(dtype)
    point_into(zip(parameters, flat_views(flat, parameters), strict=True))
    return flat


@torch.no_grad()
def point_into(places: Iterable[tuple[nn.Parameter, Tensor]]) -> None:
    """Points parameters at their places in flat storage, unless they are there; their values go with them."""
    moved = [(parameter, place, parameter.clone()) for parameter, place in places if not _is_at(parameter, place)]
    for parameter, place, value in moved:  # only now: the place of one may hold the value of another
        parameter.data = place.copy_(value)


def _is_at(parameter: Tensor, place: Tensor) -> bool:
    return (parameter.data_ptr(), parameter.stride(), parameter.dtype) == (
        place.data_ptr(),
        place.stride(),
        place.dtype,
    )


def flat_copy(tensors: Iterable[Tensor]) -> Tensor:
    """The tensors one after another in one new flat tensor, in the order that `flatten_parameters` uses."""
    return torch.cat([_row(tensor.detach()) for tensor in tensors])


def flat_views(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `flat` in the shapes of `like`: the inverse of `flat_copy`."""
    views, start = [], 0
    for tensor in like:
        view = flat[start : start + tensor.numel()]
        start += tensor.numel()
        if tensor.dim() == 4:
            out, depth, height, width = tensor.shape
            views.append(view.view(out, height, width, depth).permute(0, 3, 1, 2))
        else:
            views.append(view.view(tensor.shape))
    return views


def _row(tensor: Tensor) -> Tensor:
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)
