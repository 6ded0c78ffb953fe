"""Names and behaviors of Stable-Baselines3's interface under `sb_dqn.sb3`: each works, or is refused with a reason."""

from __future__ import annotations

import copy
import inspect
import io
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import sb_dqn
from sb_dqn.errors import CheckpointError, ConfigurationError
from tests.marks import SLOW

pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
pytest.importorskip("sb3_contrib", reason="its second package, installed by the test extra")
room: Any = import_module("sb_dqn.sb3")
make_vec_env: Any = import_module("sb_dqn.sb3.common.env_util").make_vec_env

OURS = ["A2C", "DQN", "PPO", "QRDQN", "SAC", "MaskablePPO", "RecurrentPPO"]
THEIRS = ["ARS", "DDPG", "TD3", "TQC", "TRPO", "CrossQ", "HerReplayBuffer"]
MODULES = {
    "common.atari_wrappers": "AtariWrapper ClipRewardEnv EpisodicLifeEnv FireResetEnv MaxAndSkipEnv NoopResetEnv WarpFrame",
    "common.base_class": "BaseAlgorithm",
    "common.buffers": "BaseBuffer DictReplayBuffer DictRolloutBuffer NStepReplayBuffer ReplayBuffer RolloutBuffer",
    "common.callbacks": "BaseCallback CallbackList CheckpointCallback ConvertCallback EvalCallback EventCallback EveryNTimesteps "
    "LogEveryNTimesteps ProgressBarCallback StopTrainingOnMaxEpisodes StopTrainingOnNoModelImprovement "
    "StopTrainingOnRewardThreshold",
    "common.distributions": "CategoricalDistribution DiagGaussianDistribution",
    "common.env_checker": "check_env",
    "common.env_util": "is_wrapped make_atari_env make_vec_env unwrap_wrapper",
    "common.envs": "FakeImageEnv IdentityEnv InvalidActionEnvDiscrete",
    "common.evaluation": "evaluate_policy",
    "common.logger": "CSVOutputFormat Figure HParam HumanOutputFormat Image JSONOutputFormat Logger TensorBoardOutputFormat Video "
    "configure",
    "common.maskable.callbacks": "MaskableEvalCallback",
    "common.maskable.utils": "get_action_masks is_masking_supported",
    "common.monitor": "Monitor ResultsWriter get_monitor_files load_results",
    "common.noise": "NormalActionNoise OrnsteinUhlenbeckActionNoise VectorizedActionNoise",
    "common.off_policy_algorithm": "OffPolicyAlgorithm",
    "common.on_policy_algorithm": "OnPolicyAlgorithm",
    "common.policies": "ActorCriticPolicy BasePolicy",
    "common.preprocessing": "get_flattened_obs_dim is_image_space maybe_transpose preprocess_obs",
    "common.results_plotter": "plot_results ts2xy",
    "common.running_mean_std": "RunningMeanStd",
    "common.save_util": "load_from_pkl save_to_pkl",
    "common.sb2_compat.rmsprop_tf_like": "RMSpropTFLike",
    "common.torch_layers": "BaseFeaturesExtractor CombinedExtractor FlattenExtractor MlpExtractor NatureCNN create_mlp",
    "common.type_aliases": "GymEnv ReplayBufferSamples Schedule",
    "common.utils": "LinearSchedule explained_variance get_device get_system_info obs_as_tensor polyak_update set_random_seed",
    "common.vec_env": "DummyVecEnv VecCheckNan VecEnv VecEnvWrapper VecExtractDictObs VecFrameStack VecMonitor "
    "VecNormalize VecTransposeImage VecVideoRecorder sync_envs_normalization unwrap_vec_normalize",
    "common.vec_env.stacked_observations": "StackedObservations",
    "common.wrappers": "ActionMasker TimeFeatureWrapper",
    "her": "HerReplayBuffer",
    "her.goal_selection_strategy": "GoalSelectionStrategy",
}


@pytest.mark.parametrize("module", MODULES)
def test_modules(module: str) -> None:
    ours = import_module(f"sb_dqn.sb3.{module}")
    assert ours.__name__ == f"sb_dqn.sb3.{module}"
    for name in MODULES[module].split():
        assert getattr(ours, name).__module__.startswith(("stable_baselines3", "sb3_contrib", "typing", "collections"))


def test_the_algorithms_are_ours_wherever_they_are_imported_from() -> None:
    for name in OURS:
        assert issubclass(getattr(room, name), getattr(sb_dqn, name, sb_dqn.PPO))
    places = {
        "a2c": "A2C", "dqn": "DQN", "dqn.dqn": "DQN", "ppo": "PPO", "ppo.ppo": "PPO", "qrdqn": "QRDQN", "sac": "SAC",
        "ppo_mask": "MaskablePPO", "ppo_recurrent": "RecurrentPPO",
    }  # fmt: skip
    for module, name in places.items():
        assert getattr(import_module(f"sb_dqn.sb3.{module}"), name) is getattr(room, name)
    for module in ("common.vec_env", "common.vec_env.subproc_vec_env", "common.env_util"):
        assert import_module(f"sb_dqn.sb3.{module}").SubprocVecEnv is room.SubprocVecEnv
    for name in THEIRS:
        assert getattr(room, name).__module__.startswith(("stable_baselines3", "sb3_contrib"))
    assert room.common.vec_env.DummyVecEnv is import_module("stable_baselines3.common.vec_env").DummyVecEnv
    for wrong in ("sb_dqn.sb3.nothing", "sb_dqn.sb3.common.nothing"):
        with pytest.raises(ModuleNotFoundError, match=wrong):
            import_module(wrong)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        room.nothing  # noqa: B018


@pytest.mark.parametrize("name", OURS)
def test_signatures_begin_with_theirs(name: str) -> None:
    cls = getattr(room, name)
    theirs = inspect.signature(cls.theirs).parameters
    ours = inspect.signature(cls).parameters
    assert list(ours)[: len(theirs)] == list(theirs)
    assert all(ours[key].default == theirs[key].default for key in theirs)
    base = import_module("sb_dqn.sb3.common.base_class").BaseAlgorithm
    assert issubclass(cls, base)


def test_without_their_packages_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['stable_baselines3'] = None\n"
        "try:\n    import sb_dqn.sb3\nexcept ModuleNotFoundError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'sb_dqn[sb3]'" in result.stdout


def cartpole(cls: str = "DQN", **keywords: Any) -> Any:
    smaller = {"DQN": {"buffer_size": 200, "learning_starts": 10}, "PPO": {"n_steps": 16, "batch_size": 16}}
    env = keywords.pop("env", "CartPole-v1")
    return getattr(room, cls)("MlpPolicy", env, seed=0, **{**smaller.get(cls, {}), **keywords})


NOISES: Any = import_module("sb_dqn.sb3.common.noise")
BUFFERS: Any = import_module("sb_dqn.sb3.common.buffers")
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("DQN", {"optimize_memory_usage": True}),
    ("DQN", {"replay_buffer_class": None, "replay_buffer_kwargs": {}}),
    (
        "DQN",
        {"replay_buffer_class": BUFFERS.ReplayBuffer, "replay_buffer_kwargs": {"handle_timeout_termination": True}},
    ),
    ("SAC", {"env": "Pendulum-v1", "replay_buffer_kwargs": {"handle_timeout_termination": True}}),
    ("DQN", {"policy": import_module("sb_dqn.sb3.dqn").MlpPolicy}),
    ("DQN", {"tau": 0.0}),
    ("DQN", {"buffer_size": 1}),
    ("DQN", {"learning_rate": import_module("sb_dqn.sb3.common.utils").LinearSchedule(1e-3, 1e-4, 0.5)}),
    ("PPO", {"use_sde": False, "sde_sample_freq": 4, "rollout_buffer_kwargs": None, "_init_setup_model": True}),
    ("PPO", {"policy_kwargs": {"use_sde": False, "full_std": True, "use_expln": False}}),
    ("PPO", {"clip_range": lambda progress: 0.2 * progress, "target_kl": None}),
    ("PPO", {"env": "Pendulum-v1", "use_sde": True, "sde_sample_freq": 4, "policy_kwargs": {"use_expln": True}}),
    ("SAC", {"env": "Pendulum-v1", "use_sde": True, "use_sde_at_warmup": True, "policy_kwargs": {"clip_mean": 1.0}}),
    ("SAC", {"env": "Pendulum-v1", "action_noise": NOISES.NormalActionNoise(np.zeros(1), np.ones(1))}),
    ("SAC", {"env": "Pendulum-v1", "action_noise": NOISES.OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))}),
    ("SAC", {"env": "Pendulum-v1", "ent_coef": 0.2, "target_entropy": -1.0}),
    ("SAC", {"env": "Pendulum-v1", "use_sde": True, "train_freq": (1, "episode")}),
    ("DQN", {"double_q": True, "prioritized_replay": True}),  # of this library
]
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("PPO", {"use_sde": True}, "use_sde must be False for discrete actions, got True"),
    ("DQN", {"replay_buffer_kwargs": {"n_sampled_goal": 4}}, "hindsight experience replay is a setting"),
    (
        "DQN",
        {"replay_buffer_class": room.HerReplayBuffer, "replay_buffer_kwargs": {"handle_timeout_termination": False}},
        "a time limit is no termination here. Leave it out, or wrap the environment so that step returns terminated=True",
    ),
    (
        "DQN",
        {"replay_buffer_class": BUFFERS.NStepReplayBuffer, "replay_buffer_kwargs": {"n_steps": 2, "gamma": 0.5}},
        "gamma of replay_buffer_kwargs must be that of the model for DQN, 0.99, got",
    ),
    ("DQN", {"replay_buffer_kwargs": {"optimize_memory_usage": True}}, "replay_buffer_kwargs must be None for DQN"),
    ("DQN", {"_init_setup_model": False}, "_init_setup_model must be True for DQN, got False: a model is always whole"),
    ("PPO", {"rollout_buffer_kwargs": {"a": 1}}, "rollout_buffer_kwargs must be None for PPO"),
    ("PPO", {"policy_kwargs": {"use_sde": True}}, r"policy_kwargs\['use_sde'\] must be False for PPO"),
    ("DQN", {"lerning_rate": 1}, "got 'lerning_rate'. Use one of them. Did you mean 'learning_rate'"),
]


@SLOW
@pytest.mark.parametrize(("cls", "keywords"), ACCEPTED, ids=lambda value: str(value)[:40])
def test_accepted_keywords(cls: str, keywords: dict[str, Any]) -> None:
    policy = keywords.get("policy", "MlpPolicy")
    env = keywords.get("env", "CartPole-v1")
    rest = {name: value for name, value in keywords.items() if name not in ("policy", "env")}
    smaller = {} if cls == "PPO" else {"buffer_size": 100, "learning_starts": 4}
    model = getattr(room, cls)(policy, env, **{**smaller, "n_steps" if cls == "PPO" else "seed": 16, **rest})
    assert model.learn(16).num_timesteps == 16


@pytest.mark.parametrize(("cls", "keywords", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_refused_keywords(cls: str, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cartpole(cls, **keywords)


@pytest.mark.parametrize(("kwargs", "n_steps"), [(None, 3), ({}, 3), ({"n_steps": 5, "gamma": 0.9}, 5)])
def test_their_buffer_of_n_steps_is_ours(kwargs: dict[str, Any] | None, n_steps: int) -> None:
    model = cartpole(
        replay_buffer_class=BUFFERS.NStepReplayBuffer, replay_buffer_kwargs=kwargs, gamma=0.9, n_steps=2
    ).learn(32)
    assert (model.arguments["n_steps"], model.replay.view.horizon.current) == (n_steps, (n_steps, 0.9))


@SLOW
def test_their_hindsight_is_ours() -> None:
    bits: Any = import_module("sb_dqn.sb3.common.envs").BitFlippingEnv
    final = import_module("sb_dqn.sb3.her.goal_selection_strategy").GoalSelectionStrategy.FINAL
    common: dict[str, Any] = {
        "replay_buffer_class": room.HerReplayBuffer, "buffer_size": 400, "learning_starts": 20, "seed": 0, "device": "cpu",
    }  # fmt: skip
    settings = {"n_sampled_goal": 2, "goal_selection_strategy": final, "copy_info_dict": True}
    with pytest.warns(UserWarning, match="copy_info_dict=True has no effect"):
        model = room.DQN("MultiInputPolicy", bits(4), replay_buffer_kwargs=settings, **common).learn(60)
    assert model.arguments["hindsight"] == {"n_sampled_goal": 2, "goal_selection_strategy": "final"}
    assert room.SAC("MultiInputPolicy", bits(4, continuous=True), **common).learn(60).num_timesteps == 60
    images = {"n_bits": 4, "image_obs_space": True}  # whose reward needs a reset first
    env = make_vec_env(bits, 2, vec_env_cls=room.SubprocVecEnv, env_kwargs=images)
    assert room.DQN("MultiInputPolicy", env, **common).learn(64).num_timesteps == 64
    env.close()


@SLOW
@pytest.mark.parametrize("cls", ["DQN", "PPO"])
def test_a_deep_copy_acts_alike_and_learns_apart(cls: str) -> None:
    model = cartpole(cls).learn(40)
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    twin = copy.deepcopy({"agent": model})["agent"]
    assert type(twin) is type(model)
    assert (twin.num_timesteps, twin._n_updates) == (model.num_timesteps, model._n_updates)
    np.testing.assert_array_equal(twin.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    before = model.policy.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    twin.learning_rate = 1e-2
    twin.learn(64)
    assert twin.get_env() is not model.get_env()
    assert all(value.equal(before[name]) for name, value in model.policy.state_dict().items())
    assert any(not value.equal(before[name]) for name, value in twin.policy.state_dict().items())


def test_refused_values_of_sac_and_policies() -> None:
    own_noise = type("OwnNoise", (NOISES.NormalActionNoise,), {})(np.zeros(1), np.ones(1))
    with pytest.raises(ConfigurationError, match="action_noise must be a NormalActionNoise or"):
        room.SAC("MlpPolicy", "Pendulum-v1", action_noise=own_noise)
    dqn_policy: Any = import_module("sb_dqn.sb3.dqn.policies").DQNPolicy
    with pytest.raises(
        ConfigurationError, match="policy must derive from one of ActorCriticPolicy, .* got Own. Derive"
    ):
        room.PPO(type("Own", (dqn_policy,), {}), "CartPole-v1")
    maskless = room.MaskablePPO("MlpPolicy", make_vec_env("CartPole-v1"), n_steps=16, batch_size=16)
    with pytest.raises(ConfigurationError, match=r"must have a method action_masks\(\)"):
        maskless.learn(16)
    assert maskless.learn(16, use_masking=False).num_timesteps == 16


def test_environments_frequencies_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    env = make_vec_env("CartPole-v1", n_envs=3, seed=0)
    model = cartpole(env=env, train_freq=5, verbose=1)
    assert capsys.readouterr().out.count("train_freq counts steps of all 3 environments at once") == 1
    assert model.get_env() is env
    assert model.train_freq == 15  # env steps
    assert model.learn(90).num_timesteps == 90
    obs = model.get_env().reset()
    actions, state = model.predict(obs, deterministic=True)
    obs, rewards, dones, infos = model.get_env().step(actions)
    assert (obs.shape, rewards.shape, dones.shape, len(infos), state) == ((3, 4), (3,), (3,), 3, None)
    assert cartpole("PPO").learn(20).num_timesteps == 32  # whole rollouts
    single = cartpole(env=gymnasium.make("CartPole-v1"))
    assert single.get_env().env_is_wrapped(import_module("sb_dqn.sb3.common.monitor").Monitor) == [True]
    with pytest.raises(AssertionError, match="the number of environments must be 3"):
        model.set_env(make_vec_env("CartPole-v1"))


@torch.no_grad()
def test_networks_take_tensors() -> None:
    model = cartpole(policy_kwargs={"net_arch": [8]})
    tensor, vectorized = model.policy.obs_to_tensor(np.zeros(4, np.float32))
    assert (tuple(tensor.shape), vectorized) == ((1, 4), False)
    values = model.q_net(tensor)
    assert values.equal(model.policy.q_net(tensor))
    assert values.equal(model.policy.q_net({"obs": tensor}).q)
    assert model.q_net_target(tensor).shape == (1, 2)
    assert (
        int(model.policy(tensor))
        == int(values.argmax())
        == int(model.policy.predict(np.zeros(4), deterministic=True)[0])
    )
    assert model.policy.device == model.device
    assert model.policy.optimizer is model.learner.optimizer
    model.policy.set_training_mode(False)
    ppo = cartpole("PPO")
    actions, values, log_prob = ppo.policy(tensor)
    again, log_prob_again, entropy = ppo.policy.evaluate_actions(tensor, actions)
    assert values.equal(ppo.policy.predict_values(tensor))
    assert values.equal(again)
    torch.testing.assert_close(log_prob, log_prob_again)
    assert 0 < float(entropy) <= np.log(2) + 1e-6
    box = room.PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8)
    obs, _ = box.policy.obs_to_tensor(np.zeros((5, 3), np.float32))
    assert box.policy.evaluate_actions(obs, torch.zeros(5, 1))[1].shape == (5,)
    assert box.policy.features_extractor is box.policy.vf_features_extractor is box.policy.net.features.extractor
    assert model.q_net.features_extractor is model.q_net.features.extractor
    sac = room.SAC("MlpPolicy", "Pendulum-v1", buffer_size=50)
    assert sac.actor.features_extractor is not sac.critic.features_extractor
    assert sac.critic_target is sac.policy.critics_target
    assert box.policy.scale_action(np.array([2.0])) == 1.0


def test_the_replay_buffer_has_their_names() -> None:
    env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    model = cartpole(env=env, n_steps=1).learn(60)
    buffer = model.replay_buffer
    batch = buffer.sample(7)
    shapes = {name: tuple(getattr(batch, name).shape) for name in batch._fields}
    assert shapes == {
        "observations": (7, 4), "actions": (7, 1), "next_observations": (7, 4), "dones": (7, 1), "rewards": (7, 1),
        "discounts": (7, 1),
    }  # fmt: skip
    assert buffer.n_envs == 2
    assert buffer.size() == 32  # final observations have rows of their own, which count nothing
    assert buffer.replay.size() > 60
    assert not buffer.full
    assert set(buffer.sample(200).dones.unique().tolist()) == {0.0, 1.0}
    assert buffer.sample(200).discounts.unique().tolist() == pytest.approx([0.99])
    assert room.DQN.load(saved(model)).replay_buffer is None


def test_transitions_of_demonstrations() -> None:
    """Transitions that `add` stores come back from `sample`, and learning goes on after them."""
    env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    model = cartpole(env=env, n_steps=1)
    rng = np.random.default_rng(0)
    stored = {}
    obs = rng.normal(size=(2, 4)).astype(np.float32)
    for step in range(12):
        following = rng.normal(size=(2, 4)).astype(np.float32)
        done = np.array([step == 5, step == 7])
        infos = [{"TimeLimit.truncated": bool(done[0])}, {}]
        rewards = np.array([step, -step], np.float32)
        model.replay_buffer.add(obs, following, np.array([step % 2, 1]), rewards, done, infos)
        for lane in range(2):
            action = step % 2 if lane == 0 else 1
            stored[rewards[lane], action] = (obs[lane], following[lane], float(done[lane] and lane == 1))
        is_new = done | np.array([False, step == 9])  # lane 1 goes on elsewhere after step 9
        obs = np.where(is_new[:, None], rng.normal(size=(2, 4)).astype(np.float32), following)
    assert model.replay.size() == 2 * 13 + 3  # a row for each step, and for each new beginning
    batch = model.replay_buffer.sample(400)
    seen = set()
    for number in range(400):
        key = float(batch.rewards[number]), int(batch.actions[number])
        expected = stored[key]
        np.testing.assert_array_equal(batch.observations[number], expected[0])
        np.testing.assert_array_equal(batch.next_observations[number], expected[1])
        assert float(batch.dones[number]) == expected[2]
        seen.add(key)
    assert len(seen) == len(stored) == 24
    assert model.learn(40).num_timesteps == 40
    during: list[str] = []

    def add(*_: Any) -> bool:
        with pytest.raises(ConfigurationError, match=r"replay_buffer.add must be called between two learns") as caught:
            model.replay_buffer.add(obs, obs, np.zeros(2, int), np.zeros(2), np.zeros(2), [{}, {}])
        during.append(str(caught.value))
        return False

    model.learn(10, callback=add)
    assert during


def test_actions_of_a_box_are_scaled_in_the_buffer() -> None:
    model = room.SAC("MlpPolicy", "Pendulum-v1", buffer_size=50, n_steps=1)
    action = model.policy.scale_action(np.array([[-1.5]], np.float32))
    model.replay_buffer.add(np.zeros((1, 3)), np.ones((1, 3)), action, [1.0], [True], [{}])
    assert float(model.replay.sample(1).action) == -1.5  # in the units of the environment
    assert float(model.replay_buffer.sample(1).actions) == -0.75


def test_sequences_take_no_transitions() -> None:
    recurrent = room.DQN("MlpLstmPolicy", "CartPole-v1", buffer_size=500, sequences={"batch_T": 16, "warmup_T": 0})
    with pytest.raises(ConfigurationError, match=r"must be single transitions for replay_buffer.add, got sequences"):
        recurrent.replay_buffer.add(np.zeros((1, 4)), np.zeros((1, 4)), [0], [0.0], [False], [{}])


def test_the_rollout_has_their_arrays() -> None:
    """At the end of a rollout its arrays satisfy the recursion of the advantages, and are those that the environment returned."""
    env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    model = room.PPO("MlpPolicy", env, n_steps=24, batch_size=48, n_epochs=1, gamma=0.9, gae_lambda=0.8, seed=0)
    steps: list[Any] = []
    ends: list[int] = []

    class Reads(import_module("sb_dqn.sb3.common.callbacks").BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            steps.append([np.copy(self.locals[name]) for name in ("actions", "rewards", "dones")])
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer
            assert buffer.full
            assert (buffer.size(), buffer.buffer_size, buffer.n_envs) == (24, 24, 2)
            assert buffer.observations.shape == (24, 2, 4)
            actions, rewards, dones = (np.array(each) for each in zip(*steps[-23:], strict=True))
            np.testing.assert_array_equal(
                buffer.actions[:23, :, 0], actions
            )  # the callback of the last step comes later
            np.testing.assert_array_equal(buffer.rewards[:23], rewards)
            np.testing.assert_array_equal(buffer.episode_starts[1:], dones)
            values, starts = buffer.values, buffer.episode_starts
            going_on = 1 - starts[1:]
            delta = buffer.rewards[:-1] + 0.9 * values[1:] * going_on - values[:-1]
            expected = delta + 0.9 * 0.8 * buffer.advantages[1:] * going_on
            np.testing.assert_allclose(buffer.advantages[:-1], expected, atol=1e-5)
            np.testing.assert_allclose(buffer.returns - values, buffer.advantages, atol=1e-6)
            assert (buffer.log_probs < 0).all()
            ends.append(int(starts.sum()))

    model.learn(96, callback=Reads())
    assert len(ends) == 2
    assert sum(ends) > 4  # episodes ended within the rollouts
    with pytest.raises(
        AttributeError, match="rollout_buffer has no attribute 'get': the training loop fills and reads"
    ):
        model.rollout_buffer.get(8)
    fresh = room.A2C("MlpPolicy", "CartPole-v1")
    with pytest.raises(ConfigurationError, match="must be read when the rollout is full, got 0 of 5 steps"):
        fresh.rollout_buffer.rewards  # noqa: B018
    with pytest.raises(AttributeError, match="PPO has no attribute 'replay_buffer'"):
        model.replay_buffer  # noqa: B018
    with pytest.raises(AttributeError, match="DQN has no attribute 'rollout_buffer'"):
        cartpole().rollout_buffer  # noqa: B018


def test_parameters_must_be_complete() -> None:
    model = cartpole(policy_kwargs={"net_arch": [8]}).learn(20)
    only = {"policy": {name: value + 1 for name, value in model.get_parameters()["policy"].items()}}
    before = model.get_parameters()["policy"]
    with pytest.raises(ConfigurationError, match="must have all names of .* got none of policy.optimizer. Add them"):
        model.set_parameters(only)
    assert all(value.equal(before[name]) for name, value in model.get_parameters()["policy"].items())
    model.set_parameters(only, exact_match=False)
    assert all(value.equal(only["policy"][name]) for name, value in model.get_parameters()["policy"].items())


@pytest.mark.parametrize("name", ["DQN", "PPO"])
def test_policies_have_files(name: str, tmp_path: Path) -> None:
    model = cartpole(name, policy_kwargs={"net_arch": [8]}).learn(20)
    policy = model.policy
    policy.save(tmp_path / "policy.pkl")
    loaded = type(policy).load(tmp_path / "policy.pkl")
    del model
    obs = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    assert type(loaded) is type(policy)
    for key, value in policy.state_dict().items():
        assert loaded.state_dict()[key].equal(value)
    actions = loaded.predict(obs, deterministic=True)[0]
    np.testing.assert_array_equal(
        actions, getattr(room, name).load(tmp_path / "policy.pkl").predict(obs, deterministic=True)[0]
    )
    other = type(cartpole("PPO" if name == "DQN" else "DQN").policy)
    with pytest.raises(CheckpointError, match="the file must hold a.* got a"):
        other.load(tmp_path / "policy.pkl")


def saved(model: Any) -> Any:
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    return file


def test_attributes_that_programs_read_and_set() -> None:
    model = cartpole(learning_rate=lambda progress: 1e-3 * progress)
    assert model._last_obs is None or model._last_obs.shape == (1, 4)
    model.learn(60)
    assert model._total_timesteps == 60
    assert model._episode_num == len(model.ep_info_buffer)
    assert {"r", "l", "t"} <= model.ep_info_buffer[0].keys()
    assert model.lr_schedule(0.5) == pytest.approx(5e-4)
    assert (model.use_sde, model.action_noise, model.get_vec_normalize_env()) == (False, None, None)
    assert set(model.get_parameters()) == {"policy", "policy.optimizer"}
    model.exploration_rate = 0.7
    assert model.exploration_rate == 0.7
    model.num_timesteps = 5
    assert model.learn(10, reset_num_timesteps=False).num_timesteps == 17  # whole multiples of train_freq
    assert model.logger.name_to_value["train/n_updates"] == model._n_updates
    ours = room.DQN.load(saved(model))  # a function as learning rate needs no keyword
    assert ours.learning_rate(30, 60) == pytest.approx(5e-4)
    assert room.SAC("MlpPolicy", "Pendulum-v1", buffer_size=50).log_ent_coef == 0


def test_a_replay_buffer_without_an_environment(tmp_path: Path) -> None:
    model = cartpole().learn(40)
    model.save_replay_buffer(tmp_path / "rows.pkl")
    loaded = room.DQN.load(saved(model))
    loaded.load_replay_buffer(tmp_path / "rows.pkl")
    assert loaded.replay_buffer.size() == model.replay_buffer.size()
    loaded.set_env(gymnasium.make("CartPole-v1"))
    assert loaded.learn(8, reset_num_timesteps=False).replay_buffer.size() > model.replay_buffer.size()


def test_a_subclass_with_their_training_loop_is_refused() -> None:
    class Named(room.DQN):  # type: ignore[misc]
        def __init__(self, *args: Any, note: str = "", **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.note = note

    assert Named("MlpPolicy", "CartPole-v1", buffer_size=100, note="mine").note == "mine"
    with pytest.raises(ConfigurationError, match="Own must not define train, which the training loop .* does not call"):
        type("Own", (room.DQN,), {"train": lambda self, gradient_steps, batch_size: None})


def test_save_and_load(tmp_path: Path) -> None:
    model = cartpole(gamma=0.9, verbose=1).learn(20)
    model.save(tmp_path / "a" / "b", exclude=["verbose", "replay_buffer"], include=["gamma"])
    loaded = room.DQN.load(tmp_path / "a" / "b.zip", print_system_info=True, force_reset=True)
    assert (loaded.verbose, loaded.gamma) == (0, 0.9)
    with pytest.raises(ConfigurationError, match="include must be names of constructor arguments, got .*replay_buffer"):
        model.save(tmp_path / "c", include=["replay_buffer"])
    native = sb_dqn.DQN.load(tmp_path / "a" / "b")  # the same files
    assert type(native) is sb_dqn.DQN
    theirs: Any = import_module("stable_baselines3").DQN("MlpPolicy", "CartPole-v1", buffer_size=10)
    assert type(room.DQN.load(saved(theirs))) is room.DQN


def test_the_logger_is_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger: Any = import_module("sb_dqn.sb3.common.logger")
    model = cartpole("PPO", verbose=1, tensorboard_log=str(tmp_path / "runs")).learn(32, tb_log_name="run")
    assert isinstance(model.logger, logger.Logger)
    assert model.logger.get_dir() == str(tmp_path / "runs" / "run_1")
    assert re.search(r"\|\s+total_timesteps\s+\|\s+32", capsys.readouterr().out)
    model.set_logger(logger.configure(str(tmp_path / "own"), ["csv", "json"]))
    model.learn(32)
    assert "time/total_timesteps" in (tmp_path / "own" / "progress.csv").read_text()
    model.logger.close()


@SLOW
def test_masks_and_recurrence() -> None:
    env = import_module("sb_dqn.sb3.common.envs").InvalidActionEnvDiscrete(dim=6, n_invalid_actions=4)
    masks: Any = import_module("sb_dqn.sb3.common.maskable.utils")
    model = room.MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=0)
    seen: list[bool] = []

    def legal(locals_: Any, _: Any) -> bool:
        seen.append(bool(last[0][int(locals_["actions"][0])]))
        last[0] = masks.get_action_masks(locals_["env"])[0]
        return True

    model.get_env().reset()
    last = [np.ones(6, bool)]
    model.learn(64, callback=legal)
    assert len(seen) == 64
    assert all(seen[1:])
    action, _ = model.predict(env.observation_space.sample(), action_masks=np.eye(6, dtype=bool)[3])
    assert action == 3
    seen.clear()
    model.learn(64, callback=legal, use_masking=False)
    assert not all(seen)
    recurrent = room.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=16, batch_size=16, seed=0).learn(16)
    obs, state = recurrent.get_env().reset(), None
    starts = np.ones(1, bool)
    for _ in range(3):
        action, state = recurrent.predict(obs, state=state, episode_start=starts, deterministic=True)
        obs, _, starts, _ = recurrent.get_env().step(action)
    with pytest.raises(ConfigurationError, match=r"enable_critic_lstm'\] must be False with shared_lstm=True"):
        both = {"enable_critic_lstm": True, "shared_lstm": True}
        room.RecurrentPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs=both)


def test_their_tools_on_native_models_and_files(tmp_path: Path) -> None:
    env = sb_dqn.make_vec_env("CartPole-v1", 1, monitor_dir=tmp_path)
    model = sb_dqn.DQN("MlpPolicy", env, buffer_size=100, learning_starts=10, seed=0).learn(60)
    evaluate_policy: Any = import_module("stable_baselines3.common.evaluation").evaluate_policy
    rewards, lengths = evaluate_policy(model, make_vec_env("CartPole-v1"), 3, return_episode_rewards=True)
    assert rewards == lengths
    frame = import_module("stable_baselines3.common.monitor").load_results(str(tmp_path))
    assert len(frame) == len(model.ep_info_buffer)
    x, y = import_module("stable_baselines3.common.results_plotter").ts2xy(frame, "timesteps")
    assert x[-1] == y.sum() <= 60
    env.close()
