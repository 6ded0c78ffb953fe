"""Whole models that store rows and act as on a GPU: the same parameters, bit for bit, as with host memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from sb_dqn import devices
from sb_dqn.accelerate import Mode, cuda_graph, forced_mode
from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.buffers import FrameStack, ReplayBuffer
from sb_dqn.nn.layers import linear, recurrent
from tests.choices import Choices
from tests.combinations import TORSOS
from tests.continuous import Reach
from tests.graphs import CpuGraph
from tests.invariants import check_valid
from tests.marks import SLOW, a_few
from tests.tiny import QUICK_SEQUENCES, Tiny, lanes, quick

LONG = ("DQN", "PERDQN", "PPO", "R2D2", "Rainbow", "SAC")
"""Models that train for 1,500 steps; the others for 300, since what they add is in each update."""
ON_POLICY: dict[str, Any] = {"n_steps": 30, "batch_size": 15, "n_epochs": 8}
FRAMES: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": TORSOS["frames"]}
RECURRENT: dict[str, Any] = {"policy": "MlpLstmPolicy", "policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}}

OF_ALGORITHMS: dict[str, dict[str, Any]] = {
    **{name: {"train_freq": 4} for name in ALGORITHMS},
    "A2C": {"lanes": 2},
    "BTR": {"train_freq": 4, "exploration": {"schedule": 0.1}},
    "DQN": {},
    "PERDQN": {"n_steps": 3, "lanes": 4},
    "PPO": {**ON_POLICY, "lanes": 3},
    "PQN": {"lanes": 3},
    "R2D2": {**QUICK_SEQUENCES, "replay_ratio": 2, "lanes": 2},
    "REINFORCE": {},
    "Rainbow": {"train_freq": 8},
    "SAC": {"env": "box", "train_freq": 8, "lanes": 2},
    "VPG": {},
}
"""Settings of a model of each algorithm; "env" and "lanes" are not the constructor's."""
OTHERS: dict[str, dict[str, Any]] = {
    "DQN of dicts": {"env": "dict", "policy": "MultiInputPolicy", "lanes": 3},
    "PERDQN with a uniform share": {"prioritized_replay": {"uniform_mix": 0.3}, "train_freq": 8, "lanes": 2},
    "PPO with an LSTM": {**ON_POLICY, **RECURRENT, "batch_size": 30, "n_epochs": 3, "lanes": 2},
    "DQN from frames": {**FRAMES, "env": "frames", "lanes": 2},
    "PQN from frames": {**FRAMES, "env": "frames", "lanes": 2},
    "PPO from frames": {**FRAMES, "env": "frames", "lanes": 2, "n_steps": 20, "batch_size": 10, "n_epochs": 3},
}
ENVS: dict[str, Any] = {
    "box": Reach,
    "dict": partial(Tiny, "dict", 7),
    "frames": partial(Choices, "frames", "discrete", False),
}


def trained(name: str, settings: dict[str, Any], steps: int) -> Any:
    settings = dict(settings)
    env = lanes(settings.pop("lanes", 1), ENVS.get(settings.pop("env", ""), partial(Tiny, length=7)))
    return quick(env, algorithm=ALGORITHMS[name.split()[0]], **settings).learn(steps)


@pytest.fixture(autouse=True)
def same_rounding(eagerly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs eagerly, unrolls by single steps and adds products in two operations everywhere: NumPy's sums, longer stretches
    and a fused operation round otherwise."""
    monkeypatch.setattr(linear, "is_host_visible", lambda device: True)
    monkeypatch.setattr(recurrent, "is_host_visible", lambda device: False)


@SLOW
@pytest.mark.parametrize(
    ("name", "settings"),
    a_few({**OF_ALGORITHMS, **OTHERS}.items(), "DQN", "PERDQN", "PPO"),
    ids=[*OF_ALGORITHMS, *OTHERS],
)
def test_models_are_those_of_host_memory(name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 1_500 if name in LONG else 300
    here = trained(name, settings, steps)
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    there = trained(name, settings, steps)
    assert here._experience.ring.host_visible
    assert not there._experience.ring.host_visible
    assert there._n_updates == here._n_updates >= 20
    assert torch.equal(there.learner.flat, here.learner.flat)
    for key, column in here._experience.ring.columns.items():
        assert torch.equal(there._experience.ring.columns[key], column), key
    assert check_valid(there._experience.ring) == (True, "valid")


@SLOW
@pytest.mark.parametrize("actors", ["overlapped:2x2", "overlapped"])
def test_groups_of_lanes_read_their_frames_from_the_device(actors: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**FRAMES, "actors": actors, "noisy": True}
    env = lanes(4, ENVS["frames"])

    def learned() -> Any:
        return quick(env, **settings).learn(300)

    here = learned()
    monkeypatch.setattr(devices, "HOST_DEVICES", ())
    stacked: list[FrameStack] = []
    monkeypatch.setattr(FrameStack, "stacked", lambda frames: stacked.append(frames))
    there = learned()
    assert stacked == []
    assert there._n_updates == here._n_updates >= 20
    assert torch.equal(there.learner.flat, here.learner.flat)
    for key, column in here.replay.ring.columns.items():
        assert torch.equal(there.replay.ring.columns[key], column), key


@SLOW
@pytest.mark.parametrize("mode", ["eager", "captured"])
@pytest.mark.parametrize("name", a_few(["DQN", "PERDQN", "R2D2", "SAC", "DQN from frames"], "DQN", "PERDQN"))
def test_batches_that_are_sent_give_the_same_models(name: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in the memory of the host and networks elsewhere: one packed copy for each batch."""
    settings = {**OF_ALGORITHMS, **OTHERS}[name]
    here = trained(name, settings, 300)
    monkeypatch.setattr(cuda_graph, "CudaGraph", lambda device: CpuGraph())
    monkeypatch.setattr(ReplayBuffer, "sends_batches", lambda *_: True)
    with forced_mode(mode):
        there = trained(name, settings, 300)
    assert there._n_updates == here._n_updates >= 20
    assert torch.equal(there.learner.flat, here.learner.flat)
