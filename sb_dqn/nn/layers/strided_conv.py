"""Convolutions with a stride, in the form that CPUs compute fastest."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class StridedConv2d(nn.Conv2d):
    """Convolution with a horizontal stride of s that treats s neighboring pixels as one pixel with s times the channels.

    The result is that of `nn.Conv2d`. In channels_last memory both the image and the weight are reinterpreted without a
    copy, and the matrices that are multiplied become s times as wide: the 4 channels of a frame stack are few.
    """

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        stride, kernel = self.stride[1], self.kernel_size[1]
        if stride == 1 or kernel % stride or x.shape[-1] % stride or self.padding != (0, 0):
            out: Tensor = super()._conv_forward(x, weight, bias)
            return out
        return torch.conv2d(_merge_pixels(x, stride), _merge_pixels(weight, stride), bias, (self.stride[0], 1))


def _merge_pixels(x: Tensor, count: int) -> Tensor:
    """`[N, C, H, W]` -> `[N, count * C, H, W / count]`, a view of channels_last memory."""
    images, channels, height, width = x.shape
    merged = x.permute(0, 2, 3, 1).reshape(images, height, width // count, count * channels)
    return merged.permute(0, 3, 1, 2)
