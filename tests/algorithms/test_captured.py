"""Tests of captured training: equal to eager training, bit for bit. On the CPU a stand-in replaces the CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import sb_dqn
from sb_dqn import devices
from sb_dqn.accelerate import cuda_graph
from sb_dqn.accelerate.backends import MAKERS, _traced
from tests.graphs import CpuGraph
from tests.marks import FULL, SLOW, a_few

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, needs_cuda])]
OFF_POLICY: dict[str, Any] = {"learning_starts": 32, "buffer_size": 500, "batch_size": 16, "train_freq": 4}
SEQUENCES = {"batch_T": 8, "warmup_T": 8, "store_rnn_state_interval": 8}
CASES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "DQN": ("DQN", "MlpPolicy", "CartPole-v1", OFF_POLICY),
    "DoubleDQN": ("DoubleDQN", "MlpPolicy", "CartPole-v1", OFF_POLICY),
    "PERDQN": ("PERDQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "n_steps": 3}),
    "C51": ("CategoricalDQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "v_min": 0.0, "v_max": 100.0}),
    "QRDQN": ("QRDQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "n_quantiles": 10}),
    "IQN": ("IQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "n_taus": 4, "n_target_taus": 4, "n_policy_taus": 4}),
    "FQF": ("FQF", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "n_fractions": 4}),
    "Munchausen": ("MunchausenDQN", "MlpPolicy", "CartPole-v1", OFF_POLICY),
    "Rainbow": ("Rainbow", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "v_min": 0.0, "v_max": 100.0}),
    "recurrent DQN": ("DQN", "MlpLstmPolicy", "CartPole-v1", {**OFF_POLICY, "batch_size": 4, "sequences": SEQUENCES}),
    "SAC": ("SAC", "MlpPolicy", "Pendulum-v1", {"learning_starts": 32, "buffer_size": 500, "batch_size": 16}),
    "PQN": ("PQN", "MlpPolicy", "CartPole-v1", {"n_steps": 32}),
    "A2C": ("A2C", "MlpPolicy", "CartPole-v1", {}),
    "PPO": ("PPO", "MlpPolicy", "CartPole-v1", {"n_steps": 64, "batch_size": 32, "n_epochs": 2}),
    "recurrent PPO": ("PPO", "MlpLstmPolicy", "CartPole-v1", {"n_steps": 64, "batch_size": 32, "n_epochs": 2}),
}


@contextmanager
def deterministic() -> Iterator[None]:
    """Permits deterministic kernels only, so that two runs on a GPU are equal."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def train(case: str, device: str, mode: str) -> Any:
    """Returns a model that has trained for 200 env steps in a mode."""
    name, policy, env, settings = CASES[case]
    torch.manual_seed(0)
    small = {"net_arch": [16], **({"lstm_hidden_size": 8} if "Lstm" in policy else {})}
    model = getattr(sb_dqn, name)(policy, env, seed=0, device=device, policy_kwargs=small, **settings)
    model.mode = mode
    model.learn(200)
    return model


@SLOW
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")  # of CUDA's kernels that have no such version
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", a_few(CASES, "DQN", "PERDQN", "C51", "recurrent DQN", "SAC", "PPO"))
def test_captured_training_equals_eager_training(case: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[CpuGraph] = []

    def make(device: torch.device) -> CpuGraph:
        assert device.type == "cpu"
        graphs.append(CpuGraph())
        return graphs[-1]

    if device == "cpu":
        monkeypatch.setattr(cuda_graph, "CudaGraph", make)
        monkeypatch.setattr(
            devices, "HOST_DEVICES", ()
        )  # as on CUDA, recurrent layers must not read where episodes begin
    with deterministic():
        captured, eager = train(case, device, "captured"), train(case, device, "eager")
    assert captured._n_updates == eager._n_updates > 0
    for (name, a), b in zip(captured.policy.state_dict().items(), eager.policy.state_dict().values(), strict=True):
        assert torch.equal(a, b), name
    if device == "cpu":
        assert sum(graph.launches for graph in graphs) >= captured._n_updates


@SLOW
@pytest.mark.parametrize("case", a_few(["PERDQN", "FQF", "PPO"], "PERDQN"))
def test_a_capture_that_fails_leaves_all_as_it_was(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(CpuGraph):
        def capture(self, function: Any) -> Any:
            super().capture(function)
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graph, "CudaGraph", lambda device: Failing())
    failed = train(case, "cpu", "captured")
    assert "capturing a CUDA graph failed, running without it: operation not permitted" in capsys.readouterr().err
    eager = train(case, "cpu", "eager")
    assert torch.equal(failed.learner.flat, eager.learner.flat)


@FULL
@pytest.mark.filterwarnings("ignore:TF32 acceleration:UserWarning")  # of `flags`, whatever they are
@pytest.mark.parametrize("case", [case for case in CASES if "recurrent" in case])
def test_recurrent_updates_can_be_traced(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    made: list[Any] = []

    def watched(function: Any, example: tuple[torch.Tensor, ...]) -> Any:
        made.append(_traced(function, example))
        return made[-1]

    monkeypatch.setitem(MAKERS, "traced", (watched, "tracing"))
    with torch.backends.mkldnn.flags(enabled=False):  # its fused kernel for sequences needs a workspace in the trace
        traced, eager = train(case, "cpu", "traced"), train(case, "cpu", "eager")
    assert traced._n_updates == eager._n_updates > 0
    updates = [run for _, run in traced.update_runner.functions.values()]
    assert updates
    assert all(any(update is each for each in made) for update in updates)
    torch.testing.assert_close(traced.learner.flat, eager.learner.flat, rtol=1e-4, atol=1e-5)


@contextmanager
def waits_are_errors() -> Iterator[None]:
    """Raises where torch waits for the device in the block."""
    with warnings.catch_warnings():
        # torch warns after it has set the mode, so as an error this would keep it for all later tests
        warnings.filterwarnings("ignore", "Synchronization debug mode", UserWarning)
        try:
            torch.cuda.set_sync_debug_mode("error")
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def replace_sync_debug_mode(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces torch's function, which needs a device, by one that warns as it does; returns the modes that are set."""
    modes: list[str] = []

    def set_mode(mode: str) -> None:
        modes.append(mode)
        warnings.warn("Synchronization debug mode is a prototype feature and does not yet detect all", stacklevel=2)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", set_mode)
    return modes


@SLOW
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", a_few(["DQN", "PERDQN", "recurrent DQN", "SAC", "PPO"], "DQN", "PERDQN", "PPO"))
def test_torch_sees_no_wait_in_an_update(case: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = train(case, device, "eager")
    if device == "cpu":  # which has nothing to wait for; the rest of the test runs
        modes = replace_sync_debug_mode(monkeypatch)
    updates = model.learner.optimizer_step.steps
    with waits_are_errors():
        model.gradient_step()
    assert model.learner.optimizer_step.steps == updates + 1
    if device == "cpu":
        assert modes == ["error", "default"]


def gradient_of(model: Any, batch: Any) -> torch.Tensor:
    """Returns the gradient of a batch, with products of full precision."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(allow_tf32=False):
            gradient, _, _ = model.learner.gradient(batch.to(model.device))
    finally:
        torch.set_float32_matmul_precision(precision)
    return gradient.cpu()


@SLOW
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", a_few(CASES, "DQN", "recurrent DQN", "SAC"))
def test_a_gradient_on_the_device_is_that_of_the_cpu(
    case: str, device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Same parameters, noise and batch, within 1e-3 of the gradient's norm; on the CPU, of a loaded copy."""
    model = train(case, "cpu", "eager")
    batches: list[Any] = []

    def noting(method: Any) -> Any:
        def call(batch: Any) -> Any:
            batches.append(batch)
            return method(batch)

        return call

    monkeypatch.setattr(model.learner, "gradient", noting(model.learner.gradient))
    model.save(tmp_path / "model.zip")
    model.gradient_step()
    monkeypatch.undo()
    one, other = (type(model).load(tmp_path / "model.zip", device=where) for where in ("cpu", device))
    for mine, used in zip((*one.learner.noises, *other.learner.noises), 2 * model.learner.noises, strict=True):
        if used is not None:
            for numbers, name in ((used.normal, "normal"), (used.uniform, "uniform")):
                getattr(mine, name).copy_(numbers)
    expected, gradient = gradient_of(one, batches[0]), gradient_of(other, batches[0])
    assert float(expected.norm()) > 0.0
    assert float((gradient - expected).norm()) <= 1e-3 * float(expected.norm())


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("case", CASES)
def test_a_model_trained_on_the_gpu_predicts_the_same_on_the_cpu(case: str, tmp_path: Any) -> None:
    model = train(case, "cuda", "captured")
    model.save(tmp_path / "model.zip")
    loaded = type(model).load(tmp_path / "model.zip", device="cpu")
    for (name, a), b in zip(model.policy.state_dict().items(), loaded.policy.state_dict().values(), strict=True):
        assert torch.equal(a.cpu(), b), name
