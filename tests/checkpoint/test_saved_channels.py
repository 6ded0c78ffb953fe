"""Model files keep the channel axis that their images were trained with, whatever the rule for new models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn import DQN
from sb_dqn.checkpoint import model_info
from sb_dqn.nn.torsos.features import images_of
from tests.marks import SLOW
from tests.policies.test_images_of_other_numbers import Shown

FOLDER = Path(__file__).parent / "images"
"""Files of 0.1.0 before it stored the axis: 12 x 12 x 6 bytes were taken for 12 channels of 12 x 6 pixels."""


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


SPACES: dict[str, tuple[spaces.Space[Any], dict[str, str]]] = {
    "one": (pixels(12, 12, 6), {"obs": "first"}),
    "several": (spaces.Dict({"far": pixels(12, 12, 6), "near": pixels(12, 12, 3)}), {"far": "first", "near": "last"}),
}


@SLOW
@pytest.mark.parametrize("name", SPACES)
def test_files_of_before_mean_what_they_meant(name: str, tmp_path: Path) -> None:
    space, channels = SPACES[name]
    path = FOLDER / f"images_{name}-0.1.0.zip"
    told = json.loads(path.with_suffix(".json").read_text())
    assert "images" not in model_info(path)
    model = DQN.load(path, env=Shown(space), device="cpu")
    for _ in range(2):
        assert {key: image.channels for key, image in images_of(model.policy).items()} == channels
        weights = [list(weight.shape) for weight in model.policy.q_net.parameters() if weight.dim() == 4]
        assert weights == told["convolutions"]
        space.seed(5)
        seen = [space.sample() for _ in told["values"]]
        keys = {"obs": seen} if name == "one" else {key: [one[key] for one in seen] for key in channels}
        with torch.no_grad():
            values = model.policy.q_net({key: torch.as_tensor(np.stack(rows)) for key, rows in keys.items()}).q
        torch.testing.assert_close(values, torch.tensor(told["values"]))
        model.learn(30, reset_num_timesteps=False)
        model = DQN.load(path, device="cpu")
        model = DQN.load(model.save(tmp_path / "again"), env=Shown(space), device="cpu")


@pytest.mark.parametrize(("shape", "channels"), [((10, 10, 10), "last"), ((12, 12, 6), "first"), ((12, 12, 6), None)])
def test_the_axis_is_in_the_file(shape: tuple[int, ...], channels: str | None, tmp_path: Path) -> None:
    chosen = {} if channels is None else {"channels": channels}
    model = DQN("CnnPolicy", Shown(pixels(*shape)), buffer_size=100, policy_kwargs=chosen, device="cpu")
    path = model.save(tmp_path / "model")
    assert model_info(path)["images"] == {"obs": channels or "last"}
    assert images_of(DQN.load(path, device="cpu").policy)["obs"].channels == (channels or "last")


def test_a_file_overrules_a_rule_that_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = DQN("CnnPolicy", Shown(pixels(12, 12, 6)), buffer_size=100, device="cpu")
    path = model.save(tmp_path / "model")
    for module in ("sb_dqn.nn.torsos.feature_extractor", "sb_dqn.core.model_file"):
        monkeypatch.setattr(f"{module}.image_channels_last", lambda space: False)
    assert images_of(DQN.load(path, device="cpu").policy)["obs"].channels == "last"
