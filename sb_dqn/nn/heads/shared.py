"""Several value heads on the same features, of which each is the target of the next (iS-QL)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sb_dqn.nn.heads.scalar import Outputs
from sb_dqn.nn.layers.linear import MakeLinear
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.parameters.flat import flat_copy


class SharedOutputs(Outputs):
    r"""Output layer of 1 + K value heads, which differ in their last linear layers only (Vincent et al. 2026, arXiv 2506.04398).

    Each pass reads the heads that `Noise.heads` names; without it the last one.

    Args:
        depth: Z of one head.
        iterations: K.
        linear, width, branches, branched, dueling: see `Outputs`.
    """

    def __init__(
        self,
        linear: MakeLinear,
        width: int,
        depth: int,
        *,
        iterations: int,
        branches: tuple[int, ...],
        branched: bool = False,
        dueling: bool = False,
    ) -> None:
        super().__init__(linear, width, (1 + iterations) * depth, branches, branched, dueling)
        self.by_head = (1 + iterations, depth)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        """Maps `[N, ..., H]`, or `[N, ..., 2 H]`, to `[N, ..., (D,) A, Z]`; of a slice of k heads to `[k N, ..., (D,) A, Z]`, the
        rows of one head after those of another."""
        every = super().forward(x, noise)
        every = every.reshape(*every.shape[:-1], *self.by_head)
        heads = None if noise is None else noise.heads
        if heads is None:
            return every[..., -1, :]
        if isinstance(heads, slice):
            return every[..., heads, :].movedim(-2, 0).flatten(0, 1)
        place = heads.view(-1, *(1,) * (every.dim() - 1)).expand(*every.shape[:-2], 1, every.shape[-1])
        return every.gather(-2, place).squeeze(-2)

    def heads_of(self, x: Tensor) -> Tensor:
        """Returns a view `[R, 1 + K, Z, ...]` of one of the parameters, or of a tensor of its shape."""
        return x.view(-1, *self.by_head, *x.shape[1:])

    @torch.no_grad()
    def shift(self, times: int = 1) -> None:
        """Copies to each head the parameters of the next one, `times` times; the last one keeps its own."""
        last = self.by_head[0] - 1
        for heads in map(self.heads_of, self.parameters()):
            order = torch.arange(last + 1, device=heads.device).add(times).clamp_max(last)
            heads.copy_(heads[:, order])


def first_heads(network: nn.Module, parameters: Iterable[nn.Parameter]) -> Tensor | None:
    """Returns the places `[F]` int64 of all heads 0 in a flat tensor of a network's parameters; None if it has no such heads."""
    owners = {id(p): outputs for outputs in shared_outputs(network) for p in outputs.parameters()}
    marks = []
    for parameter in parameters if owners else ():
        marks.append(torch.zeros(parameter.shape, dtype=torch.bool))
        if id(parameter) in owners:
            owners[id(parameter)].heads_of(marks[-1])[:, 0] = True
    return flat_copy(marks).nonzero().squeeze(-1).to(parameter.device) if marks else None


def shared_outputs(network: nn.Module) -> list[SharedOutputs]:
    """Returns the output layers of a network that have several heads."""
    return [part for part in network.modules() if isinstance(part, SharedOutputs)]
