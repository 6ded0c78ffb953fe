"""Files of earlier versions: each must load, predict what it predicted, and go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.checkpoint import model_info
from sb_dqn.envs.make import make_vec_env
from tests.golden.make import OBS

FILES = sorted(Path(__file__).parent.glob("*.zip"))


def test_there_are_some() -> None:
    assert len(FILES) >= 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_golden_file_loads_and_goes_on(path: Path) -> None:
    told = json.loads(path.with_suffix(".json").read_text())
    model = ALGORITHMS[told["class"]].load(path, env=make_vec_env("CartPole-v1", 2), device="cpu")
    assert (model.num_timesteps, model._n_updates) == (told["timesteps"], told["updates"])
    assert model.predict(OBS, deterministic=True)[0].tolist() == told["actions"]
    if "full" in model_info(path):
        assert model.resume().num_timesteps in (80, 81)  # a reset row is no step
    else:
        model.learn(20, reset_num_timesteps=False)
    assert model._n_updates > told["updates"]
