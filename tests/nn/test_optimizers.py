"""Tests of optimizers by device: which run as one fused kernel."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from sb_dqn.nn.parameters.optimizers import make_optimizer

FUSABLE: list[Any] = [
    each
    for each in vars(torch.optim).values()
    if inspect.isclass(each) and "fused" in inspect.signature(each).parameters
]
ON_CUDA = {"Adam", "AdamW", "SGD"}
"""Those whose kernel torch 2.8 has, the oldest that is allowed; with Adagrad's, its first step raises there and up to 2.12."""


@pytest.mark.parametrize("optimizer", FUSABLE)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_only_optimizers_with_a_kernel_for_the_device_are_fused(device: str, optimizer: Any) -> None:
    with FakeTensorMode():  # has tensors of any device
        made = make_optimizer(optimizer, [nn.Parameter(torch.empty(3, device=device))], {})
    assert bool(made.defaults["fused"]) == (device == "cpu" or optimizer.__name__ in ON_CUDA)
