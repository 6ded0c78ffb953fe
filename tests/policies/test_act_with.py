"""`act_with="target"`: the target network selects the actions, wherever they are selected."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn.algorithms import BTR, DQN, R2D2, CategoricalDQN
from sb_dqn.errors import ConfigurationError
from tests.marks import SLOW
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

POOLED = {
    "features_extractor_class": "ImpalaCNN",
    "features_extractor_kwargs": {"adaptive_pool": (1, 1), "features_dim": 8},
}
OBS = np.array([[0.3, -1.0], [2.0, 0.1], [-0.7, 0.9]], np.float32)


def set_best(network: Any, action: int) -> None:
    """Makes one action the best at every observation."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.head.outputs.of_actions.bias[action] = 1.0


def split(**settings: Any) -> Any:
    """A model whose networks prefer different actions: online 1, target 2."""
    model = quick(exploration="none", target_update_interval=10**6, learning_rate=1e-12, **settings)
    set_best(model.policy.q_net, 1)
    set_best(model.policy.q_net_target, 2)
    model.learner.refresh()
    return model


@SLOW
@pytest.mark.parametrize(("act_with", "action"), [("online", 1), ("target", 2)])
@pytest.mark.parametrize("actors", [None, "overlapped:2x1", "process:2x1"])
def test_all_actions_are_those_of_the_network(act_with: str, action: int, actors: Any) -> None:
    model = split(env=lanes(2), act_with=act_with, actors=actors, train_freq=2)
    assert model.predict(OBS, deterministic=True)[0].tolist() == [action] * 3
    assert model.q_values(OBS).argmax(-1).tolist() == [action] * 3
    model.learn(200)
    played = model.replay.sample(400).action.tolist()  # the first steps are uniform
    assert played.count(action) >= 0.7 * len(played)
    assert played.count(3 - action) <= 0.2 * len(played)
    model.close()


def test_a_loaded_model_acts_with_its_target(tmp_path: Path) -> None:
    model = split(act_with="target")
    model.save(tmp_path / "model.zip")
    assert DQN.load(tmp_path / "model.zip").predict(OBS)[0].tolist() == [2, 2, 2]


@SLOW
@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (DQN, {"noisy": True, "dueling": True, "tau": 0.2}),
        (CategoricalDQN, {"prioritized_replay": True}),
        (R2D2, {}),
        (
            BTR,
            {
                "env": partial(Tiny, "image"),
                "policy": "CnnPolicy",
                "precision": "bf16",
                "train_freq": 4,
                "policy_kwargs": POOLED,
            },
        ),
        (
            DQN,
            {
                "env": partial(Tiny, "image"),
                "policy": "CnnPolicy",
                "policy_kwargs": {"features_extractor_kwargs": SMALL_CNN},
            },
        ),
    ],
    ids=["switches", "C51", "R2D2", "BTR", "image"],
)
def test_runs(algorithm: Any, settings: dict[str, Any]) -> None:
    settings = dict(settings)
    env = settings.pop("env", Tiny)
    model = quick(lanes(2, env), algorithm=algorithm, act_with="target", **settings).learn(60)
    assert model._n_updates > 0


@SLOW
def test_export_has_the_target(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnxruntime")
    model = split(act_with="target")
    model.export_onnx(tmp_path / "model.onnx")
    session = onnx.InferenceSession(str(tmp_path / "model.onnx"))
    outputs = session.run(None, {session.get_inputs()[0].name: OBS[:1]})
    assert any(np.asarray(output).flatten().tolist() == [2] for output in outputs)


def test_it_must_be_a_network() -> None:
    with pytest.raises(ConfigurationError, match="act_with"):
        quick(act_with="both")
