"""Parameters of the online and the target network in flat tensors, with low-precision copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.nn.heads.shared import shared_outputs
from sb_dqn.nn.layers.norms import SpectralWeights, spectral_weights
from sb_dqn.nn.parameters.flat import flat_views, flatten_parameters, point_into


class ParameterStore:
    """The parameters of both networks, each network's in one flat tensor.

    With `precision="bf16"` forward and backward run on bfloat16 twins of the networks. The networks themselves stay the
    float32 masters that the optimizer steps and checkpoints hold.

    Args:
        online: network that learns; its parameters become views of the flat tensor.
        target: network that bootstraps, a copy of the online network or of its first part; None: there is none.
        precision: "fp32" or "bf16".

    Attributes:
        flat: `[P]`, parameters of the online network.
        flat_target: parameters of the target network; `flat` if there is none.
        online, target: networks to compute with: the twins, if any.
        low: low-precision parameters of the online twin; None for "fp32".
        masters: parameters of the online network, views of `flat`.
        trained: parameters of `online`, in the same order.
        shared: output layers with several heads, of which one is the target of another; empty if a network is the target.
    """

    def __init__(self, online: Any, target: Any, precision: str) -> None:
        self.flat = flatten_parameters(list(online.parameters()))
        self.flat_target = self.flat if target is None else flatten_parameters(list(target.parameters()))
        target = online if target is None else target
        self.buffers = list(zip(target.buffers(), online.buffers(), strict=False))
        self.online = online
        self.target = target
        self.low: Tensor | None = None
        self.low_target = torch.empty(0)
        self.low_buffers: list[tuple[Tensor, Tensor]] = []
        self.low_target_buffers: list[tuple[Tensor, Tensor]] = []
        self._low_runs: list[tuple[slice, slice]] = []
        self._low_target_runs: list[tuple[slice, slice]] = []
        if precision == "bf16":
            self.online = online.twin(torch.bfloat16)
            self.target = self.online if target is online else target.twin(torch.bfloat16)
            self.low = _flatten_low(self.online)
            self.low_target = self.low if target is online else _flatten_low(self.target)
            self.low_buffers = list(zip(online.buffers(), self.online.buffers(), strict=True))
            self.low_target_buffers = list(zip(target.buffers(), self.target.buffers(), strict=True))
            self._low_runs = _low_runs(self.online)
            self._low_target_runs = self._low_runs if target is online else _low_runs(self.target)
        self.masters = list(online.parameters())
        self.target_masters = list(target.parameters())
        self.trained = list(self.online.parameters())
        self.shared = shared_outputs(self.online)
        self._online_weights = spectral_weights(self.online)
        self._master_weights = self._online_weights if self.online is online else spectral_weights(online)
        self._target_weights = None if self.target is self.online else spectral_weights(self.target)
        self._weights_of = {
            self.target: self._target_weights,
            online: self._master_weights,
            self.online: self._online_weights,
        }

    def acting_weights(self, network: nn.Module) -> SpectralWeights | None:
        """Returns the normalized weights for acting with a network; None: it has no spectral layers, or computes them itself."""
        return self._weights_of.get(network)

    @contextmanager
    def learning_weights(self) -> Iterator[None]:
        """Makes spectral layers share their normalized weights for an update: computed once, or cached in the target."""
        with ExitStack() as stack:
            if self._target_weights is not None:
                stack.enter_context(self._target_weights.cached())
            if self._online_weights is not None:
                stack.enter_context(self._online_weights.computed())
            yield

    def refresh_target_weights(self) -> None:
        """Normalizes the weights of the target network if they have changed; to be called before each update."""
        if self._target_weights is not None:
            self._target_weights.refresh()

    @property
    def trainable(self) -> list[bool]:
        """True for each parameter that learns; a user may freeze some by `requires_grad_(False)`, at any time."""
        return [parameter.requires_grad for parameter in self.masters]

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters of `online` that learn.

        Raises:
            ConfigurationError: all parameters are frozen.
        """
        for parameter, learns in zip(self.trained, self.trainable, strict=True):
            if parameter.requires_grad is not learns:  # a twin's
                parameter.requires_grad_(learns)
        found = [parameter for parameter in self.trained if parameter.requires_grad]
        if not found:
            raise ConfigurationError(
                "requires_grad must be True for some parameter, got False for all. Set it to True for those to learn."
            )
        return found

    def after_step(self) -> None:
        """Copies the parameters of an optimizer step to the low-precision twin, and the twin's buffers back."""
        self._lower_online()
        for master, twin in self.low_buffers:  # those that have not changed keep their precision
            master.copy_(torch.where(master.to(twin.dtype) == twin, master, twin.to(master.dtype)))
        self._invalidate_online()

    @torch.no_grad()
    def sync_target(self, tau: float = 1.0, times: int = 1) -> None:
        """Moves the target parameters to the online ones, by the share `tau` (Polyak); 1 copies. Where heads are targets, shifts
        them, `times` times."""
        if self.shared:
            for outputs in self.shared:
                outputs.shift(times)
            return
        if tau == 0.0:
            return
        followed = self.flat[: self.flat_target.numel()]
        if tau == 1.0:
            self.flat_target.copy_(followed)
        else:
            self.flat_target.lerp_(followed, tau)
        for target, online in self.buffers:
            target.copy_(online)
        self._lower_target()
        for master, twin in self.low_target_buffers:
            twin.copy_(master)
        if self._target_weights is not None:
            self._target_weights.invalidate()

    def gather(self, parameters: Iterable[nn.Parameter]) -> None:
        """Makes the parameters views of the flat tensors again, with their current values.

        Functions such as `vector_to_parameters` replace the storage of parameters.

        Args:
            parameters: the current parameters of the policy.

        Raises:
            ConfigurationError: they are other objects, which no optimizer knows.
        """
        known = [*self.masters, *self.target_masters]
        if {id(each) for each in parameters} != {id(each) for each in known}:
            raise ConfigurationError(
                "parameters of the policy must be those that the model was made with, got other objects, which would not learn. Copy "
                "weights by load_state_dict, or pass a policy class or policy_kwargs that builds these networks."
            )
        views = flat_views(self.flat, self.masters) + flat_views(self.flat_target, self.target_masters)
        point_into(zip(known, views, strict=True))
        self.refresh()

    def refresh(self) -> None:
        """Recomputes what is derived from the master parameters and buffers after they were written from outside: the
        low-precision twins and the normalized weights of spectral layers."""
        self._lower_online()
        self._lower_target()
        for master, twin in self.low_buffers + self.low_target_buffers:
            twin.copy_(master)
        self._invalidate_online()
        if self._target_weights is not None:
            self._target_weights.invalidate()

    def _lower_online(self) -> None:
        for low, high in self._low_runs:
            self.low[low].copy_(self.flat[high])  # type: ignore[index]  # runs are of a low-precision twin

    def _lower_target(self) -> None:
        for low, high in self._low_target_runs:
            self.low_target[low].copy_(self.flat_target[high])

    def _invalidate_online(self) -> None:
        """Notes that the online parameters have changed; the next act normalizes them."""
        for weights in (self._online_weights, self._master_weights):
            if weights is not None:
                weights.invalidate()


def _flatten_low(twin: nn.Module) -> Tensor:
    """Returns the bfloat16 parameters of a twin as one flat tensor, without the float32 ones that it shares with its master."""
    low = [parameter for parameter in twin.parameters() if parameter.dtype == torch.bfloat16]
    return flatten_parameters(low, torch.bfloat16) if low else torch.empty(0, dtype=torch.bfloat16)


def _low_runs(twin: nn.Module) -> list[tuple[slice, slice]]:
    """Returns the places of successive bfloat16 parameters in the flat tensors of a twin and of its master, one pair per run."""
    runs: list[tuple[slice, slice]] = []
    low = high = 0
    for parameter in twin.parameters():
        size = parameter.numel()
        if parameter.dtype == torch.bfloat16:
            before = runs.pop() if runs and runs[-1][1].stop == high else (slice(low, low), slice(high, high))
            runs.append((slice(before[0].start, low + size), slice(before[1].start, high + size)))
            low += size
        high += size
    return runs
