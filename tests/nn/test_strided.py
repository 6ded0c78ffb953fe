"""Convolutions that read neighbours as one: against torch's own, and views where views are promised."""

from __future__ import annotations

from unittest.mock import patch

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from sb_dqn.nn.layers.strided_conv import StridedConv2d
from tests.nets import assert_equal_convolutions


def assert_the_same(kind: tuple[int, ...], plain_reads: Tensor, ours_reads: Tensor) -> None:
    """Outputs and gradients, of torch's convolution and of ours with the same weights (channels, kernel, step, padding)."""
    channels, kernel, step, padding = kind
    plain = nn.Conv2d(channels, 3, kernel, step, padding).double()
    assert_equal_convolutions(
        plain, StridedConv2d(channels, 3, kernel, step, padding).double(), plain_reads, ours_reads
    )


@settings(deadline=None)  # the first call of all loads a part of torch
@given(
    channels=st.integers(1, 5),
    step=st.integers(1, 4),
    times=st.integers(1, 3),
    further=st.integers(0, 6),
    tall=st.integers(0, 5),
    padding=st.integers(0, 1),
    uneven=st.booleans(),
    last=st.booleans(),
)
def test_the_same_numbers_and_gradients_as_torch(
    channels: int, step: int, times: int, further: int, tall: int, padding: int, uneven: bool, last: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    kernel = step * times + (uneven and step > 1)
    x = torch.randn(2, channels, kernel + tall, kernel + further, generator=generator, dtype=torch.float64)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    assert_the_same((channels, kernel, step, padding), x, x)


@settings(deadline=None)  # the first call of all loads a part of torch
@given(
    channels=st.integers(1, 4),
    step=st.integers(1, 5),
    times=st.integers(1, 2),
    further=st.integers(0, 6),
    skipped=st.integers(0, 2),
    last=st.booleans(),
)
def test_bytes_count_as_255ths(channels: int, step: int, times: int, further: int, skipped: int, last: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    kernel = step * times
    stored = torch.randint(256, (2, channels + skipped, kernel + 1, kernel + further), generator=generator).byte()
    x = stored[:, skipped:]  # as the second of two stacks that overlap
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    assert_the_same((channels, kernel, step, 0), x.double() / 255, x)


def test_nothing_is_copied_on_the_way() -> None:
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
