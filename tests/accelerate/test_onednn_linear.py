"""Large products with oneDNN: same results as PyTorch in all execution modes."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn.accelerate import accelerate, backends, modes, onednn_linear, torchscript
from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.nn.torsos.convolutions import ImageExtractor
from sb_dqn.nn.torsos.features import EXTRACTORS
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, quick

CALLED = "mkldnn._linear_pointwise.default"
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
needs_onednn = pytest.mark.skipif(not torch._C._has_mkldnn, reason="this torch was built without oneDNN")


@pytest.fixture(params=[True, False], ids=["slow MKL", "fast MKL"])
def slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(onednn_linear, "mkl_is_slow", lambda: request.param)
    return bool(request.param)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Records the shapes of the products that oneDNN computes."""
    made: list[tuple[int, ...]] = []
    multiply = onednn_linear.product

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = multiply(x, weight, bias)
        made.append(tuple(y.shape))
        return y

    monkeypatch.setattr(onednn_linear, "product", product)
    return made


def leaves(shape: tuple[int, ...], out: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in (shape, (out, shape[-1]), (out,))
    )
    return [tensor.to(dtype).requires_grad_() for tensor in (x, weight, bias)]


@needs_onednn
@pytest.mark.parametrize("shape", [(64, 256), (8, 16, 128)])
@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients(slow: bool, calls: list[Any], shape: tuple[int, ...], biased: bool) -> None:
    x, weight, bias = leaves(shape, 256)
    given = [x, weight, bias] if biased else [x, weight]
    y = onednn_linear.linear(*given)
    expected = torch.nn.functional.linear(*(tensor.double() for tensor in given))
    weights = torch.linspace(-1, 1, y.numel()).view_as(y)
    torch.testing.assert_close(y, expected.float(), rtol=1e-5, atol=1e-4)
    found = torch.autograd.grad((y * weights).sum(), given)
    sought = torch.autograd.grad((expected * weights).sum(), given)
    for one, other in zip(found, sought, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    rows = y.numel() // 256
    assert calls == ([(rows, 256), (rows, shape[-1]), (256, shape[-1])] if slow else [])


@needs_onednn
def test_only_required_gradients_are_computed(slow: bool, calls: list[Any]) -> None:
    x, weight, bias = leaves((64, 256), 256)
    onednn_linear.linear(x.detach(), weight, bias).sum().backward()
    assert calls == ([(64, 256), (256, 256)] if slow else [])
    calls.clear()
    with torch.no_grad():
        assert not onednn_linear.linear(x, weight, bias).requires_grad
    assert calls == ([(64, 256)] if slow else [])


@needs_onednn
@pytest.mark.parametrize(
    ("shape", "out", "dtype"),
    [((32, 64), 64, torch.float32), ((64, 256), 256, torch.float64), ((64, 256), 256, torch.bfloat16)],
)
def test_small_products_and_other_dtypes_use_pytorch(
    monkeypatch: pytest.MonkeyPatch, calls: list[Any], shape: tuple[int, int], out: int, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(onednn_linear, "mkl_is_slow", lambda: True)
    given = leaves(shape, out, dtype)
    assert torch.equal(onednn_linear.linear(*given), torch.nn.functional.linear(*given))
    assert calls == []


@needs_onednn
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, about itself
@pytest.mark.parametrize("mode", ["traced", pytest.param("compiled", marks=needs_compiler)])
def test_traced_and_compiled_functions(
    slow: bool, mode: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, weight, bias = leaves((64, 256), 256)
    replaced: list[int] = []

    def look(graph: Any) -> None:
        replace(graph)
        replaced.append(sum(str(node.target) == CALLED for node in graph.graph.nodes))

    replace = onednn_linear.replace_large_products
    monkeypatch.setattr("sb_dqn.accelerate.backends.replace_large_products", look)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = onednn_linear.linear(torch.relu(onednn_linear.linear(x, weight, bias)), weight)
        return y.detach(), *torch.autograd.grad(y.square().sum(), [weight, bias])

    given = [torch.randn(64, 256, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    run = accelerate(function, (given[0],), mode)
    for x in given:
        for one, other in zip(run(x), function(x), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max()))
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "CUDA_HOME" not in line] == []  # of a torch for CUDA without a device
    assert replaced == ([5 if slow else 0] if mode == "traced" else [])


@needs_onednn
@pytest.mark.parametrize("mode", ["eager", "traced"])
def test_slices_of_a_matrix_are_not_slow(
    mode: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(onednn_linear, "mkl_is_slow", lambda: True)
    _, weight, bias = leaves((64, 256), 256)

    def gradients(linear: Any, x: Tensor) -> tuple[Tensor, ...]:
        wide = torch.cat([x * weight.mean(), x * bias.mean()], -1)
        ys = [linear(half, weight, bias) for half in wide.chunk(2, -1)]  # as the streams of a dueling head
        return torch.autograd.grad(ys[0].square().sum() + ys[1].square().sum(), [weight, bias])

    x = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    run = accelerate(partial(gradients, onednn_linear.linear), (x,), mode)
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        found = run(x)
    for one, other in zip(found, gradients(torch.nn.functional.linear, x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max()))
    said = [line for line in capfd.readouterr().out.splitlines() if ",exec," in line]
    assert len(said) >= 4
    assert not [line for line in said if ",ref" in line]


@needs_onednn
@pytest.mark.skipif(not torchscript.is_available(), reason="needs TorchScript")
def test_a_trace_is_self_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn_linear, "mkl_is_slow", lambda: True)
    monkeypatch.setattr(backends, "numpy_function", lambda *_: None)
    traces: list[Any] = []
    trace = torch.jit.trace

    def keep(*arguments: Any, **keywords: Any) -> Any:
        traces.append(trace(*arguments, **keywords))
        return traces[-1]

    monkeypatch.setattr(torch.jit, "trace", keep)
    x, weight, bias = leaves((64, 256), 256)
    accelerate(lambda x: onednn_linear.linear(x, weight, bias).detach(), (x.detach(),), "traced")
    assert "mkldnn::_linear_pointwise" in str(traces[0].graph)
    assert "prim::CallFunction" not in str(traces[0].graph)  # of a function that is gone: a crash at the first run


IMAGE = spaces.Box(0, 255, (4, 40, 40), np.uint8)
CNNS = sorted(name for name, extractor in EXTRACTORS.items() if issubclass(extractor, ImageExtractor))


def gradients_of(extractor: Any, dtype: torch.dtype) -> Any:
    parameters = list(extractor.parameters())

    def function(pixels: Tensor) -> tuple[Tensor, ...]:
        x = pixels.to(dtype) / 255
        y = extractor(x)
        return y.detach().float(), *(part.float() for part in torch.autograd.grad(y.float().square().sum(), parameters))

    return function


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", a_few(CNNS, "NatureCNN"))
def test_every_cnn_is_traced(name: str, dtype: torch.dtype, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    extractor = EXTRACTORS[name](IMAGE).to(dtype)
    function = gradients_of(extractor, dtype)
    given = [torch.randint(256, (3, *IMAGE.shape), dtype=torch.uint8) for _ in range(3)]
    run = accelerate(function, (given[0],), "traced")
    assert run is not function
    for pixels in given:
        for one, other in zip(run(pixels), function(pixels), strict=True):
            # Hadamax multiplies its branches: single entries of a gradient in bf16 differ by a fifth, the whole by less than a tenth
            assert (one - other).norm() <= (1e-4 if dtype == torch.float32 else 0.15) * other.norm()
    assert capsys.readouterr().err == ""


KINDS_OF_UPDATES = ("DQN", "CategoricalDQN", "IQN", "FQF", "BTR", "R2D2")
"""One of each kind of loss and network; `tests/algorithms/test_matrix.py` records every pair of their switches."""
PIXELS: dict[str, Any] = {
    "features_extractor_kwargs": {"features_dim": 16, "channels": (4, 8), "kernels": (4, 3), "strides": (2, 1)}
}


def learnt(name: str, precision: str | None, trial: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(modes, "WARM_UP_UPDATES", trial)
    settings: dict[str, Any] = {"n_steps": 16, "batch_size": 8} if name == "PPO" else {}
    if precision is not None:
        settings["precision"] = precision
    model = quick(Tiny("image"), "CnnPolicy", ALGORITHMS[name], policy_kwargs=PIXELS, seed=3, **settings)
    return model.learn(256 if name == "BTR" else 64)


@SLOW
@pytest.mark.parametrize(
    ("name", "precision"),
    a_few(
        [
            *(("PPO", None), ("PQN", None), *((name, "fp32") for name in KINDS_OF_UPDATES)),
            *((name, "bf16") for name in ("QRDQN", "FQF", "Rainbow", "R2D2")),
        ],
        ("DQN", "fp32"),
        ("PPO", None),
    ),
)
def test_updates_from_pixels_are_traced(
    name: str, precision: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    traced = learnt(name, precision, 2, monkeypatch)
    eager = learnt(name, precision, 10_000, monkeypatch)
    assert traced.learner.optimizer_step.steps == eager.learner.optimizer_step.steps > 2
    assert traced.update_runner.mode == ("eager" if name in ("R2D1", "R2D2") else "traced")
    assert eager.update_runner.mode == "eager"
    assert "running without it" not in capsys.readouterr().err
    tolerance = 1e-2 if precision == "bf16" else 1e-5  # to record disturbs nothing: no priority, no random stream
    torch.testing.assert_close(traced.learner.flat, eager.learner.flat, rtol=0, atol=tolerance)
