"""Recurrent layers: unrolling by stretches between episodes and by single steps give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sb_dqn import devices
from sb_dqn.nn.layers.recurrent import RecurrentConfig, RecurrentLayer


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_single_steps_give_what_stretches_give(kind: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(3, RecurrentConfig(kind, hidden_size=5, num_layers=2))
    x = torch.randn(9, 4, 3)
    state = torch.randn(4, layer.config.state_size, requires_grad=True)
    begins = torch.rand(9, 4) < share
    results = []
    for host_devices in (("cpu",), ()):
        monkeypatch.setattr(devices, "HOST_DEVICES", host_devices)
        out, last = layer.unroll(x, state, begins)
        gradients = torch.autograd.grad((out * out).sum() + last.sum(), [state, *layer.parameters()])
        results.append([out, last, *gradients])
    for stretches, steps in zip(*results, strict=True):
        torch.testing.assert_close(
            steps, stretches, rtol=1e-5, atol=1e-5
        )  # matrix products of other sizes round otherwise


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_a_burn_in_in_one_call_gives_what_stretches_give(
    kind: str, num_layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = RecurrentLayer(3, RecurrentConfig(kind, hidden_size=5, num_layers=num_layers)).eval()
    x, state = 10.0 * torch.randn(9, 32, 3), torch.randn(32, layer.config.state_size)
    begins = torch.rand(10, 32) < 0.1
    begins[-1, :4] = True
    kernel, calls = getattr(torch, kind), []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return kernel(*arguments)

    monkeypatch.setattr(torch, kind, counted)
    expected = layer.burn_in(x, state, begins)
    assert not calls
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    found = layer.burn_in(x, state, begins)
    assert len(calls) == num_layers
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not found[:4].any()  # exactly zero where an episode begins after the last step
    assert found[4:].any()
