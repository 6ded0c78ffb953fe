"""Layer norm and spectral norm, without state.

`torch.nn.utils.parametrizations.spectral_norm` keeps an estimate that each forward pass in training mode updates. That
does not work here: acting would change the network, the estimate of a bfloat16 twin would not reach the float32 master
that is saved, and tracing a function (`sb_dqn/accelerate`) would update it once more. So the largest singular value
is a pure function of the weights. `SpectralWeights` computes it for all layers of a network together, and caches
the normalized weights where the parameters do not change between two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from sb_dqn.accelerate.onednn_linear import linear
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.convolution import StridedConv2d
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.parameters.flat import as_row, unflattened

Shape = tuple[int, int, int]
LayerNorm = bool | Literal["channels"]

SQUARINGS = 6
"""2^6 = 64 steps of the power method: at worst 0.9 % too small for 64 rows and 1.5 % for 512, 0.1 % for typical weights."""
TINY = 1e-12


def spectral_norm(weight: Tensor) -> Tensor:
    r"""Returns the largest singular value of a weight as a matrix `[out, rest]`, `[]` float32, differentiably.

    .. math:: u \propto (W W^T)^{64} e_j, \qquad \sigma = \lVert W^T u \rVert

    The smaller of the two Gram matrices is squared six times. e_j selects the longest column of the result, so the start
    is never orthogonal to the singular vector. u is a constant in the gradient, which then is that of sigma itself.

    Args:
        weight: `[out, in]` or `[out, in, h, w]`, of any dtype and memory format.
    """
    matrix = as_row(weight).view(weight.shape[0], -1).float()
    matrix = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    sigma: Tensor = torch.linalg.vector_norm(matrix.T @ _left_vectors(matrix.unsqueeze(0))[0])
    return sigma


@torch.no_grad()
def _left_vectors(batch: Tensor) -> Tensor:
    """Returns u of `spectral_norm` for each matrix, `[L, R, C]` -> `[L, R, 1]`."""
    gram = batch @ batch.mT
    for _ in range(SQUARINGS // 2):
        gram = gram / torch.linalg.vector_norm(gram, dim=(1, 2), keepdim=True).clamp_min(TINY)
        gram = gram @ gram
        gram = gram @ gram
    longest = torch.linalg.vector_norm(gram, dim=1).argmax(1)
    u = gram.gather(2, longest.view(-1, 1, 1).expand(-1, batch.shape[1], 1))
    length: Tensor = torch.linalg.vector_norm(u, dim=1, keepdim=True)
    return u / length.clamp_min(TINY)


def spectrally_normalized(weight: Tensor) -> Tensor:
    """Returns the weight divided by its largest singular value (Miyato et al. 2018, arXiv 1802.05957), in its own dtype."""
    normalized: Tensor = (weight.float() / spectral_norm(weight).clamp_min(TINY)).to(weight.dtype)  # rounded once
    return normalized


class SpectralLayer:
    """Base class of layers that divide their weight by its largest singular value."""

    weight: Tensor
    shared_weight: Tensor | None = None
    """The normalized weight, which `SpectralWeights` sets for a block of code. If None, it is computed at each call."""

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


class _Places(NamedTuple):
    """Places of the elements of L weights in one row of P + 1 numbers, the last of which is 0, and in matrices `[L, R, C]`."""

    in_row: Tensor
    """`[L, R, C]`; P where a matrix is padded."""
    in_matrices: Tensor
    """`[P + 1]`."""
    weight: Tensor
    """`[P + 1]`, the number of the weight."""


def _places(weights: Sequence[Tensor]) -> _Places:
    """Returns the places of weights, each as a matrix with at most as many rows as columns."""
    size, start = sum(weight.numel() for weight in weights), 0
    indices = []
    for weight in weights:
        index = np.arange(start, start + weight.numel()).reshape(weight.shape[0], -1)
        indices.append(index.T if index.shape[0] > index.shape[1] else index)
        start += weight.numel()
    in_row = np.full((len(indices), *(max(index.shape[axis] for index in indices) for axis in (0, 1))), size)
    for matrix, index in zip(in_row, indices, strict=True):
        matrix[: index.shape[0], : index.shape[1]] = index
    in_matrices = np.zeros(size + 1, np.int64)
    in_matrices[in_row.ravel()] = np.arange(in_row.size)
    owner = np.repeat(np.arange(len(weights)), [weight.numel() for weight in weights])
    arrays = in_row, in_matrices, np.append(owner, 0)
    return _Places(*(torch.from_numpy(array).to(weights[0].device) for array in arrays))


class _Normalized(torch.autograd.Function):
    r"""Divides weights in one row `[P + 1]`, each by its largest singular value.

    .. math:: \frac{\partial}{\partial W} \frac{W}{\sigma} : \quad
        G \mapsto \frac{1}{\sigma} \big( G - \langle G, W / \sigma \rangle \, u v^T \big)

    The number of operations does not grow with the number of weights: they are gathered into one batch of matrices, padded
    with zeros, which changes no singular value.
    """

    @staticmethod
    def forward(ctx: Any, row: Tensor, *places: Tensor) -> Tensor:
        in_row, in_matrices, weight = places
        matrices = row.take(in_row)
        u = _left_vectors(matrices)
        v = matrices.mT @ u  # times sigma
        sigmas = torch.linalg.vector_norm(v, dim=(1, 2)).clamp_min(TINY)
        sigma = sigmas.index_select(0, weight)
        normalized: Tensor = row / sigma
        if ctx.needs_input_grad[0]:
            direction = (u @ (v / sigmas.view(-1, 1, 1)).mT).take(in_matrices)
            ctx.save_for_backward(normalized, sigma, direction, in_row, weight)
        return normalized

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        normalized, sigma, direction, in_row, weight = ctx.saved_tensors
        products = (gradient * normalized).take(in_row).sum((1, 2))
        return (gradient - direction * products.index_select(0, weight)) / sigma, None, None, None


class SpectralWeights:
    """Normalized weights of all spectral layers of a network, computed together and used by several passes.

    The layers use them inside of `with weights.cached():` or `with weights.computed():` only. Outside, each layer computes
    its own, so copies of a network, and networks whose parameters a user has changed, need no care.

    Args:
        network: module with at least one spectral layer.
    """

    def __init__(self, network: nn.Module) -> None:
        self.layers = [part for part in network.modules() if isinstance(part, SpectralLayer)]
        weights = [layer.weight.detach() for layer in self.layers]
        self._places = _places(weights)
        self._zero = weights[0].new_zeros(1)
        # written in place, since traces read it
        self._cache = torch.cat([*map(as_row, weights), self._zero])
        self._versions: list[int] | None = None
        self._write: Callable[[Tensor], Tensor] = self._written
        self._is_traced = False

    def trace(self, make: Callable[[Callable[[Tensor], Tensor], tuple[Tensor]], Callable[[Tensor], Tensor]]) -> None:
        """Writes the cache by what `make` returns for a function and its example; the first call counts."""
        if not self._is_traced:
            self._write, self._is_traced = make(self._written, (self._zero,)), True

    def invalidate(self) -> None:
        """Records that the parameters have changed. Torch itself records only what is written by their own names, such as by
        `load_state_dict`, and not what is written to the flat tensor that they are views of."""
        self._versions = None

    @torch.no_grad()
    def refresh(self) -> None:
        """Writes the cache if the parameters have changed; to be called before each run of a trace that reads it."""
        versions = [layer.weight._version for layer in self.layers]
        if versions != self._versions:
            self._write(self._zero)
            self._versions = versions

    @torch.no_grad()
    def _written(self, zero: Tensor) -> Tensor:
        return self._cache.copy_(self._compute())

    def cached(self) -> AbstractContextManager[None]:
        """Returns a context in which the layers use the cache, without a gradient."""
        self.refresh()
        return self._shared(self._cache)

    def computed(self) -> AbstractContextManager[None]:
        """Returns a context in which the layers use weights that are computed here, differentiably."""
        return self._shared(self._compute())

    def _compute(self) -> Tensor:
        """Returns the normalized weights in one row."""
        row = torch.cat([*(as_row(layer.weight) for layer in self.layers), self._zero])
        normalized: Tensor = _Normalized.apply(row.float(), *self._places)  # type: ignore[no-untyped-call]  # torch's
        return normalized.to(row.dtype)  # rounded once

    @contextmanager
    def _shared(self, row: Tensor) -> Iterator[None]:
        parts = torch.split(row, [*(layer.weight.numel() for layer in self.layers), 1])
        for layer, part in zip(self.layers, parts, strict=False):
            layer.shared_weight = unflattened(part, layer.weight.shape)
        try:
            yield
        finally:
            for layer in self.layers:
                layer.shared_weight = None


def spectral_weights(network: nn.Module) -> SpectralWeights | None:
    """Returns the normalized weights of a network, or None if it has no spectral layers."""
    has_any = any(isinstance(part, SpectralLayer) for part in network.modules())
    return SpectralWeights(network) if has_any else None


class ImageLayerNorm(nn.LayerNorm):
    """Layer norm of images `[N, C, H, W]` that keeps the channels_last memory format (Ba et al. 2016, arXiv 1607.06450).

    Args:
        shape: (C, H, W) of one image.
        over: True normalizes over C, H and W, with a weight for each element; "channels" normalizes over C at each pixel, with
            a weight per channel.
    """

    def __init__(self, shape: Shape, over: LayerNorm = True) -> None:
        channels, height, width = shape
        super().__init__((channels,) if over == "channels" else (height, width, channels))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def check_layer_norm(value: object) -> LayerNorm:
    """Returns `value` if it is False, True or "channels".

    Raises:
        ConfigurationError: it is another value.
    """
    if value is True or value is False:
        return bool(value)
    if isinstance(value, str) and value == "channels":
        return "channels"
    raise ConfigurationError(f"layer_norm must be True, False or 'channels', got {value!r}. Give one of them.")


def image_norm(shape: Shape, over: LayerNorm) -> list[nn.Module]:
    """Returns the norm for `over` in a list, which is empty if `over` is False."""
    return [ImageLayerNorm(shape, over)] if over else []
