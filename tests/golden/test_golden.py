"""Files of earlier versions: each must load, predict what it predicted, and go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import A2C, ALGORITHMS, PPO
from sb_dqn.checkpoint import model_info, read_archive
from sb_dqn.nn.optimizers import RMSpropTFLike
from tests.golden.make import OBS, make_env

A2C_FILE = Path(__file__).parent / "a2c_full-0.1.0.zip"
"""Saved when the default of A2C was RMSpropTFLike, which its arguments do not name."""
BITS_FILE = Path(__file__).parent / "ppo_bits-0.1.0.zip"
"""Saved when each bit of a MultiBinary had two outputs."""
FILES = sorted(Path(__file__).parent.glob("*.zip"))


def test_there_are_some() -> None:
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_loads_and_goes_on(path: Path) -> None:
    told = json.loads(path.with_suffix(".json").read_text())
    model = ALGORITHMS[told["class"]].load(path, env=make_env(path.stem), device="cpu")
    assert (model.num_timesteps, model._n_updates) == (told["timesteps"], told["updates"])
    assert model.predict(OBS, deterministic=True)[0].tolist() == told["actions"]
    if "full" in model_info(path):
        assert model.resume().num_timesteps in (80, 81)  # a reset row is no step
    else:
        model.learn(20, reset_num_timesteps=False)
    assert model._n_updates > told["updates"]


def test_a2c_goes_on_with_the_optimizer_that_it_was_saved_with(tmp_path: Path) -> None:
    model = A2C.load(A2C_FILE, env=make_env("a2c"), device="cpu")
    assert isinstance(model.learner.optimizer, RMSpropTFLike)
    group = model.learner.optimizer.param_groups[0]
    assert (group["alpha"], group["eps"], group["weight_decay"]) == (0.99, 1e-5, 0.0)
    squares = model.learner.optimizer.state_dict()["state"][0]["square_avg"]
    kept = [value for value in read_archive(A2C_FILE)[1]["state"].values() if value.shape == squares.shape]
    assert any(torch.equal(squares, value) for value in kept)
    model.resume().save(tmp_path / "again")
    assert isinstance(A2C.load(tmp_path / "again").learner.optimizer, RMSpropTFLike)


@pytest.mark.parametrize(
    ("changed", "expected", "eps"),
    [
        ({"use_rms_prop": False}, torch.optim.Adam, 1e-5),
        ({"rms_prop_eps": 0.5}, RMSpropTFLike, 0.5),
        ({"policy_kwargs": {"net_arch": [8], "optimizer_kwargs": {"eps": 0.25}}}, RMSpropTFLike, 0.25),
        ({"policy_kwargs": {"net_arch": [8], "optimizer_class": torch.optim.RMSprop}}, torch.optim.RMSprop, 1e-8),
    ],
)
def test_the_optimizer_of_an_older_a2c_can_be_changed_while_loading(changed: Any, expected: Any, eps: float) -> None:
    optimizer = A2C.load(A2C_FILE, device="cpu", **changed).learner.optimizer
    assert isinstance(optimizer, expected)
    assert optimizer.param_groups[0]["eps"] == eps


def test_a_new_a2c_is_loaded_with_the_optimizer_of_its_class(tmp_path: Path) -> None:
    model = A2C("MlpPolicy", make_env("a2c"), policy_kwargs={"net_arch": [8]}, seed=0, device="cpu").learn(20)
    model.save(tmp_path / "model")
    again = A2C.load(tmp_path / "model", device="cpu").learner.optimizer
    assert isinstance(again, torch.optim.RMSprop)
    assert torch.equal(
        again.state_dict()["state"][0]["square_avg"], model.learner.optimizer.state_dict()["state"][0]["square_avg"]
    )


@pytest.mark.parametrize("changed", [{}, {"policy_kwargs": {"net_arch": [8]}}], ids=["as it is", "other keywords"])
def test_a_model_of_two_outputs_for_each_bit_keeps_them(changed: Any, tmp_path: Path) -> None:
    model = PPO.load(BITS_FILE, device="cpu", **changed)
    assert model.policy.action_head.outputs.out_features == 4
    moments = model.learner.optimizer.state_dict()["state"][0]["exp_avg"]
    kept = [value for value in read_archive(BITS_FILE)[1]["state"].values() if value.shape == moments.shape]
    assert any(torch.equal(moments, value) for value in kept)
    model.save(tmp_path / "again")
    assert PPO.load(tmp_path / "again").policy.action_head.outputs.out_features == 4


def test_a_new_model_has_one_output_for_each_bit_before_and_after_a_load(tmp_path: Path) -> None:
    model = PPO("MlpPolicy", make_env("bits"), n_steps=8, batch_size=8, seed=0, device="cpu").learn(20)
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", device="cpu")
    assert again.policy.action_head.outputs.out_features == 2
    assert torch.equal(again.learner.flat, model.learner.flat)
