"""Runner of policy networks on NumPy arrays; traces them per batch size where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch

from sb_dqn.accelerate import Mode, accelerate
from sb_dqn.accelerate.numpy_backend.function import NumpyFunction
from sb_dqn.buffers.frame_stack import RingObservations, observations_at
from sb_dqn.buffers.ring import Ring
from sb_dqn.devices import PackedArrays, is_host_visible, pack, unpack
from sb_dqn.nn.layers.noise import Noise
from sb_dqn.nn.layers.norms import SpectralWeights
from sb_dqn.policies.base import Policy
from sb_dqn.spaces import flatten_space
from sb_dqn.types import Array, BoolArray, Observation

Function = Callable[..., Any]
"""`(obs, mask, *inputs)`, all tensors, to a tensor or a tuple of them; takes `noise=` too where there is a generator."""

Transform = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]
"""From stored observations to network inputs, for example normalization; pure tensor operations."""


def unchanged(obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns `obs`; the transform without normalization."""
    return obs


class NetworkRunner:
    """A function of a policy's networks, called with NumPy arrays, or with observations that are on the device already.

    Args:
        policy: the networks.
        function: the function to run.
        mode: how to run it; "captured" needs networks on CUDA.
        transform: from stored observations to network inputs.
        generator: draws the networks' random numbers at each call; None: they have none.
        spectral_weights: cache of the networks' normalized weights; None: computed at each call.
    """

    def __init__(
        self,
        policy: Policy,
        function: Function,
        mode: Mode,
        transform: Transform = unchanged,
        generator: torch.Generator | None = None,
        spectral_weights: SpectralWeights | None = None,
    ) -> None:
        self.function = function
        self.transform = transform
        self.generator = generator
        self.spectral_weights = spectral_weights
        self.make_noise = policy.make_noise
        self.device = next(policy.parameters()).device
        self.mode = mode
        self.keys = list(flatten_space(policy.observation_space))
        self._count = -1
        self._masked = False
        self._noise: Noise | None = None
        self._accelerated: Any = None
        self._on_arrays: Callable[..., Any] | None = None  # a trace that NumPy runs, without tensors
        self._is_host_visible = is_host_visible(self.device)
        self._packed: PackedArrays | None = None
        self._ring: Ring | None = None  # of the observations, where they are on the device

    def __call__(self, obs: Observation, mask: BoolArray | None, *inputs: Array) -> tuple[Array, ...]:
        """Returns the outputs of a function of several outputs."""
        outputs = self._run(obs, mask, *inputs)
        if not self._is_host_visible:
            return tuple(unpack(outputs[0], outputs[1:]))
        # lists: a generator expression is slower, which shows when acting in one lane
        if self._on_arrays is not None:
            return tuple([np.asarray(output) for output in outputs])
        return tuple([output.cpu().numpy() for output in outputs])

    def run_single(self, obs: Observation, mask: BoolArray | None, *inputs: Array) -> Array:
        """Returns the output of a function of one output."""
        output = self._run(obs, mask, *inputs)
        return np.asarray(output) if self._on_arrays is not None else output.cpu().numpy()

    def set_mode(self, mode: Mode) -> None:
        """Changes how the function runs; the next call traces it again where that differs from now."""
        if mode != self.mode:
            self.mode, self._count = mode, -1
            self._on_arrays = None

    def _run(self, obs: Any, mask: BoolArray | None, *inputs: Array) -> Any:
        """Returns the outputs as arrays where NumPy runs the trace, else as tensors; several of a device follow all in one,
        see `pack`."""
        in_ring = isinstance(obs, RingObservations) and not self._is_host_visible
        if in_ring and self._ring is None and len(obs.lanes) == self._count:
            in_ring = False  # the trace of arrays serves as well
        ring = obs.ring if in_ring else None
        arrays = [obs.lanes, obs.rows] if in_ring else [obs[key] for key in self.keys]
        arrays += inputs
        if mask is not None:
            arrays.append(mask)
        if self.spectral_weights is not None:
            if self.mode == "captured":
                self.spectral_weights.trace(partial(accelerate, mode=self.mode, kept=()))
            self.spectral_weights.refresh()  # first, so that it is not part of a trace
        count = len(arrays[0])
        if count != self._count or (mask is not None) is not self._masked or ring is not self._ring:
            self._ring = ring
            self._prepare(arrays, mask is not None)
        if self._noise is not None and self.generator is not None:
            (self._noise.renew if self._is_host_visible else self._noise.draw)(self.generator)
        if not self._is_host_visible:
            sent = self._sent(arrays)
            return self._evaluate(*sent) if self.mode == "eager" else self._accelerated(*sent)
        if self.mode == "eager":
            return self._evaluate(*[torch.from_numpy(np.ascontiguousarray(array)) for array in arrays])
        for buffer, array in zip(self._buffers, arrays, strict=True):
            buffer[...] = array
        return self._accelerated(*self._tensors) if self._on_arrays is None else self._on_arrays(*self._buffers)

    def _sent(self, arrays: Sequence[Any]) -> list[torch.Tensor]:
        """Returns arrays as tensors on the device, sent in one copy; tensors that are there already stay as they are."""
        host = [array for array in arrays if not torch.is_tensor(array)]
        if not host:
            return list(arrays)
        if self._packed is None or not self._packed.fits(host):
            self._packed = PackedArrays(host, self.device)
        sent = iter(self._packed.send(host))
        return [array if torch.is_tensor(array) else next(sent) for array in arrays]

    def _prepare(self, arrays: list[Array], masked: bool) -> None:
        """Makes noise and, unless eager, a trace for this number of observations."""
        self._count = -1  # if this is interrupted, the next call prepares again
        self._masked = masked
        if self.generator is not None:
            self._noise = self.make_noise(len(arrays[0]))
        evaluate = self._evaluate
        if self._is_host_visible:
            self._tensors = [torch.from_numpy(np.array(np.asarray(array))) for array in arrays]
            self._buffers = [tensor.numpy() for tensor in self._tensors]
        elif self.mode != "eager":
            self._tensors = self._sent(arrays)
        if self.mode != "eager":
            self._accelerated = accelerate(evaluate, tuple(self._tensors), self.mode, kept=())
            if self._accelerated is evaluate:  # it could not be traced
                self.mode = "eager"
            self._on_arrays = self._accelerated.on_arrays if isinstance(self._accelerated, NumpyFunction) else None
        self._count = len(arrays[0])

    @torch.no_grad()
    def _evaluate(self, *tensors: torch.Tensor) -> Any:
        mask, tensors = (tensors[-1], tensors[:-1]) if self._masked else (None, tensors)
        if self._ring is None:
            count = len(self.keys)
            obs = dict(zip(self.keys, tensors[:count], strict=True))
        else:
            count = 2
            obs = observations_at(self._ring, *tensors[:count])
        noise = {} if self.generator is None else {"noise": self._drawn_noise()}
        with nullcontext() if self.spectral_weights is None else self.spectral_weights.cached():
            outputs = self.function(self.transform(obs), mask, *tensors[count:], **noise)
        # packed and shaped here, so that a trace has it and a tick launches no more
        return outputs if self._is_host_visible or torch.is_tensor(outputs) else (pack(outputs), *outputs)

    def _drawn_noise(self) -> Noise | None:
        return self._noise if self._noise is None or self._is_host_visible else self._noise.after_draw()
