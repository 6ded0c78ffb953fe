"""Training on a device without memory ("meta"): any operation that reads a value or mixes devices raises there.

It runs the same code as on CUDA, except that actions are zeros, since nothing can be read back, and that the optimizer's
kernel is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._python_dispatch import TorchDispatchMode

from sb_dqn import devices
from sb_dqn.acting import network_runner
from sb_dqn.acting.network_runner import NetworkRunner
from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.buffers import PrioritizedSampler, Ring, rollout_buffer
from sb_dqn.core.construction import TrainingConfig
from sb_dqn.core.training_run import TrainingRun
from sb_dqn.diagnosis import first_learn
from sb_dqn.learning.optimizer_step import OptimizerStep
from tests.accelerate.test_capturability import OF_ALGORITHMS, OTHERS
from tests.choices import Choices
from tests.continuous import Reach
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, lanes, quick

META = torch.device("meta")


class CpuGenerator(torch.Generator):
    """A generator for a device that has none."""

    def __new__(cls, device: Any = "cpu") -> CpuGenerator:
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]  # torch's stubs have __init__


class Centred(Reach):
    """`Reach` with actions around zero."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


class OnOneDevice(TorchDispatchMode):
    """Raises if an operation reads tensors of the CPU, except to send or make them."""

    SENDS = ("copy_", "_to_copy", "empty", "detach", "alias", "lift_fresh")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        tensors = [x for x in _flat([*args, *(kwargs or {}).values()]) if torch.is_tensor(x)]
        name = func._schema.name.split("::")[1]
        if name not in self.SENDS and any(x.device != META for x in tensors):
            raise AssertionError(f"{name} reads a tensor of the CPU")
        return func(*args, **(kwargs or {}))


def _flat(values: Iterable[Any]) -> list[Any]:
    return [x for value in values for x in (_flat(value) if isinstance(value, (list, tuple)) else [value])]


def zeros(tensors: Iterable[torch.Tensor]) -> list[Any]:
    """Returns arrays like tensors that cannot be read."""
    return [np.zeros(tuple(x.shape), devices.numpy_dtype(x.dtype)) for x in tensors]


def step(optimizer: OptimizerStep, gradient: torch.Tensor) -> None:
    """Stands in for the optimizer's kernel, which "meta" lacks."""
    optimizer.flat.sub_(gradient)


@pytest.fixture(autouse=True)
def on_a_device_without_memory(eagerly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingConfig, "choose_device", lambda *_: META)
    monkeypatch.setattr(torch, "Generator", CpuGenerator)
    monkeypatch.setattr(network_runner, "unpack", lambda packed, tensors: zeros(tensors))
    monkeypatch.setattr(NetworkRunner, "run_single", lambda runner, *inputs: zeros([runner._run(*inputs)])[0])
    monkeypatch.setattr(rollout_buffer, "fetch", zeros)
    monkeypatch.setattr(OptimizerStep, "__call__", step)
    # what may wait: a question of the first ticks, and a check every thousand updates
    monkeypatch.setattr(Ring, "_any_may_start", lambda ring: ring.startable() > 0)
    monkeypatch.setattr(TrainingRun, "check_finite", lambda run: None)
    monkeypatch.setattr(first_learn, "newest_rows", lambda *_: None)  # a few looks in the first run read values


ENVS: dict[str, Any] = {"box": Centred, "image": partial(Choices, "frames", "discrete", False)}
MODELS = {**OF_ALGORITHMS, **OTHERS, "SAC": {"env": "box"}}


def trained(name: str, watches: bool = True, **changes: Any) -> tuple[Any, OnOneDevice]:
    settings = {**MODELS[name], **changes}
    settings.pop("target_kl", None)  # it waits for each update, see `PPO.stops_early`
    env = ENVS.get(settings.pop("env", ""), Tiny)
    algorithm = ALGORITHMS[name.split()[0].removesuffix(",")]
    model = quick(lanes(2, env), algorithm=algorithm, **settings)
    watch = OnOneDevice()
    gradient_step = model.gradient_step

    def watched() -> Any:
        with watch:
            return gradient_step()

    if watches:
        model.gradient_step = watched  # type: ignore[method-assign]
    return model.learn(48, log_interval=10**6), watch


@SLOW
@pytest.mark.parametrize("name", a_few(MODELS, "DQN", "R2D2", "SAC", "PPO"))
def test_training_reads_nothing_of_a_device(name: str) -> None:
    model, watch = trained(name)
    assert model._n_updates >= 1
    assert model.learner.flat.device == model._experience.ring.device == META
    assert watch.count > 20 * model._n_updates


@SLOW
@pytest.mark.parametrize(
    "name", a_few(["DQN", "NStepDQN", "SAC", "Rainbow, normalized", "DQN with an LSTM"], "DQN", "DQN with an LSTM")
)
def test_a_replay_of_the_host_sends_batches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New priorities are read back, so they are left out."""
    monkeypatch.setattr(PrioritizedSampler, "feedback", lambda *_: None)
    model, _ = trained(name, buffer_device="cpu", watches=False)
    assert model._n_updates >= 1
    assert model._experience.sends_batches(model.device)
    assert model._experience.ring.device.type == "cpu"
    assert model.learner.flat.device == META


def test_a_read_and_another_device_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    feedback = PrioritizedSampler.feedback

    def reads(sampler: Any, index: torch.Tensor, priority: torch.Tensor) -> None:
        feedback(sampler, index, priority * float(priority.sum()))

    def mixes(sampler: Any, index: torch.Tensor, priority: torch.Tensor) -> None:
        feedback(sampler, index, priority * torch.tensor(2.0))

    monkeypatch.setattr(PrioritizedSampler, "feedback", reads)
    with pytest.raises(RuntimeError, match="meta tensors"):
        trained("PERDQN")
    monkeypatch.setattr(PrioritizedSampler, "feedback", mixes)
    with pytest.raises(AssertionError, match="mul reads a tensor of the CPU"):
        trained("PERDQN")
