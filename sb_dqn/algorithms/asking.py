"""Asking nets from numpy: arrays in, arrays out, recorded for their number where that pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate import Mode, accelerate, are_small
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import flatten_space
from sb_dqn.types import BoolArray, Observation

Ask = Callable[..., tuple[torch.Tensor, ...]]
"""`(obs, mask, *further)`, tensors all, to tensors."""

See = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


def as_they_are(obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Observations that nobody normalises."""
    return obs


class NetCall:
    """Runs a function of a policy's nets on the arrays of acting.

    Args:
        policy: the nets.
        ask: what is run.
        mode: how; anything but "eager" needs small nets on the CPU.
        see: from observations as they are to observations as the nets see them; pure tensor operations.
    """

    def __init__(self, policy: Policy, ask: Ask, mode: Mode, see: See = as_they_are) -> None:
        self.ask, self.see = ask, see
        self.device = next(policy.parameters()).device
        self.mode: Mode = mode if are_small([policy], self.device) else "eager"
        self.keys = list(flatten_space(policy.observation_space))
        self._shape: tuple[int, bool] = (-1, False)
        self._run: Any = None

    def __call__(
        self, obs: Observation, mask: BoolArray | None, *further: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], ...]:
        """What `ask` says, as arrays of our own."""
        given = [*(obs[key] for key in self.keys), *further]
        if mask is not None:
            given.append(mask)
        shape = len(given[0]), mask is not None
        if shape != self._shape:
            self._prepare(given, shape)
        if self.mode == "eager":
            tensors = [torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for array in given]
            return tuple(answer.cpu().numpy() for answer in self._answer(*tensors))
        for kept, array in zip(self._arrays, given, strict=True):
            kept[...] = array
        return tuple(answer.numpy() for answer in self._run(*self._inputs))

    def _prepare(self, given: list[npt.NDArray[Any]], shape: tuple[int, bool]) -> None:
        self._shape = shape
        if self.mode != "eager":
            self._inputs = [torch.from_numpy(np.array(array)) for array in given]
            self._arrays = [tensor.numpy() for tensor in self._inputs]
            self._run = accelerate(self._answer, tuple(self._inputs), self.mode)

    @torch.no_grad()
    def _answer(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mask, tensors = (tensors[-1], tensors[:-1]) if self._shape[1] else (None, tensors)
        count = len(self.keys)
        obs = dict(zip(self.keys, tensors[:count], strict=True))
        return self.ask(self.see(obs), mask, *tensors[count:])
