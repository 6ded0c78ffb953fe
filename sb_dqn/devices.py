"""Devices: which of them the CPU can address, and copies to the others that Python does not wait for."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.types import Array

HOST_DEVICES = ("cpu",)
"""Types of devices whose tensors the CPU can address."""
ALIGNMENT = 64
"""Bytes; compiled code copies tensors that start elsewhere."""


def is_host_visible(device: torch.device) -> bool:
    """Returns True if the CPU can address tensors of this device, so that reading one does not wait for queued work."""
    return device.type in HOST_DEVICES


@cache
def cpu_capabilities() -> dict[str, Any]:
    """Returns the name and the instruction sets of the processor; {} with the oldest supported torch, which does not tell them."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return capabilities


def computes_bfloat16(device: torch.device) -> bool:
    """Returns True if a device has instructions for bfloat16: avx512_bf16, AMX, those of ARM, or CUDA's from Ampere on."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and any(has and name.endswith("bf16") for name, has in cpu_capabilities().items())


@cache
def print_once(message: str) -> None:
    """Prints a line to stderr, unless the process has printed the same one."""
    print(f"sb_dqn: {message}", file=sys.stderr)


def check_torch_defaults() -> None:
    """Checks that tensors are made as this library expects: float32, on the CPU unless it names a device.

    Raises:
        ConfigurationError: torch's default dtype or device is another one.
    """
    made = torch.empty(0)
    if made.dtype != torch.float32:
        raise ConfigurationError(
            f"torch's default dtype must be float32 while a model is made and learns, got {made.dtype}. Call "
            f"torch.set_default_dtype(torch.float32) before, or set precision='bf16' for lower precision."
        )
    if made.device.type != "cpu":
        raise ConfigurationError(
            f"torch's default device must be the CPU while a model is made and learns, got {made.device}. Call "
            f"torch.set_default_device('cpu') before, and set device={made.device.type!r} of the model."
        )


@contextmanager
def training_modes() -> Iterator[None]:
    """Computes gradients, without autocast, also where the caller set other modes.

    Raises:
        ConfigurationError: see `check_torch_defaults`.
    """
    check_torch_defaults()
    with ExitStack() as modes:
        modes.enter_context(torch.inference_mode(False))
        modes.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                modes.enter_context(torch.autocast(kind, enabled=False))
        yield


_prefers_fast_kernels = False


def prefer_fast_kernels(device: torch.device) -> None:
    """Permits TensorFloat-32 in float32 products on CUDA, and lets cuDNN choose its algorithms by measuring.

    It is called for each model, and has an effect for the first one on CUDA in a process: what is set after that stays.
    Nothing changes while deterministic algorithms are required.
    """
    global _prefers_fast_kernels
    if device.type != "cuda" or _prefers_fast_kernels or torch.are_deterministic_algorithms_enabled():
        return
    _prefers_fast_kernels = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    print(
        "sb_dqn: products on CUDA use TensorFloat-32, and cuDNN measures its algorithms; to undo it, set "
        "torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.benchmark to False after making the model",
        file=sys.stderr,
    )


@contextmanager
def explain_full_device(arguments: Collection[str]) -> Iterator[None]:
    """Replaces torch's error of a full CUDA device by one that names what to change.

    Args:
        arguments: names of the arguments of the model.

    Raises:
        MemoryBudgetError: the device is full.
    """
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        stored = "buffer_size" if "buffer_size" in arguments else "n_steps"
        host = ", or set buffer_device='cpu'" if "buffer_device" in arguments else ""
        raise MemoryBudgetError(
            f"networks, batches and stored rows must fit on the device, got: {str(error).rstrip('.')}. Reduce "
            f"batch_size or {stored}{host}."
        ) from error


class HostStage:
    """Host memory whose contents are sent to a tensor of a device, without waiting for the copy.

    For CUDA the memory is pinned. Two buffers alternate, so that one can be written while the copy of the other is under
    way; `send` waits only for the copy before the last.

    Args:
        shape: shape of the contents.
        dtype: their dtype.
        device: device of `tensor`.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        on_cuda = device.type == "cuda"
        self.tensor = torch.zeros(shape, dtype=dtype, device=device)
        """The contents on the device; stays where it is."""
        self._buffers = [torch.zeros(shape, dtype=dtype, pin_memory=on_cuda) for _ in range(2)]
        self.arrays: list[Array] = [buffer.numpy() for buffer in self._buffers]
        """Both buffers; `turn` is the index of the one to write next."""
        self._copied = [torch.cuda.Event() for _ in range(2)] if on_cuda else None  # type: ignore[no-untyped-call]
        self.turn = 0

    @property
    def array(self) -> Array:
        """The contents that the next `send` sends; not those of the last one."""
        return self.arrays[self.turn]

    def send(self) -> Tensor:
        """Copies `array` to `tensor`, and returns that."""
        self.tensor.copy_(self._buffers[self.turn], non_blocking=self._copied is not None)
        if self._copied is not None:
            self._copied[self.turn].record(torch.cuda.current_stream(self.tensor.device))
        self.turn = 1 - self.turn
        if self._copied is not None:
            self._copied[self.turn].synchronize()
        return self.tensor


def aligned(offset: int) -> int:
    """Returns the next multiple of `ALIGNMENT` from an offset in bytes."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class PackedArrays:
    """Sends several arrays to a device in one copy.

    Args:
        arrays: arrays of the shapes and dtypes of all later ones.
        device: where they are sent.
    """

    def __init__(self, arrays: Sequence[Array], device: torch.device) -> None:
        self.form = _form(arrays)
        starts, end = [], 0
        for array in arrays:
            starts.append(end)
            end = aligned(end + array.nbytes)
        self._stage = HostStage((end,), torch.uint8, device)
        places = list(zip(starts, arrays, strict=True))
        self._views = [
            [buffer[start : start + like.nbytes].view(like.dtype).reshape(like.shape) for start, like in places]
            for buffer in self._stage.arrays
        ]
        packed = self._stage.tensor
        self._tensors = [
            packed[start : start + like.nbytes].view(torch_dtype(like.dtype)).view(like.shape) for start, like in places
        ]

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Returns True if arrays have the shapes and dtypes of the constructor's."""
        return self.form == _form(arrays)

    def send(self, arrays: Sequence[Array]) -> list[Tensor]:
        """Returns the arrays as tensors on the device, which the next call overwrites."""
        for view, array in zip(self._views[self._stage.turn], arrays, strict=True):
            view[...] = array
        self._stage.send()
        return self._tensors


def fetch(tensors: Sequence[Tensor]) -> list[Array]:
    """Returns tensors as NumPy arrays; those of a device in one copy, for which Python waits once."""
    return unpack(pack(tensors), tensors)


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the bytes of tensors in one."""
    return torch.cat([tensors[i].contiguous().view(-1).view(torch.uint8) for i in _packing_order(tensors)])


def unpack(packed: Tensor, tensors: Sequence[Tensor]) -> list[Array]:
    """Returns tensors as NumPy arrays, from what `pack` returned for them."""
    contents = packed.cpu().numpy()
    arrays: list[Array] = [contents] * len(tensors)
    start = 0
    for i in _packing_order(tensors):
        end = start + tensors[i].numel() * tensors[i].element_size()
        arrays[i] = contents[start:end].view(numpy_dtype(tensors[i].dtype)).reshape(tuple(tensors[i].shape))
        start = end
    return arrays


def _packing_order(tensors: Sequence[Tensor]) -> list[int]:
    """Returns the widest first, so that each starts at a multiple of its width."""
    return sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())


def _form(arrays: Sequence[Array]) -> list[tuple[Any, ...]]:
    return [(array.shape, array.dtype) for array in arrays]


@cache
def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    """Returns the torch dtype of the same numbers."""
    return torch.from_numpy(np.zeros(0, dtype)).dtype


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    """Returns the NumPy dtype of the same numbers."""
    return np.dtype(torch.zeros(0, dtype=dtype).numpy().dtype)
