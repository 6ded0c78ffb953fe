"""Convolutions of small images as products of matrices, which can be recorded like those of linear layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.accelerate import MatmulConvolution

SMALL_PIXELS = 10
"""MinAtar's. Up to this height and width images count as small: what surrounds their convolutions takes longer than they do."""


class WindowedConv2d(MatmulConvolution, nn.Conv2d):
    """A convolution that copies the window behind each pixel into one row and multiplies them all at once: the same numbers.

    The rows repeat each pixel as often as there are windows over it, so this is for small images alone.
    """

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        (tall, wide), (down, right) = self.kernel_size, self.stride
        above, beside = (int(size) for size in self.padding)
        x = functional.pad(x.permute(0, 2, 3, 1), (0, 0, beside, beside, above, above))
        count, height, width, depth = x.shape
        rows = (height - tall) // down + 1
        # a row of pixels with their channels is one row of numbers, of which a window takes `wide * depth` neighbours
        spans = x.reshape(count, height, width * depth).unfold(2, wide * depth, right * depth)
        windows = torch.cat([spans[:, i : i + (rows - 1) * down + 1 : down] for i in range(tall)], -1)
        out = functional.linear(windows, weight.permute(0, 2, 3, 1).reshape(len(weight), -1), bias)
        return out.permute(0, 3, 1, 2)
