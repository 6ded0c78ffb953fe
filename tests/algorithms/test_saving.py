"""Models and replays through files: they go on where they were, and nothing foreign gets in."""

from __future__ import annotations

import io
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sb_dqn.algorithms import ALGORITHMS, DQN, PPO, DoubleDQN, NStepDQN
from sb_dqn.callbacks import BaseCallback
from sb_dqn.errors import CheckpointError, ConfigurationError, SpaceError
from sb_dqn.nn import BaseFeaturesExtractor
from sb_dqn.policies import MlpPolicy
from sb_dqn.schedules import Linear
from tests.marks import a_few
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

OBS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)


def flat(model: Any) -> torch.Tensor:
    return torch.cat([model.learner.flat, model.learner.flat_target])


@pytest.mark.parametrize("name", a_few(ALGORITHMS, "DQN", "Rainbow", "IQN", "R2D2", "PQN", "PPO", "SAC"))
def test_a_model_predicts_the_same_after_a_round_trip(name: str, tmp_path: Path) -> None:
    model = quick(Tiny(start=4), algorithm=ALGORITHMS[name]).learn(60)
    model.save(tmp_path / "model")
    loaded = ALGORITHMS[name].load(tmp_path / "model")
    assert type(loaded) is ALGORITHMS[name]
    assert torch.equal(flat(loaded), flat(model))
    expected = model.predict(OBS, deterministic=True)[0]
    assert loaded.predict(OBS, deterministic=True)[0].tolist() == expected.tolist()
    assert loaded.arguments == {**model.arguments, "device": "auto"}
    assert loaded.get_env() is None


def test_a_net_from_pixels_comes_back_in_flat_storage(tmp_path: Path) -> None:
    kwargs = {"features_extractor_kwargs": SMALL_CNN, "optimizer_class": torch.optim.RMSprop}
    model = quick(Tiny("image"), "CnnPolicy", policy_kwargs=kwargs).learn(30)
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=Tiny("image"))
    assert torch.equal(flat(loaded), flat(model))
    assert isinstance(loaded.learner.optimizer, torch.optim.RMSprop)
    before = flat(loaded)
    loaded.learn(30)
    first = next(parameter for parameter in loaded.policy.q_net.parameters())
    assert first.data_ptr() == loaded.learner.flat.data_ptr()
    assert not torch.equal(flat(loaded), before)


def test_half_precision_twins_come_back(tmp_path: Path) -> None:
    model = quick(precision="bf16").learn(60)
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model")
    assert torch.equal(loaded.learner.low, model.learner.low)  # type: ignore[arg-type]  # there is one in bf16
    assert torch.equal(loaded.learner.store.low_target, model.learner.store.low_target)


def test_optimizer_counters_and_exploration_are_kept(tmp_path: Path) -> None:
    model = quick(exploration_fraction=0.5).learn(60)
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=Tiny())
    assert loaded.counters == model.counters
    assert (loaded.num_timesteps, loaded._n_updates) == (60, model._n_updates)
    assert loaded.exploration.rate == model.exploration.rate == pytest.approx(0.05)
    mine, theirs = (m.learner.optimizer.state_dict()["state"][0] for m in (model, loaded))
    assert mine.keys() == theirs.keys() == {"step", "exp_avg", "exp_avg_sq"}
    for key in mine:
        assert torch.equal(mine[key], theirs[key])


def test_exploration_goes_on_after_a_load(tmp_path: Path) -> None:
    model = quick(exploration_fraction=1.0).learn(60)
    model.learn(1, reset_num_timesteps=False)
    assert model.exploration.rate < 0.1
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=Tiny())
    loaded.learn(30)  # counts from 0 again: the schedule alone would begin at 1
    assert loaded.exploration.rate <= model.exploration.rate


class Chosen(BaseCallback):
    """Which actions were taken at which observations."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Any, int]] = []
        self.obs: Any = None

    def _on_step(self) -> bool:
        if self.obs is not None:
            self.pairs.append((self.obs, int(self.locals["actions"][0])))
        self.obs = None if self.locals["dones"][0] else self.locals["new_obs"][0]
        return True

    def greedy(self, model: DQN) -> list[bool]:
        """For each step, whether the action was the best one by the model (which must not have changed)."""
        return [int(model.predict(obs, deterministic=True)[0]) == action for obs, action in self.pairs]


@pytest.mark.parametrize("through_a_file", [False, True])
def test_actions_are_not_uniform_again(through_a_file: bool, tmp_path: Path) -> None:
    model = quick(Tiny(length=1000), learning_starts=50, exploration_fraction=0.1, exploration_final_eps=0.0)
    first = Chosen()
    model.learn(48, callback=first)  # up to learning_starts: no update, and uniform actions
    assert model._n_updates == 0
    assert not all(first.greedy(model))
    model.learn(12)
    if through_a_file:
        model.save(tmp_path / "model")
        model = DQN.load(tmp_path / "model", env=Tiny(length=1000))
    chosen, before = Chosen(), model.learner.flat.clone()
    model.replay._env_steps = -1000  # no update comes, so that the actions can be compared with one net
    model.learn(40, callback=chosen)
    assert torch.equal(model.learner.flat, before)
    assert len(chosen.pairs) == 39
    assert all(chosen.greedy(model))


def test_a_model_learns_on_after_a_load(tmp_path: Path) -> None:
    quick().learn(60).save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=Tiny())
    updates = loaded._n_updates
    loaded.learn(40, reset_num_timesteps=False)
    assert loaded.num_timesteps == 100
    assert loaded._n_updates == updates + 8  # after 12, 16 .. 40 steps of its own: the replay begins empty


def test_loading_with_another_number_of_lanes(tmp_path: Path) -> None:
    quick().learn(30).save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", env=lanes(4))
    assert loaded.n_envs == 4
    assert loaded.learn(40).num_timesteps == 40


@pytest.mark.parametrize("count", [1, 4])
def test_an_environment_given_later(count: int, tmp_path: Path) -> None:
    quick().learn(30).save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model")
    with pytest.raises(ConfigurationError, match=r"must have an environment to learn from"):
        loaded.learn(10)
    with pytest.raises(ConfigurationError, match="replay_buffer requires an environment"):
        loaded.replay_buffer  # noqa: B018 - a property
    loaded.set_env(lanes(count))
    assert loaded.n_envs == loaded.exploration.num_lanes == count
    assert loaded.learn(40).num_timesteps == 40
    assert len(loaded.ep_info_buffer) == 8


def test_constructor_arguments_may_be_changed_while_loading(tmp_path: Path) -> None:
    quick().save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model", learning_rate=0.5, gamma=0.5)
    assert loaded.rate_schedule(0, 1) == loaded.learning_rate == 0.5
    assert loaded.replay_config.gamma == loaded.gamma == 0.5
    with pytest.raises(ConfigurationError, match="must be among .* got 'gama'.*Did you mean 'gamma'"):
        DQN.load(tmp_path / "model", gama=0.5)


def test_odd_arguments_survive(tmp_path: Path) -> None:
    kwargs = {"net_arch": (8,), "activation_fn": nn.Tanh, "optimizer_kwargs": {"betas": (0.8, 0.9)}}
    model = quick(
        policy_kwargs=kwargs, seed=np.int64(3), learning_rate=Linear(1e-3, 1e-4), buffer_size=4e2, train_freq=(1, "episode"),
        device=torch.device("cpu"), tensorboard_log=tmp_path / "runs", max_grad_norm=None,
    )  # fmt: skip
    model.save(tmp_path / "model")
    loaded = DQN.load(tmp_path / "model")
    assert loaded.learning_rate == loaded.rate_schedule == Linear(1e-3, 1e-4)
    assert loaded.arguments["train_freq"] == (1, "episode")
    assert loaded.rng.seed == 3
    assert loaded.learner.optimizer.param_groups[0]["betas"] == (0.8, 0.9)


def own_rate(remaining: float) -> float:
    return 0.01 * remaining


class OwnPolicy(MlpPolicy):
    """A user's."""


class OwnExtractor(BaseFeaturesExtractor):
    """A user's."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space, 2)
        self.linear = nn.Linear(2, 2)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(observation))


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("learning_rate", {"learning_rate": own_rate}),
        ("policy", {"policy": OwnPolicy}),
        ("features_extractor_class", {"policy_kwargs": {"features_extractor_class": OwnExtractor}}),
    ],
)
def test_what_a_user_wrote_needs_trust(argument: str, given: dict[str, Any], tmp_path: Path) -> None:
    model = quick(**given).learn(30)
    model.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match=f"{argument}.*trust=True"):
        DQN.load(tmp_path / "model")
    expected = model.predict(OBS, deterministic=True)[0].tolist()
    value = given.get(argument) or given["policy_kwargs"][argument]
    for loaded in (
        DQN.load(tmp_path / "model", trust=True),
        DQN.load(tmp_path / "model", custom_objects={argument: value}),
    ):
        assert loaded.predict(OBS, deterministic=True)[0].tolist() == expected


def test_a_replacement_that_the_file_does_not_ask_for_is_told(tmp_path: Path) -> None:
    quick(policy_kwargs={"features_extractor_class": OwnExtractor}).save(tmp_path / "model")
    used = {"features_extractor_class": OwnExtractor, "batch_size": 4}
    with pytest.warns(UserWarning, match="got 'learnig_rate', which replaces nothing. .* Did you mean 'learning_"):
        model = DQN.load(tmp_path / "model", custom_objects={**used, "learnig_rate": 0.1})
    assert model.replay_config.batch_size == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DQN.load(tmp_path / "model", custom_objects=used)


def test_the_file_of_another_class_is_refused(tmp_path: Path) -> None:
    quick().save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="the file must hold an NStepDQN, got a DQN. Load it with DQN.load"):
        NStepDQN.load(tmp_path / "model")


def test_the_parent_loads_its_children(tmp_path: Path) -> None:
    quick(algorithm=DoubleDQN).save(tmp_path / "model")
    assert type(DQN.load(tmp_path / "model")) is DoubleDQN


OTHERS = {
    "observation_space": Tiny("matrix"),
    "action_space": Tiny(start=1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_environments_with_other_spaces_are_refused(name: str, tmp_path: Path) -> None:
    model = quick().learn(20)
    model.save(tmp_path / "model")
    with pytest.raises(
        SpaceError, match=f"{name} of the environment must be .*, as of the model, got .*Give such an environment"
    ):
        DQN.load(tmp_path / "model", env=OTHERS[name])
    with pytest.raises(SpaceError, match=f"{name} of the environment must be"):
        model.set_env(OTHERS[name])
    assert model.learn(20).num_timesteps == 20  # still with its own


def test_another_environment_of_the_same_kind() -> None:
    model, game = quick().learn(20), Tiny()
    model.set_env(game)
    model.learn(20)
    assert len(game.actions) == 20
    with pytest.raises(ConfigurationError, match="must have 1 lanes, as the model's buffer, got 2"):
        model.set_env(lanes(2))


@pytest.mark.parametrize("env", [3, "CartPole-v17", [1, 2]])
def test_no_environment_at_all(env: Any) -> None:
    model = quick()
    with pytest.raises(ConfigurationError, match="env.* must be an id.*, got "):
        model.set_env(env)
    model.learn(12)


def test_parameters_as_a_dict(tmp_path: Path) -> None:
    model, other = quick().learn(60), quick(seed=5)
    other.set_parameters(model.get_parameters())
    assert torch.equal(flat(other), flat(model))
    third = quick(seed=6)
    model.save(tmp_path / "model")
    third.set_parameters(tmp_path / "model")
    assert torch.equal(flat(third), flat(model))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"polcy": {}}, r"names of parameters must be among .*, got \['polcy'\]"),
        ({"policy": {"x": torch.zeros(1)}}, "parameters must fit the networks of this policy"),
        ({}, r"names of parameters must be among .*, got \[\]"),
        (3, "path must be"),
    ],
)
def test_parameters_that_do_not_fit(given: Any, message: str) -> None:
    model = quick()
    before = flat(model)
    with pytest.raises((ConfigurationError, CheckpointError), match=message):
        model.set_parameters(given)
    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("path", [3, None, io.StringIO("text")])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(ConfigurationError, match="path must be a str, a Path or a binary file"):
        DQN.load(path)


def test_a_replay_through_a_file(tmp_path: Path) -> None:
    model = quick(lanes(2), algorithm=NStepDQN).learn(60)
    model.save_replay_buffer(tmp_path / "rows")
    other = quick(lanes(2), algorithm=NStepDQN)
    other.load_replay_buffer(tmp_path / "rows")
    assert len(other.replay_buffer.ring) == len(model.replay_buffer.ring) > 60
    noise = torch.rand(
        model.replay.sampler.noise_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    for replay in (model.replay, other.replay):
        replay.refresh()
    mine, theirs = model.replay.sample_from(noise), other.replay.sample_from(noise)
    for name in ("action", "return_", "discount", "weight", "place"):
        assert torch.equal(getattr(mine, name), getattr(theirs, name))
    assert torch.equal(mine.obs["obs"], theirs.obs["obs"])
    assert torch.equal(mine.next_obs["obs"], theirs.next_obs["obs"])
    other.learn(20)
    assert other._n_updates > 0


def test_a_model_is_no_replay_and_the_other_way_round(tmp_path: Path) -> None:
    model = quick().learn(20)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "rows")
    with pytest.raises(CheckpointError, match="must hold a replay buffer, got a .model.. Read models with load"):
        model.load_replay_buffer(tmp_path / "model")
    with pytest.raises(
        CheckpointError, match="must hold a model, got a .replay.. Read replay buffers with load_replay_buffer"
    ):
        DQN.load(tmp_path / "rows")


@pytest.mark.parametrize("env", [Tiny("matrix"), partial(lanes, 2)])
def test_rows_of_another_kind_are_refused(env: Any, tmp_path: Path) -> None:
    quick().learn(20).save_replay_buffer(tmp_path / "rows")
    other = quick(env() if callable(env) else env)
    with pytest.raises(CheckpointError, match="rows of .* must be of .*, as the model, got .*"):
        other.load_replay_buffer(tmp_path / "rows")


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not really", b"x" * 1000])
def test_files_that_are_no_models(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((CheckpointError, FileNotFoundError), match="model"):
        DQN.load(path)


def test_load_refuses_what_the_constructor_refuses(tmp_path: Path) -> None:
    PPO("MlpPolicy", Tiny(), n_steps=8, batch_size=8).save(tmp_path / "model.zip")
    with pytest.raises(ConfigurationError, match="actors must be unset for PPO"):
        PPO.load(tmp_path / "model.zip", Tiny(), actors="process:2")
