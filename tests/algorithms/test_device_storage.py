"""Whole models with replay and rollouts stored as on a GPU: the same parameters, bit for bit, as with host memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.buffers import ring
from tests.choices import Choices
from tests.combinations import TORSOS
from tests.tiny import QUICK_SEQUENCES, Tiny, lanes, quick, run_eagerly

MODELS: dict[str, tuple[str, int, str, int, dict[str, Any]]] = {
    "DQN": ("DQN", 1, "vector", 1_500, {}),
    "DQN from dicts of 3 lanes": ("DQN", 3, "dict", 1_500, {"policy": "MultiInputPolicy"}),
    "PERDQN of 4 lanes": ("PERDQN", 4, "vector", 1_500, {"n_steps": 3}),
    "a mix of priorities": ("PERDQN", 2, "vector", 1_500, {"prioritized_replay": {"uniform_mix": 0.3}}),
    "Rainbow": ("Rainbow", 1, "vector", 1_500, {"train_freq": 4}),
    "R2D2": ("R2D2", 2, "vector", 1_000, {**QUICK_SEQUENCES, "replay_ratio": 8}),
    "PPO": ("PPO", 3, "vector", 600, {"n_steps": 30, "batch_size": 15, "n_epochs": 8}),
    "PQN": ("PQN", 3, "vector", 1_100, {}),
    "DQN from frames": ("DQN", 2, "frames", 1_400, {"policy": "CnnPolicy"}),
    "PQN from frames": ("PQN", 2, "frames", 1_100, {"policy": "CnnPolicy"}),
    "PPO from frames": (
        "PPO",
        2,
        "frames",
        700,
        {"policy": "CnnPolicy", "n_steps": 20, "batch_size": 10, "n_epochs": 5},
    ),
}


PRIORITIZED = ("PERDQN of 4 lanes", "a mix of priorities", "Rainbow")


def trained(name: str) -> Any:
    algorithm, count, kind, steps, settings = MODELS[name]
    if kind == "frames":
        env = lanes(count, partial(Choices, "frames", "discrete", False))
        settings = {**settings, "policy_kwargs": TORSOS["frames"]}
    else:
        env = lanes(count, lambda: Tiny(kind, length=7))
    return quick(env, algorithm=ALGORITHMS[algorithm], **settings).learn(steps)


@pytest.mark.parametrize("name", MODELS)
def test_models_are_those_of_host_memory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # stacks that are gathered on the device do not go through a recording, and NumPy, which replays recordings with a
    # priority tree in host memory only, sums in another order
    if "frames" in name or name in PRIORITIZED:
        run_eagerly(monkeypatch)
    here = trained(name)
    # of the ring alone: recurrent layers would take single steps, whose matrix products round otherwise
    monkeypatch.setattr(ring, "is_host_visible", lambda device: False)
    there = trained(name)
    assert here._experience.ring.host_visible
    assert not there._experience.ring.host_visible
    assert there._n_updates == here._n_updates >= 300
    assert torch.equal(there.learner.flat, here.learner.flat)
    for key, column in here._experience.ring.columns.items():
        assert torch.equal(there._experience.ring.columns[key], column), key
    assert there._experience.ring.check_valid() == (True, "valid")
