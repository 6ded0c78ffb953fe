"""The mode in which functions of networks run: chosen by networks and device, for updates and for acting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

Mode = Literal["eager", "traced", "compiled", "captured"]

WARM_UP_UPDATES = 100
"""Updates of a large network that run eagerly before they are traced; tracing costs as much as about twenty."""

_forced: Mode | None = None


@contextmanager
def forced_mode(mode: Mode) -> Iterator[None]:
    """Makes all models that choose their modes within the block run in this one, for tests and measurements.

    With "eager" nothing is traced, which shows the operations of a model to a debugger or a profiler.
    """
    global _forced
    before, _forced = _forced, mode
    try:
        yield
    finally:
        _forced = before


def traces_samples() -> bool:
    """Returns True if NumPy may run the sampling of a batch outside of a traced update."""
    return _forced in (None, "traced")


def choose_mode(modules: Sequence[nn.Module], device: torch.device, torch_compile: bool) -> Mode:
    """Returns the mode in which to run functions of these modules on this device.

    User-defined modules run eagerly, since they may branch on values and a trace would freeze the branch.
    """
    if _forced is not None:
        return _forced
    if torch_compile:
        return "compiled"
    traceable = all(
        type(part).__module__.split(".")[0] in ("torch", "sb_dqn") for module in modules for part in module.modules()
    )
    if not traceable or device.type not in ("cpu", "cuda"):
        return "eager"
    return "traced" if device.type == "cpu" else "captured"


def mode_after(mode: Mode, updates: int, is_large: bool) -> Mode:
    """Returns the mode of the next update: those of a large network are traced after `WARM_UP_UPDATES`.

    Args:
        mode: mode of the model's updates.
        updates: number of updates so far; it is part of a checkpoint, so a resumed run does the same.
        is_large: see `are_small`.
    """
    waits = is_large and mode == "traced" and updates < WARM_UP_UPDATES and _forced is None
    return "eager" if waits else mode


def acting_mode(policy: nn.Module, device: torch.device, mode: Mode, recurrent: bool) -> Mode:
    """Returns the mode of networks while acting: traced, but eager for large networks on the CPU.

    A trace is preferred to compiled code: it starts sooner, and acting is mostly call overhead.

    Args:
        policy: the networks.
        device: where they are.
        mode: mode of the model's updates.
        recurrent: the policy is recurrent; a single step can be traced, also where updates are not.
    """
    traced = choose_mode([policy], device, torch_compile=False)
    if device.type == "cuda" or _forced is not None:
        return traced
    if not are_small([policy], device):
        return "eager"
    return traced if recurrent or (mode == "compiled" and traced != "eager") else mode


class MatmulConvolution:
    """Base class of convolutions implemented as a matrix product; their overhead matters and they can be traced."""

    weight: Tensor
    places: int
    """Pixels of the output: rows of the matrix product per image."""


def are_small(
    modules: Sequence[nn.Module], device: torch.device, rows: int = 0, counts_recurrent: bool = False
) -> bool:
    """Returns True if a batch of `rows` is too little work for these modules to be shared among threads.

    True on the CPU, without convolutions other than those of small images, and with less than 2**23 multiplications in
    the largest layer, from where on a second thread is faster.

    Args:
        modules: the networks.
        device: where they are.
        rows: N; 0 if the batch does not matter.
        counts_recurrent: count the weights of recurrent layers. They do not count for threads, since these layers process
            one step after another, each of a few rows.
    """
    parts = [part for module in modules for part in module.modules()]
    large = any(isinstance(part, nn.Conv2d) and not isinstance(part, MatmulConvolution) for part in parts)
    if device.type != "cpu" or large:
        return False
    layers = [
        weight
        for part in parts
        if counts_recurrent or not isinstance(part, nn.RNNBase)
        for weight in part.parameters(recurse=False)
    ]
    linear = [weight.numel() for weight in layers if weight.ndim == 2]
    images = [part.places * part.weight.numel() for part in parts if isinstance(part, MatmulConvolution)]
    return rows * max([*linear, *images], default=0) < 2**23
