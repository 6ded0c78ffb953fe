"""Hadamax encoder: max-pooled products of two convolutional branches."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.norms import LayerNorm, Shape, check_layer_norm, image_norm
from sb_dqn.nn.torsos.convolutions import ImageExtractor, check_rows, image_shape
from sb_dqn.spaces import Space


class HadamaxBlock(nn.Module):
    r"""Elementwise product of two convolutions of an image, max-pooled.

    .. math:: y = \mathrm{maxpool}(\mathrm{gelu}(\mathrm{LN}(W_1 * x)) \odot \mathrm{gelu}(\mathrm{LN}(W_2 * x)))

    Args:
        shape: (C, H, W) of the input.
        channels: output channels.
        kernel: kernel size of the convolutions, which keep height and width.
        pool: window of the max-pooling.
        stride: stride of the max-pooling.
        layer_norm: over the "channels" at each pixel, over the whole image (True), or none (False).
    """

    def __init__(self, shape: Shape, channels: int, kernel: int, pool: int, stride: int, layer_norm: LayerNorm) -> None:
        super().__init__()
        depth, height, width = shape
        before = (kernel - 1) // 2
        after = kernel // 2
        # an even kernel needs one more row after the image than before it; both branches share one padded copy
        self.pad = nn.Sequential(*[nn.ZeroPad2d((before, after, before, after))] * (before != after))
        padding = before if before == after else 0
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(depth, channels, kernel, padding=padding),
                *image_norm((channels, height, width), layer_norm),
                nn.GELU(approximate="tanh"),
            )
            for _ in range(2)
        )
        margin = (pool - stride) // 2 if pool > stride else 0
        self.pool = nn.MaxPool2d(pool, stride, padding=margin, ceil_mode=True)
        self.shape: Shape = (channels, _pooled(height, pool, stride, margin), _pooled(width, pool, stride, margin))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pad(x)
        left, right = (branch(x) for branch in self.branches)
        return self.pool(left * right)  # type: ignore[no-any-return]  # nn.Module.__call__


class HadamaxCNN(ImageExtractor):
    """Three Hadamax blocks and a hidden layer (Kooi et al. 2025, arXiv 2505.15345).

    As in the paper: two branches with a Hadamard product, max-pooling with the strides of the Nature CNN's convolutions,
    GELU (its tanh form), layer norm over the channels before each activation, Xavier-normal weights and zero biases in
    the convolutions, and the default channels, kernels and windows; 4 x 84 x 84 gives 64 x 11 x 11 numbers. The paper's
    hidden layer of 512 with layer norm and GELU is built here if `features_dim` is a number; otherwise `net_arch`,
    `layer_norm` and `activation_fn` of the policy determine it.

    Args:
        observation_space: image `[C, H, W]`.
        features_dim: width of the hidden layer. If None, there is no hidden layer.
        channels: output channels of each block.
        kernels: kernel size of each block.
        pools: window of the max-pooling of each block.
        strides: stride of the max-pooling of each block.
        layer_norm: over the "channels" at each pixel, over the whole image (True), or none (False).
        normalized_image: True treats any Box of three axes as an image.

    Raises:
        ConfigurationError: no image, or an option out of range.
    """

    HIDDEN = 512

    def __init__(
        self,
        observation_space: Space,
        features_dim: int | None = HIDDEN,
        channels: Sequence[int] = (32, 64, 64),
        kernels: Sequence[int] = (8, 4, 3),
        pools: Sequence[int] = (4, 2, 3),
        strides: Sequence[int] = (4, 2, 1),
        layer_norm: LayerNorm = "channels",
        normalized_image: bool = False,
    ) -> None:
        shape = image_shape(observation_space, "HadamaxCNN", normalized_image)
        check_layer_norm(layer_norm)
        blocks: list[HadamaxBlock] = []
        rows = check_rows(channels=channels, kernels=kernels, pools=pools, strides=strides)
        for out, kernel, pool, stride in rows:
            blocks.append(HadamaxBlock(shape, out, kernel, pool, stride, layer_norm))
            shape = blocks[-1].shape
        super().__init__(observation_space, blocks, shape, features_dim, layer_norm, nn.GELU(approximate="tanh"))
        for part in self.cnn.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.xavier_normal_(part.weight)
                nn.init.zeros_(part.bias)  # type: ignore[arg-type]  # made with a bias


def _pooled(size: int, pool: int, stride: int, margin: int) -> int:
    """Returns the number of windows along an axis; the last one may reach beyond the end but must not begin there."""
    count = -((size + 2 * margin - pool) // -stride) + 1
    count -= (count - 1) * stride >= size + margin
    if count < 1:
        raise ConfigurationError(
            f"pools must be windows within the image, got {pool} on {size} pixels. Use smaller windows, or a larger image."
        )
    return count
