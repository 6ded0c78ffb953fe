"""Residual CNN of IMPALA, with the extensions of Beyond The Rainbow."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.checks import check_bool, check_choice, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.norms import LayerNorm, Shape, SpectralConv2d, check_layer_norm, image_norm
from sb_dqn.nn.torsos.convolutions import ImageExtractor, check_numbers, image_shape
from sb_dqn.spaces import Space


class ResidualBlock(nn.Module):
    """Residual block of two 3 x 3 convolutions: x + conv(relu(conv(relu(x)))).

    Args:
        channels: input and output channels.
        spectral_norm: True divides each weight by its largest singular value.
    """

    def __init__(self, channels: int, spectral_norm: bool) -> None:
        super().__init__()
        make = SpectralConv2d if spectral_norm else nn.Conv2d
        self.first, self.second = (make(channels, channels, 3, padding=1) for _ in range(2))
        self.between = nn.ReLU()  # a module, so that its units are found

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.second(self.between(self.first(functional.relu(x))))
        return inner + x


class ImpalaCNN(ImageExtractor):
    r"""Three stages of a convolution, max-pooling and two residual blocks (Espeholt et al. 2018, arXiv 1802.01561).

    Beyond The Rainbow (Clark et al. 2024, arXiv 2411.03820) is `width=2, spectral_norm=True, adaptive_pool=(6, 6)` with a
    hidden layer of 512; `layer_norm=True` in addition is its variant BTR-LN. Impoola (Trumpp et al. 2025, arXiv 2503.05546)
    is `pool="avg"`: the hidden layer then reads one number per channel, the mean over all pixels,

    .. math:: z_c = \frac{1}{H W} \sum_{h, w} \mathrm{relu}(x_{c h w}).

    Args:
        observation_space: image `[C, H, W]`.
        features_dim: width of the hidden layer. If None, there is no hidden layer.
        width: multiple of the paper's channels: 1, 2 or 4.
        widths: channels of each stage for width 1.
        spectral_norm: divide the weights of the residual blocks' convolutions by their largest singular values.
        adaptive_pool: (height, width) to which the last stage's output is max-pooled. If None, it is not max-pooled.
        layer_norm: after each stage's first convolution, before its max-pooling, and in the hidden layer.
        normalized_image: True treats any Box of three axes as an image.
        pool: "avg" averages each channel of the last stage's output over the whole image, without `adaptive_pool`. If None,
            pixels are not averaged.

    Raises:
        ConfigurationError: no image, an option out of range, or both kinds of pooling.
    """

    HIDDEN = 256

    def __init__(
        self,
        observation_space: Space,
        features_dim: int | None = HIDDEN,
        width: int = 1,
        widths: Sequence[int] = (16, 32, 32),
        spectral_norm: bool = False,
        adaptive_pool: Sequence[int] | None = None,
        layer_norm: LayerNorm = False,
        normalized_image: bool = False,
        pool: str | None = None,
    ) -> None:
        shape = image_shape(observation_space, "ImpalaCNN", normalized_image)
        if check_int("width", width, 1) not in (1, 2, 4):
            raise ConfigurationError(
                f"width must be 1, 2 or 4, got {width!r}. Give one of them, or the channels of each stage by widths."
            )
        check_bool("spectral_norm", spectral_norm)
        check_layer_norm(layer_norm)
        if pool is not None:
            check_choice("pool", pool, ("avg",))
            if adaptive_pool is not None:
                raise ConfigurationError(
                    f"adaptive_pool must be None with pool='avg', which leaves one number per channel, got {adaptive_pool!r}. "
                    f"Give one of them."
                )
        layers: list[nn.Module] = []
        stages = check_numbers("widths", widths)
        if not stages:
            raise ConfigurationError(
                f"widths must not be empty, got {widths!r}. Give the channels of one stage or more."
            )
        for channels in stages:
            stage, shape = _stage(shape, channels * int(width), spectral_norm, layer_norm)
            layers += stage
        layers.append(nn.ReLU())
        if adaptive_pool is not None:
            pooled = _pooled(adaptive_pool, shape)
            halved = shape[1:] == tuple(2 * size - 1 for size in pooled)
            # the same windows, by a kernel that keeps the memory format and is deterministic
            layers.append(nn.MaxPool2d(3, 2, padding=1) if halved else nn.AdaptiveMaxPool2d(pooled))
            shape = shape[0], *pooled
        if pool is not None:
            layers.append(nn.AdaptiveAvgPool2d(1))
            shape = shape[0], 1, 1
        super().__init__(observation_space, layers, shape, features_dim, layer_norm)


def _stage(shape: Shape, channels: int, spectral_norm: bool, layer_norm: LayerNorm) -> tuple[list[nn.Module], Shape]:
    """Returns the layers of one stage and the shape of its output: half the height and width, rounded up."""
    depth, height, width = shape
    layers: list[nn.Module] = [nn.Conv2d(depth, channels, 3, padding=1)]
    layers += image_norm((channels, height, width), layer_norm)
    layers.append(nn.MaxPool2d(3, 2, padding=1))
    layers += [ResidualBlock(channels, spectral_norm) for _ in range(2)]
    return layers, (channels, (height + 1) // 2, (width + 1) // 2)


def _pooled(adaptive_pool: Sequence[int], shape: Shape) -> tuple[int, int]:
    """Returns `adaptive_pool` as (height, width)."""
    sizes = check_numbers("adaptive_pool", adaptive_pool)
    if len(sizes) != 2:
        raise ConfigurationError(
            f"adaptive_pool must be (height, width) or None, got {adaptive_pool!r}. Give for example (6, 6)."
        )
    height, width = sizes
    if height > shape[1] or width > shape[2]:
        raise ConfigurationError(
            f"adaptive_pool must be at most the size of its input, {shape[1]} x {shape[2]}, got {(height, width)}. Give at most "
            f"that, None, larger images, or features_extractor_class=MinAtarCNN."
        )
    return height, width
