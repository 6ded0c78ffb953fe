"""Models that Stable-Baselines3 trained and saved: same actions and same updates, and nothing in a file is run."""

from __future__ import annotations

import base64
import io
import json
import pickle
import warnings
import zipfile
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import sb_dqn
from sb_dqn import sb3
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.schedules import Linear
from sb_dqn.types import Batch
from tests.marks import SLOW, a_few

peer: Any = pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
contrib: Any = pytest.importorskip("sb3_contrib", reason="its second package, installed by the test extra")
envs: Any = pytest.importorskip("stable_baselines3.common.envs", reason="comes with the peer")
env_util: Any = pytest.importorskip("stable_baselines3.common.env_util", reason="comes with the peer")
layers: Any = pytest.importorskip("stable_baselines3.common.torch_layers", reason="comes with the peer")
buffers: Any = pytest.importorskip("stable_baselines3.common.type_aliases", reason="comes with the peer")
logger: Any = pytest.importorskip("stable_baselines3.common.logger", reason="comes with the peer")
utils: Any = pytest.importorskip("stable_baselines3.common.utils", reason="comes with the peer")

OFF_POLICY: dict[str, Any] = {"learning_starts": 8, "buffer_size": 300, "batch_size": 8, "seed": 0}
ON_POLICY: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0}
TWO_LAYERS = {"lstm_hidden_size": 12, "n_lstm_layers": 2, "lstm_kwargs": {"dropout": 0.2}, "net_arch": [16]}
SMALL_CNN = {"features_extractor_kwargs": {"features_dim": 16}}


def images(discrete: bool = True) -> Any:
    return envs.FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=discrete, channel_first=True)


def continuous_images() -> Any:
    return images(discrete=False)


class Drawn(gymnasium.Env[Any, Any]):
    """Random observations; the reward is the first number of the action."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        return obs, float(action[0]), bool(self.np_random.random() < 0.2), False, {}

    def action_masks(self) -> Any:
        """All values of each bit are legal."""
        return np.ones(2 * self.action_space.sample().size, np.bool_)


CASES: dict[str, tuple[str, str, Any, dict[str, Any]]] = {
    "DQN": ("DQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "policy_kwargs": {"net_arch": [16, 8]}}),
    "DQN of images": ("DQN", "CnnPolicy", images, {**OFF_POLICY, "policy_kwargs": SMALL_CNN}),
    "QRDQN": ("QRDQN", "MlpPolicy", "CartPole-v1", {**OFF_POLICY, "policy_kwargs": {"n_quantiles": 7}}),
    "PPO": ("PPO", "MlpPolicy", "CartPole-v1", ON_POLICY),
    "PPO of images": (
        "PPO", "CnnPolicy", images, {**ON_POLICY, "policy_kwargs": SMALL_CNN},
    ),
    "A2C": ("A2C", "MlpPolicy", "Pendulum-v1", {"seed": 0}),
    "SAC": ("SAC", "MlpPolicy", "Pendulum-v1", {**OFF_POLICY, "policy_kwargs": {"net_arch": [16, 16]}}),
    "SAC, state-dependent": ("SAC", "MlpPolicy", "Pendulum-v1", {**OFF_POLICY, "use_sde": True}),
    "PPO, state-dependent": (
        "PPO", "MlpPolicy", "Pendulum-v1",
        {"n_steps": 16, "batch_size": 16, "use_sde": True, "policy_kwargs": {"squash_output": True, "full_std": False}},
    ),
    "A2C, uneven branches": ("A2C", "MlpPolicy", lambda: Drawn(spaces.MultiDiscrete([3, 2, 4])), {"seed": 0}),
    "MaskablePPO of bits": ("MaskablePPO", "MlpPolicy", lambda: Drawn(spaces.MultiBinary(3)), ON_POLICY),
    "SAC, shared features": (
        "SAC", "CnnPolicy", continuous_images,
        {**OFF_POLICY, "policy_kwargs": {**SMALL_CNN, "share_features_extractor": True, "net_arch": [16]}},
    ),
    "RecurrentPPO": ("RecurrentPPO", "MlpLstmPolicy", "CartPole-v1", {**ON_POLICY, "policy_kwargs": {"lstm_hidden_size": 12}}),
    "RecurrentPPO, shared": (
        "RecurrentPPO", "MlpLstmPolicy", "Pendulum-v1",
        {**ON_POLICY, "policy_kwargs": {"lstm_hidden_size": 12, "shared_lstm": True, "enable_critic_lstm": False}},
    ),
    "RecurrentPPO, state-dependent": (
        "RecurrentPPO", "MlpLstmPolicy", "Pendulum-v1",
        {**ON_POLICY, "use_sde": True, "policy_kwargs": TWO_LAYERS},
    ),
    "RecurrentPPO of images": (
        "RecurrentPPO", "CnnLstmPolicy", images,
        {**ON_POLICY, "policy_kwargs": {**SMALL_CNN, "lstm_hidden_size": 12, "share_features_extractor": False}},
    ),
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
            # sums in another order differ more behind convolutions with large weights
            parameter.add_(torch.randn_like(parameter), alpha=0.1 if env is continuous_images else 1.0)
    file = io.BytesIO()
    model.save(file)
    return model, file.getvalue()


def observations(space: Any) -> Any:
    rng = np.random.default_rng(0)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (1_000, *space.shape), np.uint8)
    return rng.normal(size=(1_000, *space.shape)).astype(np.float32)


@SLOW
@pytest.mark.parametrize("case", a_few(CASES, "DQN", "PPO", "QRDQN"))
def test_actions_are_the_same_and_learning_goes_on(case: str, tmp_path: Path) -> None:
    theirs, file = trained(case)
    (tmp_path / "theirs.zip").write_bytes(file)
    cls = getattr(sb_dqn, CASES[case][0].removeprefix("Recurrent").removeprefix("Maskable"))
    model = cls.load(tmp_path / "theirs")  # no environment
    obs = observations(theirs.observation_space)
    expected, found = (each.predict(obs, deterministic=True)[0] for each in (theirs, model))
    if expected.dtype.kind == "i":
        assert len(np.unique(expected)) > 1
        np.testing.assert_array_equal(found, expected)
    else:
        # sums in another order: 3e-5 of a range of 4 on some processors
        np.testing.assert_allclose(found, expected, atol=1e-4)
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
        (peer.TD3("MlpPolicy", "Pendulum-v1", buffer_size=10), "a TD3"),
        (peer.DDPG("MlpPolicy", "Pendulum-v1", buffer_size=10), "a DDPG"),  # with the policy of TD3
        (contrib.TRPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8), "a TRPO"),  # with the policy of PPO
        (contrib.ARS("LinearPolicy", "CartPole-v1"), "an ARS"),
    ):
        file = io.BytesIO()
        model.save(file)
        with pytest.raises(
            CheckpointError,
            match=f"must hold a DQN, .* of Stable-Baselines3, got {name}, whose files this library does not read. Load it with",
        ):
            sb_dqn.DQN.load(file)
    with pytest.raises(CheckpointError, match=r"the file must hold a DQN, got a PPO\. Load it with PPO\.load\."):
        sb_dqn.DQN.load(io.BytesIO(trained("PPO")[1]))
    with pytest.raises(CheckpointError, match="the file must hold a PPO, got an A2C"):
        sb_dqn.PPO.load(io.BytesIO(trained("A2C")[1]))


def optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """All optimizers of a model of Stable-Baselines3."""
    owners = [model.policy, getattr(model, "actor", None), getattr(model, "critic", None)]
    found = [getattr(owner, "optimizer", None) for owner in owners] + [getattr(model, "ent_coef_optimizer", None)]
    return [optimizer for optimizer in found if optimizer is not None]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("Recurrent")])
def test_the_recurrent_state_and_values_are_the_same(case: str) -> None:
    theirs, file = trained(case)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models = sb_dqn.PPO.load(io.BytesIO(file)), sb3.RecurrentPPO.load(io.BytesIO(file))
    obs = observations(theirs.observation_space)[:60].reshape(12, 5, *theirs.observation_space.shape)
    states: list[Any] = [None] * 3
    begins = np.ones(5, np.bool_)
    for row in obs:
        actions = []
        for number, model in enumerate((theirs, *models)):
            action, states[number] = model.predict(row, states[number], begins, deterministic=True)
            actions.append(action)
        begins = np.arange(5) == 3
        np.testing.assert_allclose(actions[1:], [actions[0]] * 2, atol=1e-4)
    assert all(before.shape == after.shape for before, after in zip(states[0], states[2], strict=True))
    np.testing.assert_allclose(states[2], states[0], atol=1e-4)
    pair = tuple(torch.zeros(theirs.policy.lstm_actor.num_layers, 5, 12) for _ in range(2))
    first = torch.as_tensor(obs[0])
    expected = theirs.policy.predict_values(first, pair, torch.ones(5)).detach()
    ours = models[0].policy
    inputs = torch.from_numpy(ours.no_action(5)), torch.zeros(5), torch.zeros(5, ours.state_size)
    found, _ = ours.value_step({"obs": first}, None, *inputs)
    torch.testing.assert_close(found.detach(), expected.reshape(-1), atol=1e-3, rtol=1e-4)


def test_a_linear_layer_of_the_value_in_place_of_its_lstm_is_refused() -> None:
    file = io.BytesIO()
    kwargs = {"enable_critic_lstm": False}
    contrib.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", **ON_POLICY, policy_kwargs=kwargs).save(file)
    with pytest.raises(CheckpointError, match="got enable_critic_lstm=False, with a linear layer"):
        sb_dqn.PPO.load(file)


@SLOW
@pytest.mark.parametrize("case", CASES)
def test_the_optimizer_continues(case: str) -> None:
    """Both libraries make one step along the same gradient: the parameters themselves."""
    file = trained(case)[1]
    cls = getattr(sb_dqn, CASES[case][0].removeprefix("Recurrent").removeprefix("Maskable"))
    theirs, ours = type(trained(case)[0]).load(io.BytesIO(file)), cls.load(io.BytesIO(file))
    for optimizer in optimizers(theirs):
        for group in optimizer.param_groups:
            group["lr"] = 0.01
            for parameter in group["params"]:
                parameter.grad = parameter.detach().clone()
        optimizer.step()
    ours.learner.set_learning_rate(0.01)
    ours.learner.apply(ours.learner.flat.clone())
    after = io.BytesIO()
    theirs.save(after)
    expected, untouched = cls.load(after).policy.state_dict(), cls.load(io.BytesIO(file)).policy.state_dict()
    changed = 0
    for name, value in ours.policy.state_dict().items():
        torch.testing.assert_close(value, expected[name], atol=1e-5, rtol=0)
        changed += not value.equal(untouched[name])
    assert changed >= len(optimizers(theirs)[0].state)
    fresh = cls.load(io.BytesIO(file))
    fresh.learner.optimizer.state.clear()
    fresh.learner.set_learning_rate(0.01)
    fresh.learner.apply(fresh.learner.flat.clone())
    assert not all(
        torch.allclose(value, expected[name], atol=1e-5) for name, value in fresh.policy.state_dict().items()
    )


def test_the_next_update_of_dqn_is_theirs() -> None:
    file = trained("DQN")[1]
    theirs, ours = peer.DQN.load(io.BytesIO(file)), sb_dqn.DQN.load(io.BytesIO(file))
    rng = torch.Generator().manual_seed(0)
    obs, following = (torch.randn(8, 4, generator=rng) for _ in range(2))
    action, reward = torch.arange(8) % 2, torch.linspace(-1, 1, 8)
    done = (torch.arange(8) == 5).float()
    theirs.replay_buffer = SimpleNamespace(
        sample=lambda *_, **__: buffers.ReplayBufferSamples(
            obs, action[:, None], following, done[:, None], reward[:, None], None
        )
    )
    theirs.set_logger(logger.configure(None, []))
    theirs.train(gradient_steps=1, batch_size=8)
    ours.learner.set_learning_rate(1e-4)
    place = torch.zeros(2, 8, dtype=torch.int64)
    gradient, *_ = ours.learner.gradient(
        Batch({"obs": obs}, action, reward, 0.99 * (1 - done), {"obs": following}, torch.ones(8), place)
    )
    ours.learner.apply(gradient)
    after = io.BytesIO()
    theirs.save(after)
    expected = sb_dqn.DQN.load(after)
    for name, value in ours.policy.state_dict().items():
        torch.testing.assert_close(value, expected.policy.state_dict()[name], atol=1e-6, rtol=0)


def test_moments_that_do_not_fit_are_named() -> None:
    file = trained("DQN")[1]
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        state = torch.load(io.BytesIO(archive.read("policy.optimizer.pth")), weights_only=True)
    of_others = {**state, "state": {0: {**state["state"][0], "exp_avg": torch.zeros(3)}}}
    fewer = {**state, "param_groups": [{**state["param_groups"][0], "params": [0, 1]}]}
    amsgrad = {**state, "param_groups": [{**state["param_groups"][0], "amsgrad": True}]}
    uneven = {**state, "state": {**state["state"], 0: {**state["state"][0], "step": torch.tensor(1.0)}}}
    for content, message in (
        (of_others, r"member 'policy.optimizer.pth' has no exp_avg in the shape of q_net.q_net.0.weight"),
        (fewer, r"member 'policy.optimizer.pth' has 2 parameters, its networks have 12"),
        (amsgrad, r"an optimizer with one of amsgrad, centered, momentum has further moments"),
        (uneven, r"its parameters have different numbers of steps, \[1.0, 4.0\]"),
        ({"state": {0: {}}}, r"KeyError: 'param_groups'"),
        ({"state": state["state"], "param_groups": [3]}, r"AttributeError"),
    ):
        member = io.BytesIO()
        torch.save(content, member)
        with pytest.warns(
            UserWarning, match=rf"the optimizer of .* is not continued \({message}.*: it starts without moments"
        ):
            model = sb_dqn.DQN.load(changed(file, "policy.optimizer.pth", member.getvalue()))
        assert not model.learner.optimizer.state
    with pytest.warns(
        UserWarning, match=r"member 'policy.optimizer.pth' holds other things than tensors, which are not run"
    ):
        sb_dqn.DQN.load(changed(file, "policy.optimizer.pth", pickle.dumps(Bomb(), protocol=2)))
    assert RUN == []


def test_a_file_of_version_1_8() -> None:
    """Its spaces are of gym, without `start`, and its optimizer was given the target network."""
    file = trained("DQN")[1]
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        data = json.loads(archive.read("data"))
        state = torch.load(io.BytesIO(archive.read("policy.optimizer.pth")), weights_only=True)
    data["action_space"][":type:"] = "<class 'gym.spaces.discrete.Discrete'>"
    del data["action_space"]["start"]
    member = io.BytesIO()
    torch.save({**state, "param_groups": [{**state["param_groups"][0], "params": list(range(12))}]}, member)
    older = changed(
        changed(file, "data", json.dumps(data).encode()).getvalue(), "policy.optimizer.pth", member.getvalue()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sb_dqn.DQN.load(older)
    newer = sb_dqn.DQN.load(io.BytesIO(file))
    assert model.action_space == newer.action_space == spaces.Discrete(2)
    moments, expected = (next(iter(each.learner.optimizer.state.values())) for each in (model, newer))
    assert torch.equal(moments["exp_avg"], expected["exp_avg"])
    assert moments["exp_avg"].any()


OLDER_SCHEDULES = """
def constant_fn(val):
    def func(_):
        return val
    return func

def get_linear_fn(start, end, end_fraction):
    def func(progress_remaining):
        if (1 - progress_remaining) > end_fraction:
            return end
        return start + (1 - progress_remaining) * (end - start) / end_fraction
    return func

def get_schedule_fn(value):
    return lambda progress_remaining: float(value(progress_remaining))

def twice(value):
    return lambda progress_remaining: 2.0 * value(progress_remaining)
"""


@pytest.mark.parametrize(
    ("module", "make", "expected"),
    [
        ("stable_baselines3.common.utils", "constant_fn(0.15)", 0.15),
        ("stable_baselines3.common.utils", "get_schedule_fn(constant_fn(0.15))", 0.15),
        ("stable_baselines3.common.utils", "get_linear_fn(0.3, 0.1, 0.25)", Linear(0.3, 0.1, fraction=0.25)),
        ("stable_baselines3.common.utils", "twice(constant_fn(0.15))", None),
        ("mine", "constant_fn(0.15)", None),
    ],
)
def test_schedules_of_older_versions(module: str, make: str, expected: Any) -> None:
    """They are functions; their numbers are read from the pickle, without running it."""
    names: dict[str, Any] = {"__name__": module}
    exec(OLDER_SCHEDULES, names)
    with zipfile.ZipFile(io.BytesIO(trained("PPO")[1])) as archive:
        data = json.loads(archive.read("data"))
    pickled = base64.b64encode(cloudpickle.dumps(eval(make, names))).decode()
    data["clip_range"] = {":type:": "<class 'function'>", ":serialized:": pickled}
    file = changed(trained("PPO")[1], "data", json.dumps(data).encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model: Any = sb_dqn.PPO.load(file)
    assert model.clip_range == (0.2 if expected is None else expected)
    unread = [warning for warning in caught if "has clip_range as pickles, which are not run" in str(warning.message)]
    assert len(unread) == (expected is None)


def test_a_fixed_temperature() -> None:
    theirs = peer.SAC("MlpPolicy", "Pendulum-v1", ent_coef=0.1, **{**OFF_POLICY, "policy_kwargs": {"net_arch": [8]}})
    file = io.BytesIO()
    theirs.learn(16).save(file)
    model: Any = sb_dqn.SAC.load(file)
    assert model.ent_coef == 0.1
    assert model.learner.optimizer.state


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


@SLOW
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


READ = ("data", "policy.pth", "pytorch_variables.pth", "policy.optimizer.pth")


def without(file: bytes, member: str) -> io.BytesIO:
    """The file without a member."""
    new = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as old, zipfile.ZipFile(new, "w") as archive:
        for name in old.namelist():
            if name != member:
                archive.writestr(name, old.read(name))
    return new


def flipped(file: bytes, member: str) -> io.BytesIO:
    """The file with one bit of a member changed."""
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        entry = archive.getinfo(member)
    damaged = bytearray(file)
    damaged[entry.header_offset + 30 + len(member) + entry.compress_size // 2] ^= 1
    return io.BytesIO(bytes(damaged))


def test_damaged_files() -> None:
    file = trained("DQN")[1]
    for damaged, message in (
        (changed(file, "data", b"{"), "member 'data' is no JSON"),
        (changed(file, "data", b"[]"), "member 'data' must be a dict"),
        (changed(file, "policy.pth", b"nothing"), "member 'policy.pth' must hold tensors only"),
        (without(file, "data"), "member 'data' cannot be read"),
        (without(file, "policy.pth"), "member 'policy.pth' cannot be read"),
        *[(flipped(file, name), f"member '{name}' cannot be read .Bad CRC-32") for name in READ],
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
