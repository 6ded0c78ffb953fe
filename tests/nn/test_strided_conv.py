"""Tests of convolutions that merge neighboring pixels: the numbers of torch's convolution, without copies."""

from __future__ import annotations

from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sb_dqn.nn.layers.convolution import StridedConv2d
from tests.marks import SLOW
from tests.nets import assert_equal_convolutions


@SLOW
@given(
    channels=st.integers(1, 5),
    stride=st.integers(1, 4),
    strides_per_kernel=st.integers(1, 3),
    wider=st.integers(0, 6),
    taller=st.integers(0, 5),
    padding=st.integers(0, 1),
    uneven=st.booleans(),
    channels_last=st.booleans(),
)
def test_the_same_numbers_and_gradients_as_torch(
    channels: int,
    stride: int,
    strides_per_kernel: int,
    wider: int,
    taller: int,
    padding: int,
    uneven: bool,
    channels_last: bool,
) -> None:
    generator = torch.Generator().manual_seed(0)
    kernel = stride * strides_per_kernel + (uneven and stride > 1)
    x = torch.randn(2, channels, kernel + taller, kernel + wider, generator=generator, dtype=torch.float64)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    plain = nn.Conv2d(channels, 3, kernel, stride, padding).double()
    assert_equal_convolutions(plain, StridedConv2d(channels, 3, kernel, stride, padding).double(), x, x)


def test_nothing_is_copied() -> None:
    with patch.object(torch, "conv2d") as conv2d:
        convolution = StridedConv2d(4, 32, 8, 4).to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's
        x = torch.zeros(2, 4, 84, 84).contiguous(memory_format=torch.channels_last)
        convolution(x)
    pixels, weight, _, stride = conv2d.call_args.args
    assert pixels.shape == (2, 16, 84, 21)
    assert weight.shape == (32, 16, 8, 2)
    assert stride == (4, 1)
    assert pixels.data_ptr() == x.data_ptr()
    assert weight.data_ptr() == convolution.weight.data_ptr()
