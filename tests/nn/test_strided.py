"""Convolutions that read neighbours as one: against torch's own, and views where views are promised."""

from __future__ import annotations

from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sb_dqn.nn.strided import StridedConv2d


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
    plain = nn.Conv2d(channels, 3, kernel, step, padding).double()
    ours = StridedConv2d(channels, 3, kernel, step, padding).double()
    ours.load_state_dict(plain.state_dict())
    x = torch.randn(2, channels, kernel + tall, kernel + further, generator=generator, dtype=torch.float64)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    found = []
    for convolution in (plain, ours):
        read = x.clone(memory_format=torch.preserve_format).requires_grad_()
        out = convolution(read)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        found.append([out, *torch.autograd.grad((out * weights).sum(), [read, *convolution.parameters()])])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


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
    plain = nn.Conv2d(channels, 3, kernel, step).double()
    ours = StridedConv2d(channels, 3, kernel, step).double()
    ours.load_state_dict(plain.state_dict())
    stored = torch.randint(256, (2, channels + skipped, kernel + 1, kernel + further), generator=generator).byte()
    x = stored[:, skipped:]  # as the second of two stacks that overlap
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    found = []
    for convolution, read in ((plain, x.double() / 255), (ours, x)):
        out = convolution(read)
        weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
        found.append([out, *torch.autograd.grad((out * weights).sum(), [*convolution.parameters()])])
    for expected, got in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)


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
