"""Names of classes in `policy_kwargs` stand for the classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from sb_dqn import DQN, PPO, SAC
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import ImpalaCNN
from tests.tiny import Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")

NAMED = {"activation_fn": "Tanh", "optimizer_class": "AdamW", "features_extractor_class": "FlattenExtractor"}


@pytest.mark.parametrize("algorithm", [DQN, PPO, SAC])
def test_a_model_by_names_is_that_by_classes(algorithm: Any, tmp_path: Path) -> None:
    model = quick(algorithm=algorithm, policy_kwargs={"net_arch": [8], **NAMED})
    kinds = {type(module) for module in model.policy.modules()}
    assert nn.Tanh in kinds
    assert nn.ReLU not in kinds
    assert isinstance(model.learner.optimizer, torch.optim.AdamW)
    model.save(tmp_path / "model")
    loaded = algorithm.load(tmp_path / "model")
    assert {type(module) for module in loaded.policy.modules()} == kinds


def test_cnns_have_names() -> None:
    kwargs = {
        "features_extractor_class": "ImpalaCNN",
        "features_extractor_kwargs": {"features_dim": 8, "widths": (4, 4, 4)},
    }
    model = quick(Tiny("image"), policy="CnnPolicy", policy_kwargs=kwargs)
    assert any(isinstance(module, ImpalaCNN) for module in model.policy.modules())


@pytest.mark.parametrize(
    ("key", "name", "hint"),
    [
        ("activation_fn", "reLU", "Did you mean 'ReLU'"),
        ("optimizer_class", "Adm", "Did you mean 'Adam'"),
        ("features_extractor_class", "Impala", "Did you mean 'ImpalaCNN'"),
    ],
)
def test_a_name_of_no_class_is_refused(key: str, name: str, hint: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"policy_kwargs\['{key}'\] must be a class or one of .*, got {name!r}"
    ):
        quick(policy_kwargs={key: name})
    with pytest.raises(ConfigurationError, match=hint):
        quick(policy_kwargs={key: name})
