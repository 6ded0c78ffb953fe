"""Convolutions with a stride, in the form in which CPUs calculate them fastest."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class StridedConv2d(nn.Conv2d):
    """A convolution that reads s neighbouring pixels of a row as one pixel, where its stride is s: the same numbers.

    In channels_last memory the C channels of s neighbours lie side by side, as s C channels of one pixel would, and so do
    the weights: to look at both in this way costs nothing, and leaves a horizontal stride of 1. The matrices that are
    multiplied inside become s times as wide; the 4 channels of a frame stack are too few by themselves.

    Images of bytes (uint8) are read as 255ths: the weights are divided, of which there are fewer.
    """

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        step, kernel = self.stride[1], self.kernel_size[1]
        widens = step > 1 and not (kernel % step or x.shape[-1] % step) and self.padding == (0, 0)
        if x.dtype == torch.uint8:
            weight = weight * (1.0 / 255.0)
            x = x.contiguous(memory_format=torch.channels_last).to(weight.dtype)  # bytes move faster than numbers
        if widens:
            return torch.conv2d(_side_by_side(x, step), _side_by_side(weight, step), bias, (self.stride[0], 1))
        out: Tensor = super()._conv_forward(x, weight, bias)
        return out


def _side_by_side(x: Tensor, step: int) -> Tensor:
    """`[N, C, H, W]` -> `[N, s C, H, W / s]`, a view of channels_last memory: the channels of a pixel stay together."""
    count, channels, height, width = x.shape
    return x.permute(0, 2, 3, 1).reshape(count, height, width // step, step * channels).permute(0, 3, 1, 2)
