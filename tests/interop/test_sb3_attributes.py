"""Attributes and methods that programs of Stable-Baselines3 use besides learning, under `sb_dqn.sb3`."""

from __future__ import annotations

import copy
import io
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common import monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN

import sb_dqn
from sb_dqn.callbacks import BaseCallback
from sb_dqn.errors import CheckpointError, ConfigurationError
from tests.marks import SLOW, a_few

room: Any = import_module("sb_dqn.sb3")
callbacks: Any = import_module("sb_dqn.sb3.common.callbacks")
buffers: Any = import_module("sb_dqn.sb3.common.buffers")
make_vec_env: Any = import_module("sb_dqn.sb3.common.env_util").make_vec_env


def cartpole(lanes: int = 2, **keywords: Any) -> Any:
    env = make_vec_env("CartPole-v1", lanes, seed=0)
    return room.DQN("MlpPolicy", env, **{"buffer_size": 400, "learning_starts": 10, "seed": 0, **keywords})


@SLOW
@pytest.mark.parametrize(("cls", "place"), [("DQN", "q_net"), ("SAC", "actor")])
def test_a_network_predicts_and_has_a_file(cls: str, place: str, tmp_path: Path) -> None:
    env = "CartPole-v1" if cls == "DQN" else "Pendulum-v1"
    model = getattr(room, cls)("MlpPolicy", env, buffer_size=200, learning_starts=10, seed=0).learn(30)
    network = getattr(model, place)
    obs = model.get_env().observation_space.sample()[None].repeat(5, 0)
    expected = model.predict(obs, deterministic=True)[0]
    network.save(tmp_path / "network.pkl")
    loaded = type(network).load(tmp_path / "network.pkl")
    for each in (network, loaded):
        np.testing.assert_array_equal(each.predict(obs, deterministic=True)[0], expected)
    if cls == "DQN":  # a Q-network has no exploration
        model.exploration_rate = 1.0
        np.testing.assert_array_equal(network.predict(obs)[0], expected)
    assert type(copy.deepcopy(network)) is type(network)
    torch.save(network.state_dict(), tmp_path / "state.pt")


@pytest.mark.parametrize("name", ["DQN", "QRDQN", "PPO", "A2C", "SAC"])
def test_state_of_their_policy_loads_under_its_names(name: str, tmp_path: Path) -> None:
    env = "CartPole-v1" if name in ("DQN", "QRDQN", "A2C") else "Pendulum-v1"
    settings: Any = {} if name in ("PPO", "A2C") else {"buffer_size": 200}
    package = import_module("sb3_contrib" if name == "QRDQN" else "stable_baselines3")
    their_model = getattr(package, name)("MlpPolicy", env, seed=1, **settings)
    theirs = their_model.policy
    model = getattr(room, name)("MlpPolicy", env, seed=0, **settings)
    obs = np.stack([model.observation_space.sample() for _ in range(50)])
    before = copy.deepcopy(model.policy.state_dict())
    expected = theirs.predict(obs, deterministic=True)[0]
    model.policy.load_state_dict(theirs.state_dict())
    np.testing.assert_allclose(model.predict(obs, deterministic=True)[0], expected, atol=1e-6)
    model.policy.load_state_dict(before)
    model.set_parameters({"policy": theirs.state_dict()}, exact_match=False)
    np.testing.assert_allclose(model.predict(obs, deterministic=True)[0], expected, atol=1e-6)
    model.policy.load_state_dict(before)
    their_model.save(tmp_path / "model.zip")
    model.set_parameters(tmp_path / "model.zip")
    np.testing.assert_allclose(model.predict(obs, deterministic=True)[0], expected, atol=1e-6)
    other = getattr(room, name)("MlpPolicy", env, seed=0, policy_kwargs={"net_arch": [8]}, **settings)
    kept = copy.deepcopy(other.policy.state_dict())
    with pytest.raises(ValueError, match="parameters must fit the networks|must have the layers of this model"):
        other.set_parameters(tmp_path / "model.zip")
    assert all(torch.equal(value, kept[name]) for name, value in other.policy.state_dict().items())
    if name == "SAC":
        torch.testing.assert_close(model.policy.state_dict()["nets.log_alpha.value"], before["nets.log_alpha.value"])
    first, *_ = theirs.state_dict()
    for part in ({first: theirs.state_dict()[first]}, {"other": torch.zeros(1)}):
        with pytest.raises(RuntimeError, match="state_dict"):
            model.policy.load_state_dict(part)


def test_arrays_of_the_replay_buffer_are_what_the_environment_returned() -> None:
    model = cartpole()
    seen: list[Any] = []
    obs: list[Any] = []

    def note(locals_: dict[str, Any], _: Any) -> bool:
        seen.append([np.copy(locals_[name]) for name in ("actions", "rewards", "dones")])
        ends = [info.get("terminal_observation", new) for info, new in zip(locals_["infos"], locals_["new_obs"])]  # noqa: B905
        obs.append((np.copy(locals_["new_obs"]), np.array(ends)))
        return True

    model.learn(120, callback=note)
    buffer = model.replay_buffer
    actions, rewards, dones = (np.array(column) for column in zip(*seen, strict=True))
    assert buffer.pos == buffer.size() == 60
    assert dones.sum() > 2
    np.testing.assert_array_equal(buffer.actions, actions[..., None])
    np.testing.assert_array_equal(buffer.rewards, rewards)
    np.testing.assert_array_equal(buffer.dones, dones)
    assert not buffer.timeouts.any()
    np.testing.assert_array_equal(buffer.observations[1:], [new for new, _ in obs[:-1]])
    np.testing.assert_array_equal(buffer.next_observations, [ends for _, ends in obs])
    kept = copy.deepcopy(buffer)
    model.learn(600)
    assert kept.pos == kept.size() == 60
    assert model.replay_buffer.full
    np.testing.assert_array_equal(kept.rewards, rewards)
    newest = model.replay_buffer
    assert newest.observations.shape == (newest.pos, 2, 4)
    going_on = newest.dones[:-1] == 0
    np.testing.assert_array_equal(newest.observations[1:][going_on], newest.next_observations[:-1][going_on])
    infos: list[Any] = [[{}, {}]] * kept.pos
    model.replay_buffer.extend(kept.observations, kept.next_observations, kept.actions, kept.rewards, kept.dones, infos)
    for name in ("observations", "next_observations", "actions", "rewards", "dones"):
        np.testing.assert_array_equal(getattr(model.replay_buffer, name)[-60:], getattr(kept, name))


class OnlyObs(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole whose observations are dicts of one entry."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = spaces.Dict({"obs": self.env.observation_space})

    def observation(self, observation: Any) -> Any:
        return {"obs": observation}


policies: Any = import_module("sb_dqn.sb3.ppo.policies")


class ReadsDicts(policies.MultiInputPolicy):  # type: ignore[misc]  # a class at run time
    """Policy that reads an entry of its observations."""

    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        assert obs["obs"].shape[1:] == (4,)
        return super().forward(obs, deterministic)

    def predict_values(self, obs: Any) -> Any:
        assert obs["obs"].shape[1:] == (4,)
        return super().predict_values(obs)


def test_a_dict_with_one_entry_named_obs_stays_a_dict() -> None:
    seen: list[Any] = []
    model = room.DQN("MultiInputPolicy", OnlyObs(), buffer_size=100, learning_starts=10, seed=0)
    model.learn(20, callback=lambda locals_, _: seen.append(locals_["new_obs"]))
    buffer = model.replay_buffer
    sampled = buffer.sample(3)
    found = (*seen, model._last_obs, buffer.observations, buffer.next_observations)
    assert all(obs.keys() == {"obs"} for obs in (*found, sampled.observations, sampled.next_observations))
    rollouts: list[Any] = []

    class Reads(callbacks.BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            rollouts.append(self.model.rollout_buffer.observations)

    room.PPO(ReadsDicts, OnlyObs(), n_steps=16, batch_size=16, n_epochs=1, seed=0).learn(16, callback=Reads())
    assert rollouts[0]["obs"].shape == (16, 1, 4)


def test_a_replay_buffer_is_dropped_and_taken_from_another_model() -> None:
    first, second = cartpole().learn(60), cartpole()
    second.replay_buffer = first.replay_buffer
    np.testing.assert_array_equal(second.replay_buffer.observations, first.replay_buffer.observations)
    second.learn(16)
    assert second.replay_buffer.pos == 40
    assert first.replay_buffer.pos == 32  # in whole train_freq
    second.replay_buffer = None
    assert second.replay_buffer is None
    assert second.learn(16).replay_buffer.pos == 8
    file = io.BytesIO()
    second.save_replay_buffer(file)
    del second.replay_buffer
    with pytest.raises(AttributeError, match="the replay buffer was deleted. Call load_replay_buffer, or learn"):
        second.replay_buffer  # noqa: B018
    file.seek(0)
    second.load_replay_buffer(file)
    loaded: Any = second.replay_buffer
    assert loaded.pos == 8
    with pytest.raises(ConfigurationError, match="replay_buffer must be None or the replay_buffer of another model"):
        second.replay_buffer = 3


def test_a_replay_buffer_is_an_instance_of_their_class() -> None:
    bits: Any = import_module("sb_dqn.sb3.common.envs").BitFlippingEnv
    plain, several = cartpole().replay_buffer, cartpole(n_steps=3).replay_buffer
    goals = room.DQN(
        "MultiInputPolicy", bits(4), buffer_size=100, replay_buffer_class=room.HerReplayBuffer
    ).replay_buffer
    kinds = (buffers.NStepReplayBuffer, buffers.DictReplayBuffer, room.HerReplayBuffer)
    assert all(isinstance(buffer, buffers.ReplayBuffer) for buffer in (plain, several, goals))
    found = [[isinstance(buffer, kind) for kind in kinds] for buffer in (plain, several, goals)]
    assert found == [[False, False, False], [True, False, False], [False, True, True]]
    assert (several.n_steps, several.gamma) == (3, 0.99)


def test_arguments_that_are_out_of_range_raise_either_of_their_errors() -> None:
    for kind in (AssertionError, ValueError):
        with pytest.raises(kind, match="clip_range_vf must be a number > 0, got -0.2"):
            room.PPO("MlpPolicy", "CartPole-v1", clip_range_vf=-0.2)
    model = room.A2C("MlpPolicy", "CartPole-v1")
    parameters = model.get_parameters()
    parameters["policy"].popitem()
    for error in (RuntimeError, ValueError):
        with pytest.raises(error):
            model.set_parameters(parameters)


def test_schedules_and_temperatures_are_read_as_theirs() -> None:
    utils: Any = import_module("sb_dqn.sb3.common.utils")
    fixed = room.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16)
    assert isinstance(fixed.clip_range, utils.FloatSchedule)
    assert (fixed.clip_range.value_schedule.val, fixed.clip_range_vf) == (0.2, None)
    falling = room.PPO("MlpPolicy", "CartPole-v1", clip_range=lambda progress: 0.4 * progress, clip_range_vf=0.1)
    assert falling.clip_range(0.5) == pytest.approx(0.2)
    assert falling.clip_range_vf(0.5) == 0.1
    assert fixed.policy.net_arch == {"pi": [64, 64], "vf": [64, 64]}
    small = {"buffer_size": 50, "policy_kwargs": {"net_arch": [8]}}
    sac = room.SAC("MlpPolicy", "Pendulum-v1", ent_coef=0.25, **small)
    assert sac.log_ent_coef is None
    assert float(sac.ent_coef_tensor) == pytest.approx(0.25)
    learned = room.SAC("MlpPolicy", "Pendulum-v1", ent_coef="auto_0.5", **small)
    assert float(learned.log_ent_coef.detach().exp()) == pytest.approx(0.5)


def test_what_has_no_effect_is_said() -> None:
    with pytest.warns(UserWarning, match="The number of environments used is greater than target_update_interval"):
        model = cartpole(3, target_update_interval=2)
    policy = model.policy
    optimize: Any = torch._dynamo.optimize("eager")
    compiled = torch._dynamo.OptimizedModule(policy, optimize)  # as torch.compile returns it
    with pytest.warns(UserWarning, match=r"torch.compile\(model.policy\) has no effect"):
        model.policy = compiled
    assert model.policy is policy
    with pytest.raises(ConfigurationError, match="policy of a model cannot be assigned"):
        model.policy = copy.copy(policy)
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="device='cuda' is not available, the CPU is used"):
            assert cartpole(device="cuda").device.type == "cpu"
    for wrong in ("gpu", 3.5):
        with pytest.raises(ConfigurationError, match="device must be"):
            cartpole(device=wrong)


@SLOW
def test_a_model_learns_from_demonstrations_without_its_environment() -> None:
    model = room.SAC("MlpPolicy", "Pendulum-v1", buffer_size=200, seed=0, tau=0.0, policy_kwargs={"net_arch": [8]})
    with pytest.raises(ConfigurationError, match="the replay buffer must have transitions for train, got none"):
        model.train(gradient_steps=1)
    rng = np.random.default_rng(0)
    for _ in range(40):
        obs, after = rng.normal(size=(2, 1, 3)).astype(np.float32)
        model.replay_buffer.add(obs, after, rng.uniform(-1, 1, (1, 1)), [1.0], [True], [{}])
    before, target = (list(map(torch.clone, net.parameters())) for net in (model.critic, model.critic_target))
    model.train(gradient_steps=200, batch_size=16)
    assert (model._n_updates, model.batch_size, model.num_timesteps) == (200, 256, 0)
    assert not any(torch.equal(*pair) for pair in zip(before, model.critic.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in zip(target, model.critic_target.parameters(), strict=True))  # tau is 0
    batch = model.replay_buffer.sample(32)
    with torch.no_grad():
        assert float(model.critic(batch.observations, batch.actions)[0].mean()) > 0.2  # towards the reward of 1
    model.lr_schedule = lambda progress: 0.0
    model.tau = 0.5
    before = list(map(torch.clone, model.critic.parameters()))
    model.train(gradient_steps=1)
    assert all(torch.equal(*pair) for pair in zip(before, model.critic.parameters(), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(target, model.critic_target.parameters(), strict=True))
    with pytest.raises(ConfigurationError, match="train must be called between two learns of a model with a replay"):
        room.A2C("MlpPolicy", "CartPole-v1").train(1)


def test_transitions_are_collected_without_updates() -> None:
    model = cartpole(gradient_steps=0)
    before = model.learner.flat.clone()
    model.learn(64)
    assert torch.equal(model.learner.flat, before)
    assert (model._n_updates, model.replay_buffer.pos) == (0, 32)
    model.train(gradient_steps=3)
    assert not torch.equal(model.learner.flat, before)
    assert model._n_updates == 3


@SLOW
def test_a_program_that_only_acts_loads_schedules_of_zero(tmp_path: Path) -> None:
    model = room.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, seed=0).learn(16)
    model.save(tmp_path / "model")
    zero = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    loaded = room.PPO.load(tmp_path / "model", env=model.get_env(), custom_objects=zero)
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    np.testing.assert_array_equal(*(each.predict(obs, deterministic=True)[0] for each in (model, loaded)))
    before = loaded.learner.flat.clone()
    loaded.learn(16)
    assert torch.equal(loaded.learner.flat, before)
    again = room.PPO.load(tmp_path / "model", custom_objects={"learning_rate": 1e-5, "clip_range": lambda _: 0.3})
    assert (again.learning_rate, again.clip_range(1.0)) == (1e-5, pytest.approx(0.3))


@SLOW
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"n_lstm_layers": 2, "lstm_hidden_size": 8, "lstm_kwargs": {"dropout": 0.5}},
        {"shared_lstm": True, "enable_critic_lstm": False},
        {"enable_critic_lstm": False},
    ],
)
def test_the_state_of_a_recurrent_policy_is_a_pair(kwargs: dict[str, Any]) -> None:
    env = make_vec_env("CartPole-v1", 3, seed=0)
    model = room.RecurrentPPO("MlpLstmPolicy", env, n_steps=8, batch_size=8, seed=0, policy_kwargs=kwargs).learn(24)
    layers, units = kwargs.get("n_lstm_layers", 1), kwargs.get("lstm_hidden_size", 256)
    native: Any = import_module("sb_dqn.algorithms.ppo").PPO.predict
    obs, state, ours, starts = env.reset(), None, None, np.ones(3, bool)
    for _ in range(30):
        action, state = model.predict(obs, state, starts, deterministic=True)
        expected, ours = native(model, obs, ours, starts, True)
        np.testing.assert_array_equal(action, expected)
        assert [part.shape for part in state] == [(layers, 3, units)] * 2
        memory = ours["memory"].reshape(3, -1, units)
        np.testing.assert_array_equal(state[1], memory[:, layers : 2 * layers].transpose(1, 0, 2))
        obs, _, starts, _ = env.step(action)
    zeros = np.zeros((layers, 3, units), np.float32)
    fresh = model.predict(obs, (zeros, zeros), np.zeros(3, bool), deterministic=True)[0]
    np.testing.assert_array_equal(fresh, model.predict(obs, deterministic=True)[0])


def test_time_limits_that_memory_made_terminations_are_none() -> None:
    without: dict[str, Any] = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    with pytest.warns(
        UserWarning, match="handle_timeout_termination=False has no effect with optimize_memory_usage=True"
    ):
        cartpole(**without)
    with pytest.raises(ConfigurationError, match="handle_timeout_termination must be True for DQN"):
        cartpole(**{**without, "optimize_memory_usage": False})


def test_the_device_of_a_model_may_be_set_to_what_it_is() -> None:
    model = cartpole(device="cpu")
    for same in ("cpu", torch.device("cpu"), "auto"):
        model.device = same
    with pytest.raises(ConfigurationError, match="device='meta' cannot be assigned"):
        model.device = "meta"
    assert model.device == torch.device("cpu")


def test_a_gymnasium_vector_environment_in_the_adapter_of_supersuit() -> None:
    wrapper: Any = import_module("sb_dqn.sb3.common.vec_env").VecEnvWrapper

    class SB3VecEnvWrapper(wrapper):  # type: ignore[misc]  # a class at run time; of SuperSuit's name
        def __init__(self, venv: Any) -> None:
            self.venv, self.num_envs = venv, venv.num_envs
            self.observation_space, self.action_space = venv.single_observation_space, venv.single_action_space
            self.render_mode = None
            self.reset_infos: list[Any] = []

        def reset(self) -> Any:
            return self.venv.reset()[0]

        def step_async(self, actions: Any) -> None:
            self.actions = actions

        def step_wait(self) -> Any:
            obs, rewards, terminated, truncated, infos = self.venv.step(self.actions)
            dones = terminated | truncated
            final = infos.get("final_obs", obs)
            return (
                obs,
                rewards,
                dones,
                [{"terminal_observation": final[i]} if dones[i] else {} for i in range(len(dones))],
            )

        def getattr_depth_check(self, name: str, already_found: bool) -> None:
            return None

        def getattr_recursive(self, name: str) -> Any:
            raise AttributeError(name)

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            return [False] * self.num_envs

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(self.venv, attr_name)] * self.num_envs

    same_step = gymnasium.vector.AutoresetMode.SAME_STEP
    env = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": same_step})
    model = room.PPO("MlpPolicy", SB3VecEnvWrapper(env), n_steps=32, batch_size=32).learn(1024)
    assert (model.num_timesteps, model._episode_num >= 2) == (1024, True)  # an episode has at most 500 steps


def test_a_replay_buffer_survives_its_own_assignment_and_one_that_does_not_fit() -> None:
    model = cartpole().learn(100)
    kept, size = model.replay_buffer, model.replay_buffer.size()
    model.replay_buffer = kept
    assert model.replay_buffer.size() == size
    del model.replay_buffer
    model.replay_buffer = kept
    assert model.replay_buffer.size() == size
    other = room.DQN("MlpPolicy", "Acrobot-v1", buffer_size=400, learning_starts=10).learn(20)
    with pytest.raises(CheckpointError, match="rows of"):
        model.replay_buffer = other.replay_buffer
    assert model.replay_buffer.size() == size


class Images(gymnasium.Env[Any, Any]):
    """An image, alone or in a Dict; the image has its channels last."""

    image = spaces.Box(0, 255, (40, 40, 3), np.uint8)

    def __init__(self, box_actions: bool, mixed: bool = False) -> None:
        self.action_space = spaces.Box(-1, 1, (2,)) if box_actions else spaces.Discrete(3)
        parts: dict[str, spaces.Space[Any]] = {"a": spaces.Box(-1, 1, (3,)), "img": self.image}
        self.observation_space = spaces.Dict(parts) if mixed else self.image

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, False, True, {}


class Small(BaseFeaturesExtractor):
    """Features of an image that are no `NatureCNN`."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 8)
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 2, 8, 8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(50, 8)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        return out


NETWORKS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "dict": ("MultiInputPolicy", {}, True),
    "own": ("CnnPolicy", {"features_extractor_class": Small}, False),
    "nature": ("CnnPolicy", {"features_extractor_class": NatureCNN}, False),
}


@pytest.mark.parametrize("name", ["DQN", "PPO", "A2C", "SAC"])
@pytest.mark.parametrize("network", a_few(NETWORKS, "dict", "own"))
def test_networks_of_images_are_theirs_and_load_from_their_files(name: str, network: str, tmp_path: Path) -> None:
    policy, kwargs, mixed = NETWORKS[network]
    kwargs = {} if name == "SAC" and network == "own" else kwargs
    settings: dict[str, Any] = {"seed": 0}
    settings |= {"buffer_size": 20} if name in ("DQN", "SAC") else {"n_steps": 8}
    settings |= {"batch_size": 8} if name == "PPO" else {}
    theirs = getattr(stable_baselines3, name)(
        policy, Images(name == "SAC", mixed), policy_kwargs=dict(kwargs), **settings
    )
    theirs.save(tmp_path / "theirs.zip")
    obs = Images(name == "SAC", mixed).reset(seed=0)[0]
    expected = theirs.predict(obs, deterministic=True)[0]
    for package in (room, sb_dqn):
        env = Images(name == "SAC", mixed)
        loaded = getattr(package, name).load(tmp_path / "theirs.zip", env=env, policy_kwargs=dict(kwargs))
        np.testing.assert_allclose(loaded.predict(obs, deterministic=True)[0], expected, atol=1e-4)
    ours = getattr(room, name)(policy, Images(name == "SAC", mixed), policy_kwargs=dict(kwargs), **settings)
    numbers = sum(each.numel() for each in ours.policy.parameters())
    assert numbers - (name == "SAC") == sum(each.numel() for each in theirs.policy.parameters())  # the temperature


def test_a_resumed_learn_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    class Save(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 20:
                self.model.after_tick(lambda: self.model.save(str(tmp_path / "full.zip"), full=True))
            return True

    with pytest.warns(UserWarning, match="the full checkpoint is without the environment's state"):
        room.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, seed=0).learn(60, Save())
    resumed = room.PPO.load(tmp_path / "full.zip", "CartPole-v1").resume(Save())
    assert (resumed.num_timesteps, resumed._total_timesteps) == (64, 64)


def test_lost_lives_are_no_episodes_from_the_first_step_on() -> None:
    class Lives(gymnasium.Env[Any, Any]):
        observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.t = 0
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            self.t += 1
            return np.zeros(1, np.float32), 1.0, self.t >= 100, False, {}

    game = Lives()

    class LostLives(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **kwargs: Any) -> Any:
            return self.env.reset(**kwargs) if game.t in (0, 100) else (np.zeros(1, np.float32), {})

        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            return obs, reward, terminated or game.t % 10 == 0, truncated, info

    game.t = 0
    model = room.DQN("MlpPolicy", LostLives(monitor.Monitor(game)), buffer_size=500, learning_starts=1_000)
    model.learn(60)
    assert not model.ep_info_buffer
    model.learn(60, reset_num_timesteps=False)
    assert [info["r"] for info in model.ep_info_buffer] == [100.0]


def test_steps_between_updates_count_the_environments_of_the_file(tmp_path: Path) -> None:
    cartpole(4).save(tmp_path / "model.zip")
    model = room.DQN.load(tmp_path / "model.zip", train_freq=8)
    assert model.train_freq == 32
