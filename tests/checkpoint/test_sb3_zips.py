"""Models that Stable-Baselines3 trained and saved: same actions, learning goes on, and nothing in a file is run."""

from __future__ import annotations

import base64
import io
import json
import pickle
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sb_dqn
from sb_dqn.errors import CheckpointError, ConfigurationError

peer: Any = pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
contrib: Any = pytest.importorskip("sb3_contrib", reason="its second package, installed by the test extra")
envs: Any = pytest.importorskip("stable_baselines3.common.envs", reason="comes with the peer")
env_util: Any = pytest.importorskip("stable_baselines3.common.env_util", reason="comes with the peer")
layers: Any = pytest.importorskip("stable_baselines3.common.torch_layers", reason="comes with the peer")
utils: Any = pytest.importorskip("stable_baselines3.common.utils", reason="comes with the peer")

OFF_POLICY: dict[str, Any] = {"learning_starts": 8, "buffer_size": 300, "batch_size": 8, "seed": 0}
SMALL_CNN = {"features_extractor_kwargs": {"features_dim": 16}}


def images() -> Any:
    return envs.FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=True, channel_first=True)


CASES: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "DQN": ("DQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "policy_kwargs": {"net_arch": [16, 8]}}),
    "DQN of images": ("DQN", "CnnPolicy", images, {**OFF_POLICY, "policy_kwargs": SMALL_CNN}),
    "QRDQN": ("QRDQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "policy_kwargs": {"n_quantiles": 7}}),
    "PPO": ("PPO", "MlpPolicy", "CartPole-v1", {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0}),
    "PPO of images": (
        "PPO", "CnnPolicy", images, {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "policy_kwargs": SMALL_CNN},
    ),
    "A2C": ("A2C", "MlpPolicy", "Pendulum-v1", {"seed": 0}),
    "SAC": ("SAC", "MlpPolicy", "Pendulum-v1", {**OFF_POLICY, "policy_kwargs": {"net_arch": [16, 16]}}),
}  # fmt: skip


@cache
def trained(case: str) -> tuple[Any, bytes]:
    """A model of Stable-Baselines3 and its file."""
    name, policy, env, keywords = CASES[case]
    cls = getattr(peer, name, None) or getattr(contrib, name)
    model = cls(policy, env() if callable(env) else env, **keywords).learn(24)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.policy.parameters():  # a policy that has learned little prefers one action everywhere
            parameter.add_(torch.randn_like(parameter))
    file = io.BytesIO()
    model.save(file)
    return model, file.getvalue()


def observations(space: Any) -> Any:
    rng = np.random.default_rng(0)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (1_000, *space.shape), np.uint8)
    return rng.normal(size=(1_000, *space.shape)).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
def test_actions_are_the_same_and_learning_goes_on(case: str, tmp_path: Path) -> None:
    theirs, file = trained(case)
    (tmp_path / "theirs.zip").write_bytes(file)
    cls = getattr(sb_dqn, CASES[case][0])
    model = cls.load(tmp_path / "theirs")  # no environment
    obs = observations(theirs.observation_space)
    expected, found = (each.predict(obs, deterministic=True)[0] for each in (theirs, model))
    if expected.dtype.kind == "i":
        assert len(np.unique(expected)) > 1
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (model.num_timesteps, model._n_updates) == (theirs.num_timesteps, theirs._n_updates)
    env = CASES[case][2]
    model = cls.load(io.BytesIO(file), env=env() if callable(env) else env)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(40, reset_num_timesteps=False)
    assert model.num_timesteps == theirs.num_timesteps + 40
    assert any(not value.equal(before[name]) for name, value in model.policy.state_dict().items())
    model.save(tmp_path / "ours")
    assert cls.load(tmp_path / "ours").num_timesteps == model.num_timesteps


def test_settings_are_those_of_the_file() -> None:
    model = sb_dqn.DQN.load(io.BytesIO(trained("DQN")[1]))
    assert model.policy.net_arch == [16, 8]
    expected = {"learning_rate": 1e-4, "gamma": 0.99, "train_freq": 4, "buffer_size": 300, "learning_starts": 8}
    assert {name: getattr(model, name) for name in expected} == expected
    assert model.exploration_rate == pytest.approx(trained("DQN")[0].exploration_rate)
    env = env_util.make_vec_env("CartPole-v1", 3)
    model = peer.DQN("MlpPolicy", env, train_freq=5, learning_rate=utils.LinearSchedule(1e-3, 1e-4, 0.5))
    file = io.BytesIO()
    model.save(file)
    ours: Any = sb_dqn.DQN.load(file)
    assert ours.train_freq == 15  # env steps
    assert ours.rate_schedule(25, 100) == pytest.approx(5.5e-4)


def test_pickles_are_named_with_their_keyword() -> None:
    file = io.BytesIO()
    peer.PPO(
        "MlpPolicy", "CartPole-v1", learning_rate=lambda progress: 1e-3 * progress, n_steps=16, batch_size=16
    ).save(file)
    with pytest.warns(UserWarning, match=r"has learning_rate as pickles.*load\(path, learning_rate=...\)"):
        sb_dqn.PPO.load(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sb_dqn.PPO.load(file, learning_rate=1e-3).learning_rate == 1e-3

    class Own(layers.FlattenExtractor):  # type: ignore[misc]
        pass

    file = io.BytesIO()
    peer.PPO(
        "MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, policy_kwargs={"features_extractor_class": Own}
    ).save(file)
    with pytest.raises(
        CheckpointError, match=r"policy_kwargs\['features_extractor_class'\] as a pickle.*policy_kwargs="
    ):
        sb_dqn.PPO.load(file)
    model = sb_dqn.PPO.load(file, policy_kwargs={"features_extractor_class": Own})
    assert model.predict(np.zeros(4, np.float32), deterministic=True)[0] in (0, 1)
    file = io.BytesIO()
    env = envs.SimpleMultiObsEnv()
    peer.PPO("MultiInputPolicy", env, n_steps=16, batch_size=16).save(file)
    with pytest.raises(CheckpointError, match=r"observation_space as a pickle.*load\(path, env=...\)"):
        sb_dqn.PPO.load(file)


def test_other_algorithms_are_named() -> None:
    for model, name in (
        (peer.TD3("MlpPolicy", "Pendulum-v1", buffer_size=10), "TD3 or DDPG"),
        (contrib.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=8, batch_size=8), "RecurrentPPO"),
    ):
        file = io.BytesIO()
        model.save(file)
        with pytest.raises(
            CheckpointError, match=f"must hold a DQN, .* of Stable-Baselines3, got a {name}. Load it with"
        ):
            sb_dqn.DQN.load(file)
    with pytest.raises(CheckpointError, match="the file must hold a DQN, got a PPO"):
        sb_dqn.DQN.load(io.BytesIO(trained("PPO")[1]))


RUN: list[str] = []
"""Filled by a bomb that is unpickled."""


def explode() -> None:
    RUN.append("a bomb")


class Bomb:
    """A pickle that calls a function of this module when it is loaded."""

    def __reduce__(self) -> Any:
        return explode, ()


def changed(file: bytes, member: str, content: bytes) -> io.BytesIO:
    """The file with another content of a member."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as old, zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            archive.writestr(name, content if name == member else old.read(name))
    return new


@pytest.mark.parametrize("case", ["DQN", "SAC"])
def test_a_bomb_in_each_member_runs_nothing(case: str) -> None:
    file = trained(case)[1]
    bomb = pickle.dumps(Bomb())
    pickle.loads(bomb)
    assert RUN == ["a bomb"]
    RUN.clear()
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        names, settings = archive.namelist(), json.loads(archive.read("data"))
    hostile = {name: changed(file, name, bomb) for name in names}
    for key, value in settings.items():
        if isinstance(value, dict) and ":serialized:" in value:
            other = {**settings, key: {**value, ":serialized:": base64.b64encode(bomb).decode()}}
            hostile[key] = changed(file, "data", json.dumps(other).encode())
    refused = set()
    for name, content in hostile.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                getattr(sb_dqn, case).load(content)
            except CheckpointError:
                refused.add(name)
    assert refused == {"data", "policy.pth", "pytorch_variables.pth", "policy_class"}
    assert len(hostile) > 10
    assert RUN == []


def test_damaged_files() -> None:
    file = trained("DQN")[1]
    for damaged, message in (
        (changed(file, "data", b"{"), "member 'data' is no JSON"),
        (changed(file, "data", b"[]"), "member 'data' must be a dict"),
        (changed(file, "policy.pth", b"nothing"), "member 'policy.pth' must hold tensors only"),
        (changed(file, "data", json.dumps({}).encode()), "got a model with a policy class of its own"),
    ):
        with pytest.raises(CheckpointError, match=message) as caught:
            sb_dqn.DQN.load(damaged)
        assert "\n" not in str(caught.value)
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        settings = json.loads(archive.read("data"))
    for key, value in (
        ("gamma", "high"),
        ("policy_kwargs", {"net_arch": "[10000000, 10000000]"}),
        ("policy_kwargs", "text"),
    ):
        broken = changed(file, "data", json.dumps({**settings, key: value}).encode())
        with pytest.raises((CheckpointError, ConfigurationError)):
            sb_dqn.DQN.load(broken)
