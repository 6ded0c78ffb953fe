"""Parameters in one flat tensor."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from sb_dqn.nn.parameters.flat import flat_copy, flat_views, flatten_parameters


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 5, (2, 4)), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 4 * 2, 3), nn.LayerNorm(3))


def test_parameters_become_views_and_keep_their_values() -> None:
    module = net()
    before = copy.deepcopy(module.state_dict())
    flat = flatten_parameters(list(module.parameters()))
    assert flat.shape == (sum(parameter.numel() for parameter in module.parameters()),)
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    flat += 1.0
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name] + 1.0, rtol=0, atol=0)


def test_the_order_is_that_of_the_parameters() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.fill_(number)
    assert flatten_parameters(list(module.parameters())).tolist() == [0, 0, 0, 0, 1, 1, 2, 2, 3]


def test_the_output_stays_the_same() -> None:
    module, x = net(), torch.randn(7, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    before = module(x)
    flatten_parameters(list(module.parameters()))
    torch.testing.assert_close(module(x), before)


def test_weights_of_convolutions_are_channels_last() -> None:
    module = net()
    flatten_parameters(list(module.parameters()))
    weight = module.get_parameter("0.weight")
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert weight.shape == (5, 3, 2, 4)


def test_loading_a_state_writes_into_the_flat_tensor() -> None:
    module, other = net(), net()
    flat = flatten_parameters(list(module.parameters()))
    module.load_state_dict(other.state_dict())
    torch.testing.assert_close(flat, flat_copy(other.parameters()), rtol=0, atol=0)
    assert module.get_parameter("0.weight").is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_dtype_of_the_storage(dtype: torch.dtype) -> None:
    module = net()
    flat = flatten_parameters(list(module.parameters()), dtype)
    assert flat.dtype == dtype
    assert {parameter.dtype for parameter in module.parameters()} == {dtype}


def test_views_undo_the_copy() -> None:
    tensors = [torch.randn(4, 3, 2, 5), torch.randn(3), torch.randn(2, 3), torch.randn(())]
    views = flat_views(flat_copy(tensors), tensors)
    for tensor, view in zip(tensors, views, strict=True):
        torch.testing.assert_close(view, tensor, rtol=0, atol=0)


def test_a_copy_is_a_copy() -> None:
    tensor = torch.zeros(3)
    flat_copy([tensor]).add_(1.0)
    assert tensor.tolist() == [0, 0, 0]
