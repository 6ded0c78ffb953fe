"""Convolutions in the form that CPUs compute fastest: of small images as matrix products, and with a stride."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.accelerate import MatmulConvolution

SMALL_PIXELS = 10
"""Largest height and width of small images, those of MinAtar: calling their convolutions takes longer than computing them."""


class WindowedConv2d(MatmulConvolution, nn.Conv2d):
    """Convolution that copies the window of each output pixel into a row and multiplies all rows at once.

    The rows repeat each pixel once per window over it, so this is for small images only.
    """

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (tall, wide), (down, right) = self.kernel_size, self.stride
        vertical, horizontal = (int(size) for size in self.padding)
        x = functional.pad(x.permute(0, 2, 3, 1), (0, 0, horizontal, horizontal, vertical, vertical))
        count, height, width, depth = x.shape
        rows = (height - tall) // down + 1
        # a row of pixels with their channels is one row of numbers, of which a window covers `wide * depth` neighbors
        spans = x.reshape(count, height, width * depth).unfold(2, wide * depth, right * depth)
        windows = torch.cat([spans[:, i : i + (rows - 1) * down + 1 : down] for i in range(tall)], -1)
        out = functional.linear(windows, weight.permute(0, 2, 3, 1).reshape(len(weight), -1), bias)
        return out.permute(0, 3, 1, 2)


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
