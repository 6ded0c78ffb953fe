"""Tests of captured functions: the same numbers as eagerly. The CPU tests replace the graph, the GPU tests do not."""

from __future__ import annotations

import gc
from collections import defaultdict
from typing import Any
from weakref import WeakValueDictionary

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sb_dqn.accelerate import accelerate, cuda_graph
from sb_dqn.accelerate.cuda_graph import Captured, CudaGraph
from tests.cuda_runtime import CudaRuntime
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


def test_outputs_that_are_not_kept_are_overwritten_by_the_next_call() -> None:
    double = Captured(lambda x: (2 * x, 3 * x), (torch.zeros(1),), CpuGraph())
    double.kept = (1,)
    overwritten, kept = double(torch.tensor([1.0]))
    double(torch.tensor([5.0]))
    assert overwritten.item() == 10.0
    assert kept.item() == 3.0


class Calls(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def captured_calls(function: Any, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Tensor]:
    """Returns the number of operations of one launch of a captured function, and its result."""
    monkeypatch.setattr(cuda_graph, "CudaGraph", lambda device: CpuGraph())
    captured = accelerate(function, (x,), "captured", kept=())
    assert isinstance(captured, Captured)
    calls = Calls()
    with calls:
        captured._graph.function()  # of the stand-in
    return calls.count, captured(x)


def test_a_captured_function_holds_no_unused_and_no_repeated_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    def wasteful(x: Tensor) -> Tensor:
        x.exp()
        return (x + 1).sin() * (x + 1).cos()

    count, result = captured_calls(wasteful, torch.ones(3), monkeypatch)
    assert count == 4  # one sum, sine, cosine and product
    assert torch.equal(result, wasteful(torch.ones(3)))


def test_what_cannot_be_traced_is_captured_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def untraceable(x: Tensor) -> Tensor:
        buffer = torch.empty(0).set_(x.untyped_storage())  # as torch does with the weights of cuDNN's layers
        return buffer * 2

    count, result = captured_calls(untraceable, torch.ones(3), monkeypatch)
    assert count > 1
    assert result.tolist() == [2.0, 2.0, 2.0]


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


ONE, OTHER = torch.device("cuda", 0), torch.device("cuda", 1)


@pytest.fixture(params=[32])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CudaRuntime:
    runtime = CudaRuntime(streams=request.param)
    runtime.install(monkeypatch)
    monkeypatch.setattr(cuda_graph, "_idle_streams", defaultdict(list))
    monkeypatch.setattr(cuda_graph, "_side_streams", WeakValueDictionary())
    return runtime


def captured_on(device: torch.device, cuda: CudaRuntime) -> CudaGraph:
    graph = CudaGraph(device)
    graph.capture(cuda.kernel)
    return graph


def test_warm_up_and_capture_are_on_one_side_stream(cuda: CudaRuntime) -> None:
    captured_on(ONE, cuda)
    assert [call.captured for call in cuda.calls] == [False] * cuda_graph.WARM_UP_CALLS + [True]
    (stream,) = {call.stream for call in cuda.calls}
    assert stream is not cuda.defaults[0]
    assert cuda.current == cuda.defaults


def test_two_living_graphs_have_different_streams_and_that_of_a_dead_one_is_used_again(cuda: CudaRuntime) -> None:
    one, two = captured_on(ONE, cuda), captured_on(ONE, cuda)
    del one
    assert cuda.freed == [cuda.graphs[0]]  # before another graph gets its stream
    three = captured_on(ONE, cuda)
    first, second, third = [call.stream for call in cuda.calls if call.captured]
    assert first is not second
    assert third is first
    del two, three


@pytest.mark.parametrize("cuda", [2], indirect=True)
def test_graphs_that_share_a_stream_for_want_of_another_are_freed_together(cuda: CudaRuntime) -> None:
    one, two, three = captured_on(ONE, cuda), captured_on(ONE, cuda), captured_on(ONE, cuda)
    assert cuda.calls[-1].stream is cuda.calls[0].stream
    del one
    assert cuda.freed == []  # would free what the third graph uses
    del two
    assert cuda.freed == [cuda.graphs[1]]
    del three
    assert cuda.freed == [cuda.graphs[1], cuda.graphs[0], cuda.graphs[2]]


def test_the_side_stream_is_of_the_device_of_the_tensors(cuda: CudaRuntime) -> None:
    graphs = [captured_on(device, cuda) for device in (ONE, OTHER, ONE)]
    assert [call.device.index for call in cuda.calls if call.captured] == [0, 1, 0]
    assert len({call.stream for call in cuda.calls}) == len(graphs)
    assert cuda.index == 0


def test_an_error_in_a_capture_is_raised_and_leaves_stream_and_generator_as_before(cuda: CudaRuntime) -> None:
    def reads_a_value() -> None:
        cuda.kernel()
        cuda.forbidden()

    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        CudaGraph(ONE).capture(reads_a_value)
    assert cuda.calls[-1].captured
    assert cuda.current == cuda.defaults
    assert not cuda.generator_captures
    captured_on(ONE, cuda)


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_during_a_capture(cuda: CudaRuntime, enabled: bool) -> None:
    if not enabled:
        gc.disable()
    try:
        captured_on(ONE, cuda)
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
    assert [call.collects for call in cuda.calls] == [enabled] * cuda_graph.WARM_UP_CALLS + [False]


def test_other_threads_may_allocate_during_a_capture(cuda: CudaRuntime) -> None:
    captured_on(ONE, cuda)
    assert cuda.calls[-1].mode == "thread_local"


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
