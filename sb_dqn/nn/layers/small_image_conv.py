"""Convolutions of small images as matrix products, which can be recorded like linear layers."""

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
