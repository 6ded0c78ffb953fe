"""Latent states and their transitions, for self-prediction (Schwarzer et al. 2021, arXiv 2007.05929)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sb_dqn.nn.layers.linear import Linear
from sb_dqn.nn.layers.norms import Shape
from sb_dqn.nn.torsos.convolutions import ImageExtractor

EPSILON = 1e-5
"""Epsilon of the renormalization, as in the Atari settings of SPR."""


def renormalized(z: Tensor) -> Tensor:
    """Returns latent states `[N, F]`, each moved and scaled so that its smallest number is 0 and its largest 1."""
    # min and max, not amin and amax: their gradient goes to one number, which takes less time than to divide it among equal ones
    low, high = z.min(-1, keepdim=True).values, z.max(-1, keepdim=True).values
    return (z - low) / (high - low + EPSILON)


def latent_shape(features: nn.Module) -> Shape | None:
    """Returns (C, H, W) of the features of one CNN without a hidden layer, and None for all other networks."""
    extractor = getattr(features, "extractor", None)
    return extractor.shape if isinstance(extractor, ImageExtractor) else None


class LatentModel(nn.Module):
    r"""Predicts the latent states that follow actions, and the projection of them.

    .. math:: \hat z_{k+1} = \mathrm{renorm}\big(\mathrm{relu}(W_2\, \mathrm{relu}(W_1 [\hat z_k, a_k]))\big)

    The W are 3 x 3 convolutions, and the action is one constant plane per choice, where the latent state has the shape of an image;
    else they are linear layers, and the action is one-hot.

    Args:
        width: number F of values in a latent state.
        shape: (C, H, W) of the latent state. If None, the latent state is a vector.
        branches: number of choices of each branch of the action; one number for Discrete actions.
        projected: width of a projection.
    """

    def __init__(self, width: int, shape: Shape | None, branches: tuple[int, ...], projected: int) -> None:
        super().__init__()
        self.shape = shape
        self.branches = branches
        choices = sum(branches)
        self.transition: nn.Sequential
        if shape is None:
            self.transition = nn.Sequential(Linear(width + choices, width), nn.ReLU(), Linear(width, width), nn.ReLU())
        else:
            depth = shape[0]
            self.transition = nn.Sequential(
                nn.Conv2d(depth + choices, depth, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(depth, depth, 3, padding=1),
                nn.ReLU(),
            )
        self.predictor = Linear(projected, projected)

    def forward(self, z: Tensor, actions: Tensor) -> Tensor:
        """Returns the latent states after each of K actions, `[K, N, F]`.

        Args:
            z: `[N, F]`, renormalized.
            actions: `[K, N]` or `[K, N, D]` int64.
        """
        states = []
        for action in actions.unsqueeze(-1).flatten(2):
            z = renormalized(self._step(z, action))
            states.append(z)
        return torch.stack(states)

    def _step(self, z: Tensor, action: Tensor) -> Tensor:
        # functional.one_hot looks at the values, which no trace can hold
        chosen = [
            each.unsqueeze(-1) == torch.arange(count, device=z.device)
            for each, count in zip(action.unbind(-1), self.branches, strict=True)
        ]
        one_hot = torch.cat(chosen, -1).to(z.dtype)
        if self.shape is None:
            return self.transition(torch.cat([z, one_hot], -1))  # type: ignore[no-any-return]  # nn.Module.__call__
        image = z.view(-1, *self.shape)
        planes = one_hot[:, :, None, None].expand(-1, -1, *self.shape[1:])
        after: Tensor = self.transition(torch.cat([image, planes], 1))
        return after.flatten(1)
