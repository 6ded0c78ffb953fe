"""Tests of captured functions: the same numbers as eagerly. The CPU tests replace the graph, the GPU tests do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sb_dqn.accelerate import accelerate, cuda_graph
from sb_dqn.accelerate.cuda_graph import Captured
from tests.graphs import CpuGraph


def test_later_calls_do_not_change_earlier_results() -> None:
    square = Captured(lambda x: x * x, (torch.zeros(2),), CpuGraph())
    first = square(torch.tensor([1.0, 2.0]))
    second = square(torch.tensor([3.0, 4.0]))
    assert first.tolist() == [1.0, 4.0]
    assert second.tolist() == [9.0, 16.0]


def test_arguments_are_copied_into_the_static_inputs_and_state_is_written_in_place() -> None:
    total = torch.zeros(2)

    def add(x: Tensor) -> tuple[Tensor, Tensor]:
        total.add_(x)
        return total.sum(), total.max()

    static = torch.zeros(2)
    captured = Captured(add, (static,), CpuGraph())
    captured(torch.tensor([1.0, 2.0]))
    sum_, largest = captured(static.fill_(3.0))  # the static input itself
    assert total.tolist() == [4.0, 5.0]
    assert (sum_.item(), largest.item()) == (9.0, 5.0)


def test_the_number_of_arguments_is_checked() -> None:
    captured = Captured(lambda x: x, (torch.zeros(2),), CpuGraph())
    with pytest.raises(ValueError, match="zip"):
        captured(torch.zeros(2), torch.zeros(2))


def test_the_capture_is_of_the_device_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    devices: list[torch.device] = []

    def make(device: torch.device) -> CpuGraph:
        devices.append(device)
        return CpuGraph()

    monkeypatch.setattr(cuda_graph, "CudaGraph", make)
    Captured(lambda x: x, (torch.zeros(2, device="meta"),))
    assert devices == [torch.device("meta")]


def test_a_device_without_room_for_the_capture_is_named_with_the_keywords(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(device: torch.device) -> CpuGraph:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB, 1 GiB is free.")

    monkeypatch.setattr(cuda_graph, "CudaGraph", full)

    def double(x: Tensor) -> Tensor:
        return 2 * x

    assert accelerate(double, (torch.zeros(2),), "captured") is double
    said = capsys.readouterr().err
    for part in ("Tried to allocate 2 GiB, 1 GiB is free", "Reduce batch_size or buffer_size", "buffer_device='cpu'"):
        assert part in said


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_gradient_on_the_gpu() -> None:
    weight = torch.randn(8, 8, device="cuda", requires_grad=True)

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad((x @ weight).square().sum(), weight)[0]

    captured = Captured(gradient, (torch.zeros(4, 8, device="cuda"),))
    for _ in range(3):
        x = torch.randn(4, 8, device="cuda")
        assert torch.equal(captured(x), gradient(x))
