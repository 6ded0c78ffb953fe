"""The device of a model: what "auto" chooses, and errors of devices that are missing or full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces

from sb_dqn import DQN, PPO, devices
from sb_dqn.buffers import Layout, Ring
from sb_dqn.core.construction import PolicyConfig, TrainingConfig, buffer_device_of, resolve_device
from sb_dqn.errors import ConfigurationError, MemoryBudgetError
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.policies import ACTOR_CRITIC_POLICIES
from sb_dqn.policies.actor_critic import ActorCriticPolicy
from tests.buffers.toy_rows import SPACES
from tests.marks import SLOW
from tests.nets import VECTOR, make_policy
from tests.tiny import quick

SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-3, "max_grad_norm": None, "action_mask": None, "normalize_observations": False,
    "normalize_rewards": False, "stats_window_size": 10, "tensorboard_log": None, "verbose": 0, "seed": 0,
    "torch_compile": False,
}  # fmt: skip


@pytest.fixture
def has_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    devices.print_once.cache_clear()


def chosen(device: Any, kind: str, batch_size: int = 32) -> str:
    return str(TrainingConfig(**SETTINGS, device=device).choose_device(make_policy(kind), batch_size))


@pytest.mark.usefixtures("has_cuda")
def test_small_networks_stay_on_the_cpu_unless_cuda_is_forced(capsys: pytest.CaptureFixture[str]) -> None:
    assert chosen("auto", "mlp") == "cpu"
    assert "device='auto' chose the CPU" in (reported := capsys.readouterr().err)
    assert "device='cuda' forces CUDA" in reported
    assert chosen("auto", "mlp") == "cpu"
    assert not capsys.readouterr().err  # once is enough
    assert chosen("auto", "cnn") == "cuda:0"
    assert chosen("auto", "mlp", batch_size=2**20) == "cuda:0"
    assert chosen("cuda", "mlp") == "cuda:0"
    assert chosen("cuda:1", "mlp") == "cuda:1"
    assert not capsys.readouterr().err


@pytest.mark.usefixtures("has_cuda")
def test_large_recurrent_layers_are_not_small() -> None:
    for units, device in ((16, "cpu"), (512, "cuda:0")):
        config = PolicyConfig(
            "MlpLstmPolicy", {"lstm_hidden_size": units, "net_arch": [16]}, ACTOR_CRITIC_POLICIES, ActorCriticPolicy
        )
        policy = config.policy(VECTOR, spaces.Discrete(2), **config.arguments)
        assert str(TrainingConfig(**SETTINGS, device="auto").choose_device(policy, 64)) == device
        assert config.mode(policy, torch.device("cuda"), False) == "captured"
        assert config.mode(policy, torch.device("cpu"), False) == "eager"


@pytest.mark.usefixtures("has_cuda")
def test_cuda_without_a_number_is_the_device_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer there is compared with the device of the parameters, which has a number."""
    assert buffer_device_of("cuda") == resolve_device("auto") == torch.device("cuda", 0)
    with monkeypatch.context() as patched:
        patched.setattr(torch.cuda, "is_initialized", lambda: True)
        patched.setattr(torch.cuda, "current_device", lambda: 1)
        assert buffer_device_of("cuda") == resolve_device("auto") == torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(LearnerGroup, "of_process", lambda: LearnerGroup(rank=5, size=8, local_rank=1))
    assert buffer_device_of("cuda") == resolve_device("auto") == torch.device("cuda", 1)
    monkeypatch.setattr(LearnerGroup, "of_process", lambda: LearnerGroup(rank=2, size=4, local_rank=2))
    with pytest.raises(ConfigurationError, match="must be at most its 2 CUDA devices, got learner 3"):
        resolve_device("cuda")


@SLOW
@pytest.mark.usefixtures("has_cuda")
@pytest.mark.parametrize("algorithm", ["DQN", "PPO", "SAC"])
def test_a_whole_model_stays_on_the_cpu(algorithm: str) -> None:
    from sb_dqn.algorithms import ALGORITHMS

    buffer = {"buffer_device": "auto"} if algorithm == "DQN" else {}
    model = quick(algorithm=ALGORITHMS[algorithm], device="auto", **buffer).learn(40)
    assert model.device.type == "cpu"
    assert model._experience.ring.device.type == "cpu"


@SLOW
def test_the_result_is_that_of_device_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    here = quick(device="cpu").learn(60)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert torch.equal(quick(device="auto").learn(60).learner.flat, here.learner.flat)


def test_cuda_without_a_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("device", "buffer_device"):
        with pytest.raises(ConfigurationError, match=f"^{name} must be available, got 'cuda': .* Give 'auto' or 'cpu'"):
            quick(**{name: "cuda"})


def test_a_full_device_is_named_with_the_keyword_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 999 GiB")

    monkeypatch.setattr(torch, "zeros", full)
    with pytest.raises(MemoryBudgetError, match=r"must fit on cpu, got one of 3\.9 KiB while .* are free") as caught:
        Ring(Layout(120, 2, SPACES, num_actions=4), host_visible=False)
    for part in ("Reduce buffer_size", "buffer_device='cpu'"):
        assert part in str(caught.value)


def test_a_device_that_is_full_during_an_update_is_named_with_the_keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. 1 GiB is free.")

    model = quick()
    with monkeypatch.context() as patched, pytest.raises(MemoryBudgetError) as caught:
        patched.setattr(model, "gradient_step", full)
        model.learn(60)
    advice = "1 GiB is free. Reduce batch_size or buffer_size, or set buffer_device='cpu'."
    assert str(caught.value).endswith(advice)
    assert model.learn(60)._n_updates > 0  # the model stays usable
    rollouts = PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, device="cpu")
    monkeypatch.setattr(rollouts, "gradient_step", full)
    with pytest.raises(MemoryBudgetError, match=r"Reduce batch_size or n_steps\.$"):
        rollouts.learn(16)


def test_too_little_memory_of_a_device_is_found_before_the_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    with pytest.raises(MemoryBudgetError, match=r"only 1000 bytes are available on cuda.*buffer_device='cpu'"):
        Ring(Layout(120, 2, SPACES, num_actions=4, device="cuda"))


@pytest.fixture
def slow_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's defaults, before the first model on CUDA."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.benchmark
    matmul.allow_tf32, cudnn.benchmark = False, False
    monkeypatch.setattr(devices, "_prefers_fast_kernels", False)
    yield
    matmul.allow_tf32, cudnn.benchmark = before


@pytest.mark.usefixtures("slow_kernels")
def test_the_first_model_on_cuda_prefers_fast_kernels_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    matmul, cudnn, cuda = torch.backends.cuda.matmul, torch.backends.cudnn, torch.device("cuda", 0)
    quick(device="cpu")
    with monkeypatch.context() as patched:
        patched.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
        devices.prefer_fast_kernels(cuda)
    assert (matmul.allow_tf32, cudnn.benchmark) == (False, False)
    assert not capsys.readouterr().err
    devices.prefer_fast_kernels(cuda)
    assert (matmul.allow_tf32, cudnn.benchmark) == (True, True)
    assert "products on CUDA use TensorFloat-32" in capsys.readouterr().err
    matmul.allow_tf32 = False  # the user's own setting
    devices.prefer_fast_kernels(cuda)
    assert not matmul.allow_tf32
    assert not capsys.readouterr().err


PROCESSORS: dict[str, tuple[dict[str, Any], bool]] = {
    "Zen 3": (
        {"cpu_name": "AMD EPYC", "avx2": True, "avx512_f": False, "avx512_bf16": False, "amx_bf16": False},
        False,
    ),
    "Skylake": (
        {"cpu_name": "Intel Xeon", "avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False},
        False,
    ),
    "Zen 4": ({"cpu_name": "AMD EPYC", "avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
    "Sapphire Rapids": ({"cpu_name": "Intel Xeon", "avx2": True, "avx512_bf16": True, "amx_bf16": True}, True),
    "Graviton 3": ({"neon": True, "sve": True, "bf16": True, "sve_bf16": True}, True),
    "torch without get_capabilities": ({}, False),
}


def of_processor(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(devices, "cpu_capabilities", lambda: PROCESSORS[name][0])
    devices.print_once.cache_clear()


@pytest.mark.parametrize("name", PROCESSORS)
def test_automatic_precision_is_bf16_where_the_processor_computes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    of_processor(monkeypatch, name)
    model = quick(precision="auto", verbose=1).learn(40)
    assert model.precision == ("bf16" if PROCESSORS[name][1] else "fp32")
    assert (model.learner.low is not None) == PROCESSORS[name][1]
    printed = capsys.readouterr()
    assert ("DQN on cpu in bf16: " in printed.out) == PROCESSORS[name][1]
    assert not printed.err


@pytest.mark.parametrize("has_bfloat16", [False, True])
def test_automatic_precision_on_cuda_asks_for_arithmetic_rather_than_conversions(
    monkeypatch: pytest.MonkeyPatch, has_bfloat16: bool
) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or has_bfloat16
    )
    config = TrainingConfig(**SETTINGS, device="cpu", precision="auto")
    assert config.choose_precision(torch.device("cuda", 0)) == ("bf16" if has_bfloat16 else "fp32")


def test_slow_bf16_is_reported_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    of_processor(monkeypatch, "Zen 4")
    quick(precision="bf16")
    assert not capsys.readouterr().err
    of_processor(monkeypatch, "Zen 3")
    assert quick(precision="bf16").precision == "bf16"
    assert "precision='auto' is 'fp32' there" in capsys.readouterr().err
    quick(precision="bf16")
    assert not capsys.readouterr().err


def test_automatic_precision_is_chosen_again_where_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_processor(monkeypatch, "Zen 4")
    model = quick(precision="auto").learn(60)
    model.save(tmp_path / "model")
    of_processor(monkeypatch, "Zen 3")
    loaded = DQN.load(tmp_path / "model", env=model.get_env())
    assert (model.precision, loaded.precision) == ("bf16", "fp32")
    assert torch.equal(loaded.learner.flat, model.learner.flat)  # float32 in both
    loaded.learn(60, reset_num_timesteps=False)
    assert loaded.num_timesteps == 120
