"""Convolutions with a stride, in the form in which CPUs calculate them fastest."""

from __future__ import annotations

import torch
from torch import Tensor, nn

WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of as many bytes."""


class StridedConv2d(nn.Conv2d):
    """A convolution that reads s neighbouring pixels of a row as one pixel, where its stride is s: the same numbers.

    In channels_last memory the C channels of s neighbours lie side by side, as s C channels of one pixel would, and so do
    the weights: to look at both in this way costs nothing, and leaves a horizontal stride of 1. The matrices that are
    multiplied inside become s times as wide; the 4 channels of a frame stack are too few by themselves.

    Images of bytes (uint8) are read as 255ths: the weights are divided, of which there are fewer. Where their channels lie
    one after the other, s neighbours are moved at once, as one number of s bytes.
    """

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        step, kernel = self.stride[1], self.kernel_size[1]
        widens = step > 1 and not (kernel % step or x.shape[-1] % step) and self.padding == (0, 0)
        if x.dtype == torch.uint8:
            weight = weight * (1.0 / 255.0)
            if widens and _in_words(x, step):
                return torch.conv2d(
                    _words(x, step).to(weight.dtype), _by_channel(weight, step), bias, (self.stride[0], 1)
                )
            x = x.contiguous(memory_format=torch.channels_last).to(weight.dtype)  # bytes move faster than numbers
        if widens:
            return torch.conv2d(_side_by_side(x, step), _side_by_side(weight, step), bias, (self.stride[0], 1))
        out: Tensor = super()._conv_forward(x, weight, bias)
        return out


def _side_by_side(x: Tensor, step: int) -> Tensor:
    """`[N, C, H, W]` -> `[N, s C, H, W / s]`, a view of channels_last memory: the channels of a pixel stay together."""
    count, channels, height, width = x.shape
    return x.permute(0, 2, 3, 1).reshape(count, height, width // step, step * channels).permute(0, 3, 1, 2)


def _in_words(x: Tensor, step: int) -> bool:
    """Whether each s bytes of a row can be read as one number."""
    *further, last = x.stride()
    return step in WORDS and last == 1 and not any(size % step for size in (*further, x.storage_offset()))


def _words(x: Tensor, step: int) -> Tensor:
    """`[N, C, H, W]` bytes -> `[N, C s, H, W / s]` in channels_last memory: s neighbours of a channel stay together."""
    # a clone, unlike contiguous(), gives a single channel the strides that the view needs
    pixels = x.view(WORDS[step]).permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
    return pixels.view(torch.uint8).permute(0, 3, 1, 2)


def _by_channel(weight: Tensor, step: int) -> Tensor:
    """The weights for `_words`."""
    out, channels, height, width = weight.shape
    rows = weight.permute(0, 2, 3, 1).reshape(out, height, width // step, step, channels)
    return rows.transpose(3, 4).flatten(3).permute(0, 3, 1, 2)
