"""`export_onnx`: the file computes what `predict` and `q_values` return, for each head and each kind of input."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium import spaces

from sb_dqn import onnx_export
from sb_dqn.algorithms import C51, DQN, FQF, IQN, PPO, QRDQN, R2D2, SAC
from sb_dqn.cli.main import commands
from sb_dqn.envs import make_atari_env
from sb_dqn.errors import ConfigurationError
from tests.marks import SLOW, a_few
from tests.nets import OwnExtractor
from tests.tiny import SMALL_CNN, Tiny, quick

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.usefixtures("eagerly")

CNN = {"features_extractor_kwargs": SMALL_CNN}


class Acting(Tiny):
    """Has another action space than `Discrete`; it is never stepped."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.action_space: Any = space


def normalized() -> Any:
    """Returns a model of a Dict whose statistics are not those of the start."""
    model = quick(Tiny("dict", start=5), "MultiInputPolicy", normalize_observations=True)
    model.learn(60)
    return model


BOX = Acting(spaces.Box(-2.0, 3.0, (2,), np.float32))
MODELS: dict[str, Callable[[], Any]] = {
    "scalar, normalized Dict": normalized,
    "categorical, frame stack": partial(
        lambda **kwargs: quick(make_atari_env("ALE/Pong-v5", 1), **kwargs), policy="CnnPolicy", algorithm=C51,
        policy_kwargs={"features_extractor_kwargs": {"features_dim": 4}},
    ),
    "quantile, uneven branches with masks": partial(
        quick, Acting(spaces.MultiDiscrete([3, 2])), algorithm=QRDQN, action_mask="info", dueling=True
    ),
    "implicit, risk, noisy": partial(quick, algorithm=IQN, risk="cvar 0.3", noisy=True),
    "fraction, image": partial(quick, Tiny("hwc"), "CnnPolicy", algorithm=FQF, policy_kwargs=CNN),
    "recurrent": partial(quick, algorithm=R2D2),
    "stochastic, Box": partial(quick, BOX, algorithm=PPO),
    "squashed, Box": partial(quick, BOX, algorithm=SAC),
}  # fmt: skip


@SLOW
@pytest.mark.parametrize(
    "name", a_few(MODELS, "quantile, uneven branches with masks", "implicit, risk, noisy", "squashed, Box")
)
def test_a_file_computes_what_predict_returns(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = model.export_onnx(tmp_path / "policy")
    assert [file.name for file in tmp_path.iterdir()] == ["policy.onnx"]
    session = onnxruntime.InferenceSession(str(path))
    outputs = [output.name for output in session.get_outputs()]
    rng = np.random.default_rng(7)
    for count in (1, 5):
        obs: Any = onnx_export.random_observations(model.observation_space, count, rng)
        inputs = dict(obs)
        given: dict[str, Any] = {}
        if model.action_mask == "info":
            given["action_masks"] = inputs["action_mask"] = np.tile([True, False, True, False, True], (count, 1))
        if model.policy.recurrent:
            inputs["previous_action"] = np.full(count, -1)
            inputs["previous_reward"] = np.zeros(count, np.float32)
            inputs["state"] = np.zeros((count, model.policy.state_size), np.float32)
        found = dict(zip(outputs, session.run(outputs, inputs), strict=True))
        observation = obs.get("obs", obs)
        action, state = model.predict(observation, deterministic=True, **given)
        assert found["action"].shape == action.shape
        if isinstance(model.action_space, spaces.Box):
            np.testing.assert_allclose(found["action"], action, atol=1e-5)
            continue
        assert (found["action"] == action).all()
        np.testing.assert_allclose(found["q_values"], model.q_values(observation, **given), rtol=1e-5, atol=1e-5)
        if model.policy.recurrent:
            np.testing.assert_allclose(found["next_state"], state["memory"], atol=1e-5)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_export, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r'got no onnx. Run pip install "sb_dqn\[onnx\]"'):
        quick().export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@SLOW
def test_the_command_writes_next_to_the_model_and_the_file_of_another_model_is_noticed(tmp_path: Path) -> None:
    large = {"net_arch": [1024, 1024]}  # products for which oneDNN is faster on some processors
    model = quick(algorithm=DQN, policy_kwargs=large)
    model.save(tmp_path / "model.zip")
    done = CliRunner().invoke(commands, ["export", str(tmp_path / "model.zip")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "model.onnx: obs -> action, q_values\nthe same actions as predict" in done.output
    (tmp_path / "folder.onnx").mkdir()
    refused = CliRunner().invoke(commands, ["export", f"{tmp_path}/model.zip", "--out", f"{tmp_path}/folder.onnx"])
    assert refused.exit_code == 2
    assert "--out: must be a file that can be written, got" in refused.output
    model = quick(seed=2, policy_kwargs=large)
    with pytest.raises(
        ConfigurationError, match="q_values of the exported file must differ from the model's by at most"
    ):
        onnx_export.compare(model, onnx_export.GreedyNetwork(model), tmp_path / "model.onnx")


@SLOW
def test_networks_that_depend_on_values_are_refused(tmp_path: Path) -> None:
    model = quick(policy_kwargs={"features_extractor_class": OwnExtractor})
    with pytest.raises(
        ConfigurationError, match=r"must be exportable by torch.onnx.export, got \w+ \(.*data-dependent"
    ):
        model.export_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
