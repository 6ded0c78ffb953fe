"""Convolutional features extractors: their base class, the Nature CNN, and the CNN for MinAtar."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from math import prod
from typing import Any

from torch import Tensor, nn

from sb_dqn.checks import check_bool, check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.convolution import SMALL_PIXELS, StridedConv2d, WindowedConv2d
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.norms import LayerNorm, Shape, SpectralConv2d, check_layer_norm, image_norm
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor
from sb_dqn.spaces import Space, is_image


class ImageExtractor(BaseFeaturesExtractor, ABC):
    """Base class of CNNs: convolutions, flattening, and a hidden layer unless the policy builds it.

    `HIDDEN` of a subclass is the width of the hidden layer in its paper.

    Args:
        observation_space: image `[C, H, W]`.
        layers: modules from images to images.
        shape: (C, H, W) of their output.
        features_dim: width of the hidden layer. If None, there is no hidden layer.
        layer_norm: layer norm in the hidden layer too.
        activation: activation of the hidden layer. If None, it is ReLU.
    """

    def __init__(
        self,
        observation_space: Space,
        layers: Sequence[nn.Module],
        shape: Shape,
        features_dim: int | None,
        layer_norm: LayerNorm = False,
        activation: nn.Module | None = None,
    ) -> None:
        width = prod(shape)
        if features_dim is not None:
            features_dim = check_int("features_dim", features_dim, 1)
        super().__init__(observation_space, features_dim or width)
        self.cnn = nn.Sequential(*layers, nn.Flatten())
        self.shape = shape if features_dim is None else None
        """(C, H, W) of the output before it is flattened, or None behind a hidden layer."""
        self.linear = nn.Sequential()
        if features_dim is not None:
            norm = [nn.LayerNorm(features_dim)] if layer_norm else []
            self.linear = nn.Sequential(Linear(width, features_dim), *norm, activation or nn.ReLU())

    def forward(self, observation: Tensor) -> Tensor:
        return self.linear(self.cnn(observation))  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped


def image_shape(observation_space: Space, name: str, normalized: bool) -> Shape:
    """Returns (C, H, W) of an image.

    Raises:
        ConfigurationError: the space is not an image.
    """
    if not is_image(observation_space, check_bool("normalized_image", normalized)):
        raise ConfigurationError(
            f"observation_space must be an image (three axes; uint8 of 0..255, or bool) for {name}, got {observation_space}. "
            f"Use 'MlpPolicy' for vectors, 'MultiInputPolicy' for a Dict, and normalize_images=False for images of other "
            f"numbers."
        )
    depth, height, width = observation_space.shape  # type: ignore[misc]  # an image, checked above
    return depth, height, width


def check_numbers(name: str, numbers: object, low: int = 1) -> list[int]:
    """Returns a list of integers from `low`.

    Raises:
        ConfigurationError: it is not a list, or a number is out of range.
    """
    if isinstance(numbers, str) or not isinstance(numbers, Sequence):
        raise ConfigurationError(f"{name} must be a list of integers, got {numbers!r}. Give for example (32, 64).")
    return [check_int(f"{name} entry", number, low) for number in numbers]


def check_rows(**options: object) -> list[tuple[int, ...]]:
    """Returns one row per convolution from options with one number per convolution; only `paddings` may be 0.

    Raises:
        ConfigurationError: an option is no list of integers, or lengths differ or are 0.
    """
    lists = {name: check_numbers(name, value, 0 if name == "paddings" else 1) for name, value in options.items()}
    lengths = {len(numbers) for numbers in lists.values()}
    if len(lengths) != 1 or 0 in lengths:
        listed = ", ".join(f"{name}={tuple(numbers)}" for name, numbers in lists.items())
        raise ConfigurationError(
            f"{', '.join(lists)} must have the same length, one number for each convolution, got {listed}. Give all of them."
        )
    return list(zip(*lists.values(), strict=True))


def convolutions(
    shape: Shape,
    channels: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int] | None,
    use_maxpool: bool,
    layer_norm: LayerNorm,
    spectral_norm: bool,
) -> tuple[list[nn.Module], Shape]:
    """Returns convolutions with optional layer norm, optional max-pooling, and ReLU, and the shape (C, H, W) of their output.

    ReLU comes after max-pooling: the same result as in the usual order, for a fraction of the work.

    Args:
        shape: (C, H, W) of the images.
        channels: output channels of each convolution.
        kernels: kernel size of each convolution.
        strides: stride of each convolution.
        paddings: padding of each convolution. If None, it is 0.
        use_maxpool: convolutions of stride 1, each followed by max-pooling with its stride.
        layer_norm: after each convolution: over the whole image (True), or over the "channels" at each pixel.
        spectral_norm: True divides each weight by its largest singular value.

    Raises:
        ConfigurationError: lengths differ, a number is out of range, or the images are too small.
    """
    options = {"channels": channels, "kernels": kernels, "strides": strides}
    if paddings is None:
        rows: list[tuple[int, ...]] = [(*row, 0) for row in check_rows(**options)]
    else:
        rows = check_rows(**options, paddings=paddings)
    check_bool("use_maxpool", use_maxpool)
    check_bool("spectral_norm", spectral_norm)
    check_layer_norm(layer_norm)
    smallest = 1  # height and width with an output, in pixels
    for _, kernel, stride, padding in reversed(rows):
        smallest = smallest * stride + kernel - 1 if use_maxpool else (smallest - 1) * stride + kernel
        smallest = max(smallest - 2 * padding, 1)
    if min(shape[1:]) < smallest:
        raise ConfigurationError(
            f"images must be {smallest} x {smallest} or larger for kernels {tuple(kernels)} with strides {tuple(strides)}, got "
            f"{shape}. Resize them, give smaller kernels through features_extractor_kwargs, or use "
            f"features_extractor_class=MinAtarCNN."
        )
    small = max(shape[1:]) <= SMALL_PIXELS
    make: Any = SpectralConv2d if spectral_norm else WindowedConv2d if small else StridedConv2d
    layers: list[nn.Module] = []
    for depth, kernel, stride, padding in rows:
        pool, step = (stride, 1) if use_maxpool else (1, stride)
        height, width = ((size + 2 * padding - kernel) // step + 1 for size in shape[1:])
        convolution = make(shape[0], depth, kernel, step, padding)
        convolution.places = height * width
        layers.append(convolution)
        layers += image_norm((depth, height, width), layer_norm)
        if pool > 1:
            layers.append(nn.MaxPool2d(pool))
        layers.append(nn.ReLU())
        shape = depth, height // pool, width // pool
    return layers, shape


class NatureCNN(ImageExtractor):
    """Three convolutions and a hidden layer (Mnih et al. 2015, doi 10.1038/nature14236).

    The options are those of rlpyt: its Atari network is `paddings=(0, 1, 1)`, optionally with `use_maxpool=True`.

    Args:
        observation_space: image `[C, H, W]`, with the defaults at least 36 x 36.
        features_dim: width of the hidden layer. If None, there is no hidden layer.
        channels, kernels, strides, paddings, use_maxpool, layer_norm, spectral_norm: see `convolutions`.
        normalized_image: True treats any Box of three axes as an image.

    Raises:
        ConfigurationError: the space is not an image, the image is too small, or an option is out of range.
    """

    HIDDEN = 512

    def __init__(
        self,
        observation_space: Space,
        features_dim: int | None = HIDDEN,
        channels: Sequence[int] = (32, 64, 64),
        kernels: Sequence[int] = (8, 4, 3),
        strides: Sequence[int] = (4, 2, 1),
        normalized_image: bool = False,
        paddings: Sequence[int] | None = None,
        use_maxpool: bool = False,
        layer_norm: LayerNorm = False,
        spectral_norm: bool = False,
    ) -> None:
        shape = image_shape(observation_space, "NatureCNN", normalized_image)
        layers, shape = convolutions(
            shape, channels, kernels, strides, paddings, use_maxpool, layer_norm, spectral_norm
        )
        super().__init__(observation_space, layers, shape, features_dim, layer_norm)


class MinAtarCNN(ImageExtractor):
    """One convolution and a hidden layer, for images from 3 x 3 up (Young & Tian 2019, arXiv 1903.03176).

    Args:
        observation_space: image `[C, H, W]`.
        features_dim: width of the hidden layer. If None, there is no hidden layer.
        channels, kernels, strides, paddings, use_maxpool, layer_norm, spectral_norm: see `convolutions`.
        normalized_image: True treats any Box of three axes as an image.

    Raises:
        ConfigurationError: the space is not an image, the image is too small, or an option is out of range.
    """

    HIDDEN = 128

    def __init__(
        self,
        observation_space: Space,
        features_dim: int | None = HIDDEN,
        channels: Sequence[int] = (16,),
        kernels: Sequence[int] = (3,),
        strides: Sequence[int] = (1,),
        normalized_image: bool = False,
        paddings: Sequence[int] | None = None,
        use_maxpool: bool = False,
        layer_norm: LayerNorm = False,
        spectral_norm: bool = False,
    ) -> None:
        shape = image_shape(observation_space, "MinAtarCNN", normalized_image)
        layers, shape = convolutions(
            shape, channels, kernels, strides, paddings, use_maxpool, layer_norm, spectral_norm
        )
        super().__init__(observation_space, layers, shape, features_dim, layer_norm)
