"""Parameters with an optimiser of their own, in the middle of those that share one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.nn.parameters.optimizers import take_moments


class FractionOptimizer:
    """Steps some neighbouring parameters of a flat tensor by RMSprop, at a rate of their own.

    Their gradient is not clipped and does not count in the norm that clips the others: `take` it out before, `give` it
    back after. What the main optimiser does to them in its step is undone.

    Args:
        parameters: all of a net's, in the order of `flat`.
        own: those that are stepped here; neighbours in that order.
        flat: `[P]`, see `flatten_parameters`.
        learning_rate: for as long as this lives.
        alpha, eps: of RMSprop; the defaults are FQF's (Yang et al. 2019, arXiv 1911.02140).

    Raises:
        ValueError: `own` are no neighbours.
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
        self.block, self.own = _block(parameters, own), own
        self.master = nn.Parameter(flat[self.block])
        self.optimizer = torch.optim.RMSprop([self.master], lr=learning_rate, alpha=alpha, eps=eps)

    def take(self, gradient: Tensor) -> Tensor:
        """Cuts these parameters' part out of a gradient `[P]`, in which zeros stay behind."""
        part = gradient[self.block]
        taken = part.clone()
        part.zero_()
        return taken

    def give(self, gradient: Tensor, taken: Tensor) -> None:
        """Puts back into a gradient `[P]` what `take` cut out."""
        gradient[self.block].copy_(taken)

    def step(self, gradient: Tensor, others: Callable[[], Any]) -> None:
        """One step along a gradient `[P]`; `others` is the step of the main optimiser."""
        kept = self.master.detach().clone()
        others()
        with torch.no_grad():
            self.master.copy_(kept)
        self.master.grad = gradient[self.block]
        frozen = [(each, each.detach().clone()) for each in self.own if not each.requires_grad]
        if len(frozen) < len(self.own):
            self.optimizer.step()
        with torch.no_grad():
            for each, before in frozen:
                each.copy_(before)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over the running squares; the rate stays as the constructor says.

        Raises:
            ValueError: they are of other parameters; nothing has changed.
        """
        own = self.optimizer.state_dict()["param_groups"]
        take_moments(self.optimizer, {"state": state["state"], "param_groups": own}, plain_adam=False)


def _block(parameters: Sequence[Tensor], own: Sequence[Tensor]) -> slice:
    """Where neighbouring parameters lie in the flat tensor."""
    wanted = {id(parameter) for parameter in own}
    positions = [number for number, parameter in enumerate(parameters) if id(parameter) in wanted]
    if not positions or positions != list(range(positions[0], positions[0] + len(wanted))):
        raise ValueError(f"parameters {positions} of {len(parameters)} are no {len(wanted)} neighbours")
    start = sum(parameter.numel() for parameter in parameters[: positions[0]])
    return slice(start, start + sum(parameter.numel() for parameter in own))
