"""Optimizer of FQF's fraction proposal, whose parameters have a learning rate of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.nn.parameters.optimizers import take_moments


class FractionOptimizer:
    """RMSprop for a contiguous block of parameters in a flat tensor, with its own learning rate.

    The gradient of the block is not clipped and does not count in the norm that clips the others: `take` removes it before
    clipping, `give` puts it back afterwards. `step` undoes the main optimizer's change of the block.

    Args:
        parameters: all parameters of the network, in the order of `flat`.
        own: parameters of the block, contiguous in that order.
        flat: `[P]`, see `flatten_parameters`.
        learning_rate: constant learning rate.
        alpha: smoothing of RMSprop; FQF's default (Yang et al. 2019, arXiv 1911.02140).
        eps: epsilon of RMSprop; FQF's default.

    Raises:
        ValueError: `own` is not contiguous.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        own: Sequence[Tensor],
        flat: Tensor,
        learning_rate: float,
        alpha: float = 0.95,
        eps: float = 1e-5,
    ) -> None:
        self.block = _block(parameters, own)
        self.own = own
        self.master = nn.Parameter(flat[self.block])
        self.optimizer = torch.optim.RMSprop([self.master], lr=learning_rate, alpha=alpha, eps=eps)

    def take(self, gradient: Tensor) -> Tensor:
        """Returns the block of a gradient `[P]` and sets it to zero there."""
        part = gradient[self.block]
        taken = part.clone()
        part.zero_()
        return taken

    def give(self, gradient: Tensor, taken: Tensor) -> None:
        """Restores the block of a gradient `[P]` that `take` returned."""
        gradient[self.block].copy_(taken)

    def step(self, gradient: Tensor, others: Callable[[], Any]) -> None:
        """Makes one step along a gradient `[P]`.

        Args:
            gradient: `[P]`.
            others: makes the step of the main optimizer.
        """
        before = self.master.detach().clone()
        others()
        with torch.no_grad():
            self.master.copy_(before)
        self.master.grad = gradient[self.block]
        frozen = [(each, each.detach().clone()) for each in self.own if not each.requires_grad]
        if len(frozen) < len(self.own):
            self.optimizer.step()
        with torch.no_grad():
            for each, value in frozen:
                each.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the running squares; the learning rate stays that of the constructor.

        Raises:
            ValueError: the state is that of other parameters; nothing has changed.
        """
        own = self.optimizer.state_dict()["param_groups"]
        take_moments(self.optimizer, {"state": state["state"], "param_groups": own}, plain_adam=False)


def _block(parameters: Sequence[Tensor], own: Sequence[Tensor]) -> slice:
    """Returns the slice of contiguous parameters in the flat tensor."""
    wanted = {id(parameter) for parameter in own}
    positions = [number for number, parameter in enumerate(parameters) if id(parameter) in wanted]
    if not positions or positions != list(range(positions[0], positions[0] + len(wanted))):
        raise ValueError(
            f"own must be {len(wanted)} contiguous parameters, got the positions {positions} of {len(parameters)}. "
            f"Define them in one module."
        )
    start = sum(parameter.numel() for parameter in parameters[: positions[0]])
    return slice(start, start + sum(parameter.numel() for parameter in own))
