"""Layer norm and spectral norm, without state.

`torch.nn.utils.parametrizations.spectral_norm` keeps an estimate that each forward pass in training mode updates. That
does not work here: acting would change the network, the estimate of a bfloat16 twin would not reach the float32 master
that is saved, and recording a function (`sb_dqn/accelerate`) would make one update more. So the largest singular value
is a pure function of the weights. `SpectralWeights` computes it for all layers of a network together, and caches
the normalized weights where the parameters do not change between two passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.strided_conv import StridedConv2d

Shape = tuple[int, int, int]
LayerNorm = bool | Literal["channels"]

SQUARINGS = 6
"""2^6 = 64 steps of the power method: at worst 0.9 % too small for 64 rows and 1.5 % for 512, 0.1 % for typical weights."""
TINY = 1e-12


def spectral_norm(weight: Tensor) -> Tensor:
    """Returns the largest singular value of a weight, `[]` float32; see `spectral_norms`."""
    return spectral_norms([weight]).squeeze(0)


def spectral_norms(weights: Sequence[Tensor]) -> Tensor:
    r"""Returns the largest singular values of weights as matrices `[out, rest]`, differentiably.

    .. math:: u \propto (W W^T)^{64} e_j, \qquad \sigma = \lVert W^T u \rVert

    The smaller of the two Gram matrices is squared six times. e_j selects the longest column of the result, so the start
    is never orthogonal to the singular vector. u is a constant in the gradient, which then is that of sigma itself.

    All matrices are padded with zeros to the same size, which changes no singular value, and multiplied as one batch: the
    number of operations does not grow with the number of weights.

    Args:
        weights: L tensors `[out, in]` or `[out, in, h, w]`, of any dtype and memory format.

    Returns:
        `[L]` float32.
    """
    matrices = [_wide_matrix(weight) for weight in weights]
    rows, columns = (max(matrix.shape[dim] for matrix in matrices) for dim in (0, 1))
    batch = torch.stack([_padded(matrix, rows, columns) for matrix in matrices])
    with torch.no_grad():
        gram = batch @ batch.mT
        for _ in range(SQUARINGS // 2):
            gram = gram / torch.linalg.vector_norm(gram, dim=(1, 2), keepdim=True).clamp_min(TINY)
            gram = gram @ gram
            gram = gram @ gram
        longest = torch.linalg.vector_norm(gram, dim=1).argmax(1)
        u = gram.gather(2, longest.view(-1, 1, 1).expand(-1, rows, 1))
        u = u / torch.linalg.vector_norm(u, dim=1, keepdim=True).clamp_min(TINY)
    sigmas: Tensor = torch.linalg.vector_norm(batch.mT @ u, dim=(1, 2))
    return sigmas


def _wide_matrix(weight: Tensor) -> Tensor:
    """Returns a weight as a float32 matrix with at most as many rows as columns."""
    # the order of the columns does not matter; this one is free in channels_last
    matrix = weight.permute(0, 2, 3, 1).flatten(1) if weight.dim() == 4 else weight
    matrix = matrix.float()
    return matrix.T if matrix.shape[0] > matrix.shape[1] else matrix


def _padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Returns a matrix with zeros appended."""
    missing = (0, columns - matrix.shape[1], 0, rows - matrix.shape[0])
    return functional.pad(matrix, missing) if any(missing) else matrix


def spectrally_normalized(weight: Tensor) -> Tensor:
    """Returns the weight divided by its largest singular value (Miyato et al. 2018, arXiv 1802.05957), in its own dtype."""
    return _divide(weight, spectral_norm(weight).clamp_min(TINY))


def _divide(weight: Tensor, sigma: Tensor) -> Tensor:
    normalized: Tensor = (weight.float() / sigma).to(weight.dtype)  # rounded once
    return normalized


class SpectralLayer:
    """Base class of layers that divide their weight by its largest singular value."""

    weight: Tensor
    shared_weight: Tensor | None = None
    """The normalized weight, which `SpectralWeights` sets for a block of code; None: computed at each call."""

    @property
    def normalized_weight(self) -> Tensor:
        """The weight divided by its largest singular value."""
        return spectrally_normalized(self.weight) if self.shared_weight is None else self.shared_weight


class SpectralConv2d(SpectralLayer, StridedConv2d):
    """Convolution with its weight divided by its largest singular value, as a matrix `[out, in h w]`."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._conv_forward(x, self.normalized_weight, self.bias)
        return out


class SpectralLinear(SpectralLayer, Linear):
    """Linear layer with its weight divided by its largest singular value.

    Cheap up to widths of about 128; at 512 the singular value costs as much as a small update.
    """

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return linear(x, self.normalized_weight, self.bias)


class SpectralWeights:
    """Normalized weights of all spectral layers of a network, computed together and used by several passes.

    The layers use them inside of `with weights.cached():` or `with weights.computed():` only. Outside, each layer computes
    its own, so copies of a network, and networks whose parameters a user has changed, need no care.

    Args:
        network: module with at least one spectral layer.
    """

    def __init__(self, network: nn.Module) -> None:
        self.layers = [part for part in network.modules() if isinstance(part, SpectralLayer)]
        # written in place, since recordings read them
        self._cache = [torch.empty_like(layer.weight, requires_grad=False) for layer in self.layers]
        self._versions: list[int] | None = None

    def invalidate(self) -> None:
        """Notes that the parameters have changed. Torch itself notes only what is written by their own names, such as by
        `load_state_dict`, and not what is written to the flat tensor that they are views of."""
        self._versions = None

    @torch.no_grad()
    def refresh(self) -> None:
        """Updates the cache if the parameters have changed; to be called before each replay of a recording that reads it."""
        versions = [layer.weight._version for layer in self.layers]
        if versions != self._versions:
            for cached, weight in zip(self._cache, self._compute(), strict=True):
                cached.copy_(weight)
            self._versions = versions

    def cached(self) -> AbstractContextManager[None]:
        """Returns a context in which the layers use the cache, without a gradient."""
        self.refresh()
        return self._shared(self._cache)

    def computed(self) -> AbstractContextManager[None]:
        """Returns a context in which the layers use weights that are computed here, differentiably."""
        return self._shared(self._compute())

    def _compute(self) -> list[Tensor]:
        weights = [layer.weight for layer in self.layers]
        sigmas = spectral_norms(weights).clamp_min(TINY).unbind()
        return [_divide(weight, sigma) for weight, sigma in zip(weights, sigmas, strict=True)]

    @contextmanager
    def _shared(self, weights: Sequence[Tensor]) -> Iterator[None]:
        for layer, weight in zip(self.layers, weights, strict=True):
            layer.shared_weight = weight
        try:
            yield
        finally:
            for layer in self.layers:
                layer.shared_weight = None


def spectral_weights(network: nn.Module) -> SpectralWeights | None:
    """Returns the normalized weights of a network; None if it has no spectral layers."""
    has_any = any(isinstance(part, SpectralLayer) for part in network.modules())
    return SpectralWeights(network) if has_any else None


class ImageLayerNorm(nn.LayerNorm):
    """Layer norm of images `[N, C, H, W]` that keeps the channels_last memory format (Ba et al. 2016, arXiv 1607.06450).

    Args:
        shape: (C, H, W) of one image.
        over: True: over C, H and W, with a weight for each element; "channels": over C at each pixel, with a weight per
            channel.
    """

    def __init__(self, shape: Shape, over: LayerNorm = True) -> None:
        channels, height, width = shape
        super().__init__((channels,) if over == "channels" else (height, width, channels))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def check_layer_norm(value: Any) -> LayerNorm:
    """Returns `value` if it is False, True or "channels".

    Raises:
        ConfigurationError: another value.
    """
    if value is True or value is False:
        return bool(value)
    if isinstance(value, str) and value == "channels":
        return "channels"
    raise ConfigurationError(f"layer_norm must be True, False or 'channels', got {value!r}. Give one of them.")


def image_norm(shape: Shape, over: LayerNorm) -> list[nn.Module]:
    """Returns the norm for `over` in a list, which is empty if `over` is False."""
    return [ImageLayerNorm(shape, over)] if over else []
