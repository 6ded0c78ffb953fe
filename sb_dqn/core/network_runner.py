"""Asking nets from numpy: arrays in, arrays out, recorded for their number where that pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sb_dqn.accelerate import Mode, accelerate, choose_mode
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import flatten_space
from sb_dqn.types import BoolArray, Observation

Ask = Callable[..., Any]
"""`(obs, mask, *further)`, tensors all, to a tensor or a tuple of them; where there is a generator, with `noise=` too."""

See = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


def as_they_are(obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Observations that nobody normalises."""
    return obs


class NetworkRunner:
    """Runs a function of a policy's nets on the arrays of acting.

    Args:
        policy: the nets.
        ask: what is run.
        mode: how; anything but "eager" needs nets on the CPU.
        see: from observations as they are to observations as the nets see them; pure tensor operations.
        generator: draws the nets' random numbers anew for each call; None: there are none.
    """

    def __init__(
        self,
        policy: Policy,
        ask: Ask,
        mode: Mode,
        see: See = as_they_are,
        generator: torch.Generator | None = None,
    ) -> None:
        self.ask, self.see, self.generator = ask, see, generator
        self.make_noise = policy.make_noise
        self.device = next(policy.parameters()).device
        if mode == "compiled" and choose_mode([policy], self.device, torch_compile=False) == "traced":
            mode = "traced"  # a record is begun sooner than compiled code, and acting is a matter of beginning
        self.mode = mode
        self.keys = list(flatten_space(policy.observation_space))
        self._count, self._masked = -1, False
        self._noise: Noise | None = None
        self._noisy: dict[str, Noise | None] = {}
        self._run: Any = None

    def __call__(
        self, obs: Observation, mask: BoolArray | None, *further: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], ...]:
        """What `ask` says, as arrays of our own."""
        # a list: a generator takes longer, and acting on one lane feels it
        return tuple([answer.cpu().numpy() for answer in self._tell(obs, mask, *further)])

    def alone(self, obs: Observation, mask: BoolArray | None, *further: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The one array that `ask` says."""
        return self._tell(obs, mask, *further).cpu().numpy()  # type: ignore[no-any-return]  # of one tensor

    def _tell(self, obs: Observation, mask: BoolArray | None, *further: npt.NDArray[Any]) -> Any:
        given = [obs[key] for key in self.keys]
        given += further
        if mask is not None:
            given.append(mask)
        count = len(given[0])
        if count != self._count or (mask is not None) is not self._masked:
            self._prepare(given, mask is not None)
        if self._noise is not None and self.generator is not None:
            self._noise.renew(self.generator)
        if self.mode == "eager":
            return self._answer(*[torch.from_numpy(np.ascontiguousarray(array)).to(self.device) for array in given])
        for kept, array in zip(self._arrays, given, strict=True):
            kept[...] = array
        return self._run(*self._inputs)

    def _prepare(self, given: list[npt.NDArray[Any]], masked: bool) -> None:
        """Noise and, unless eager, a recording for this number of observations."""
        self._count, self._masked = -1, masked  # if it is interrupted, the next call prepares anew
        if self.generator is not None:
            self._noise = self.make_noise(len(given[0]))
            self._noisy = {"noise": self._noise}
        if self.mode != "eager":
            self._inputs = [torch.from_numpy(np.array(array)) for array in given]
            self._arrays = [tensor.numpy() for tensor in self._inputs]
            self._run = accelerate(self._answer, tuple(self._inputs), self.mode)
        self._count = len(given[0])

    @torch.no_grad()
    def _answer(self, *tensors: torch.Tensor) -> Any:
        mask, tensors = (tensors[-1], tensors[:-1]) if self._masked else (None, tensors)
        count = len(self.keys)
        obs = dict(zip(self.keys, tensors[:count], strict=True))
        return self.ask(self.see(obs), mask, *tensors[count:], **self._noisy)
