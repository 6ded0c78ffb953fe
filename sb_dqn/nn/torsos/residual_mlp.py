"""Residual features extractors for vectors: SimBa, and blocks with a second skip connection from the first layer."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from sb_dqn.checks import check_int
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.torsos.feature_extractor import BaseFeaturesExtractor, FlattenExtractor
from sb_dqn.spaces import Space, is_image

EXPANSION = 4
"""Width of the hidden layer of a SimBa block, as a multiple of the features."""
FLAX_EPS = 1e-6
"""Epsilon of layer norms in flax, in which SimBa was published; torch's is 1e-5."""


class VectorExtractor(BaseFeaturesExtractor, ABC):
    """Base class of features extractors for vectors: flattens the observation, and concatenates the keys of a Dict.

    Args:
        observation_space: any space but a Dict with an image.
        features_dim: width of the features.

    Raises:
        ConfigurationError: a Dict has an image, or `features_dim` is out of range.
    """

    def __init__(self, observation_space: Space, features_dim: int) -> None:
        super().__init__(observation_space, check_int("features_dim", features_dim, 1))
        leaves = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {"obs": observation_space}
        images = [key for key, leaf in leaves.items() if is_image(leaf)]
        if images and isinstance(observation_space, spaces.Dict):
            raise ConfigurationError(
                f"observation_space must have no image for {type(self).__name__}, got images {images}. Use "
                f"features_extractor_class=CombinedExtractor, which has a CNN for each image."
            )
        self.keys = list(leaves)
        self.parts = nn.ModuleList(FlattenExtractor(leaf) for leaf in leaves.values())
        self.in_features = sum(int(spaces.utils.flatdim(leaf)) for leaf in leaves.values())

    def flat(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Returns observations, or those of a dict by key, as `[N, in_features]`."""
        if isinstance(observations, Tensor):
            (part,) = self.parts
            return part(observations)  # type: ignore[no-any-return]  # nn.Module.__call__ is untyped
        return torch.cat([part(observations[key]) for key, part in zip(self.keys, self.parts, strict=True)], -1)


class SimBaBlock(nn.Module):
    r"""Residual block with layer norm before its hidden layer.

    .. math:: y = x + W_2 \, \mathrm{relu}(W_1 \, \mathrm{LN}(x))

    Args:
        width: width H of input and output; the hidden layer has 4 H units.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=FLAX_EPS)
        self.up = Linear(width, EXPANSION * width)
        self.down = Linear(EXPANSION * width, width)
        for layer in (self.up, self.down):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        inner: Tensor = self.down(functional.relu(self.up(self.norm(x))))
        return x + inner


class SimBa(VectorExtractor):
    r"""Residual network of SimBa for vectors (Lee et al. 2024, arXiv 2410.09754).

    .. math:: x_0 = W o, \qquad x_{k} = x_{k-1} + W_2 \, \mathrm{relu}(W_1 \, \mathrm{LN}(x_{k-1})), \qquad
        z = \mathrm{LN}(x_K)

    The first layer starts orthogonal, those of the blocks with He's normal weights, all biases at 0. The paper has the head
    directly after the last norm (`net_arch=[]`), normalizes observations (`normalize_observations=True`), and uses AdamW
    with a weight decay of 0.01.

    Args:
        observation_space: any space but a Dict with an image; it is flattened.
        features_dim: H, width of the blocks: 512 for critics in the paper, 128 for actors.
        n_blocks: K, number of blocks, from 1: 2 for critics in the paper, 1 for actors.

    Raises:
        ConfigurationError: a Dict has an image, or a number is out of range.
    """

    def __init__(self, observation_space: Space, features_dim: int = 512, n_blocks: int = 2) -> None:
        super().__init__(observation_space, features_dim)
        self.stem = Linear(self.in_features, self.features_dim)
        nn.init.orthogonal_(self.stem.weight)
        nn.init.zeros_(self.stem.bias)
        count = check_int("n_blocks", n_blocks, 1)
        self.blocks = nn.Sequential(*(SimBaBlock(self.features_dim) for _ in range(count)))
        self.norm = nn.LayerNorm(self.features_dim, eps=FLAX_EPS)

    def forward(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        return self.norm(self.blocks(self.stem(self.flat(observations))))  # type: ignore[no-any-return]  # __call__


class MultiSkipBlock(nn.Module):
    r"""Residual block of two layers with layer norm, to which the output of the first layer of the network is added again.

    .. math:: y = x + \mathrm{LN}(W_2 \, \mathrm{relu}(\mathrm{LN}(W_1 \, \mathrm{relu}(x)))) + g

    Args:
        width: width H of all layers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (_normalized_linear(width, width) for _ in range(2))

    def forward(self, x: Tensor, g: Tensor) -> Tensor:
        inner: Tensor = self.second(functional.relu(self.first(functional.relu(x))))
        return x + inner + g


class MultiSkipMLP(VectorExtractor):
    r"""Residual network for vectors whose first layer is added to every block (Castanyer et al. 2025, arXiv 2506.15544).

    .. math:: g = x_0 = \mathrm{LN}(W o), \qquad x_k = x_{k-1} + \mathrm{LN}(W_2 \, \mathrm{relu}(\mathrm{LN}(W_1 \,
        \mathrm{relu}(x_{k-1})))) + g, \qquad z = x_K

    Each block thus has a direct path for gradients to the first layer. Weights start orthogonal with gain sqrt(2), biases at
    0. The output layer of the paper, with layer norm and ReLU, is `net_arch=[512]` with `layer_norm=True` of the policy.

    Args:
        observation_space: any space but a Dict with an image; it is flattened.
        features_dim: H, width of the layers.
        n_blocks: K, number of blocks, from 1: 1, 3 or 5 in the paper.

    Raises:
        ConfigurationError: a Dict has an image, or a number is out of range.
    """

    def __init__(self, observation_space: Space, features_dim: int = 512, n_blocks: int = 3) -> None:
        super().__init__(observation_space, features_dim)
        self.stem = _normalized_linear(self.in_features, self.features_dim)
        count = check_int("n_blocks", n_blocks, 1)
        self.blocks = nn.ModuleList(MultiSkipBlock(self.features_dim) for _ in range(count))

    def forward(self, observations: Tensor | Mapping[str, Tensor]) -> Tensor:
        g: Tensor = self.stem(self.flat(observations))
        x = g
        for block in self.blocks:
            x = block(x, g)
        return x


def _normalized_linear(in_features: int, out_features: int) -> nn.Sequential:
    """Returns a linear layer, orthogonal with gain sqrt(2), and a layer norm."""
    layer = Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight, math.sqrt(2.0))
    nn.init.zeros_(layer.bias)
    return nn.Sequential(layer, nn.LayerNorm(out_features))
