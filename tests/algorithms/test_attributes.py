"""What can be read off a model by Stable-Baselines3's names."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import ALGORITHMS, DQN, PPO, SAC, DoubleDQN
from sb_dqn.callbacks import BaseCallback
from sb_dqn.core.arguments import NOT_SETTINGS
from sb_dqn.envs.streams.training_env import env_itself
from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import HParam
from sb_dqn.sb3_names import RENAMED, REPLACED
from sb_dqn.schedules import Linear
from tests.marks import SLOW
from tests.tiny import QUICK, QUICK_SEQUENCES, Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

PARTS = {"policy", "env", "exploration", "seed", "device", "verbose"}
"""Arguments whose name is that of an object made from them, and those that a test sets."""


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_defaults_are_read_from_the_model(algorithm: Any) -> None:
    """The signature, not the recorded arguments, says what a model must show."""
    model = quick(algorithm=algorithm, tensorboard_log="runs", gamma=0.5)
    assert (model.tensorboard_log, model.gamma) == ("runs", 0.5)
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(algorithm).parameters.items()
        if parameter.default is not parameter.empty
        and name not in {*PARTS, *NOT_SETTINGS, *QUICK, *QUICK_SEQUENCES, "tensorboard_log", "gamma"}
    }
    assert defaults
    assert {name: getattr(model, name) for name in defaults} == defaults


@pytest.mark.parametrize(
    ("algorithm", "arguments"),
    [
        (
            DQN,
            {
                "gamma": 0.5, "batch_size": 3, "buffer_size": 50, "learning_starts": 7, "train_freq": 2, "gradient_steps": 3,
                "tau": 0.25, "target_update_interval": 9, "n_steps": 2,
            },
        ),
        (
            PPO,
            {
                "gamma": 0.5, "batch_size": 4, "n_steps": 8, "n_epochs": 2, "gae_lambda": 0.7, "ent_coef": 0.1,
                "vf_coef": 0.2, "clip_range": 0.3, "target_kl": 0.4, "max_grad_norm": 0.6,
            },
        ),
        (
            SAC,
            {
                "gamma": 0.5, "batch_size": 3, "buffer_size": 50, "learning_starts": 7, "train_freq": 2, "gradient_steps": 3,
                "tau": 0.25, "ent_coef": 0.1,
            },
        ),
    ],
)  # fmt: skip
def test_arguments_are_read_as_passed(algorithm: Any, arguments: dict[str, Any]) -> None:
    model = quick(algorithm=algorithm, **arguments)
    assert {name: getattr(model, name) for name in arguments} == arguments


def test_the_learning_rate_is_what_was_given_and_its_schedule_has_another_name() -> None:
    assert quick(learning_rate=1e-3).learning_rate == 1e-3
    model = quick(learning_rate="linear 0.5")
    assert (model.learning_rate, model.rate_schedule) == ("linear 0.5", Linear(0.5, 0.0))


class Winning(Tiny):
    def step(self, action: Any) -> Any:
        *rest, terminated, truncated, info = super().step(action)
        return *rest, terminated, truncated, {**info, "is_success": True}


def test_what_a_callback_may_read() -> None:
    seen: list[tuple[float, int]] = []

    class Reading(BaseCallback):
        def _on_step(self) -> bool:
            model: Any = self.model
            assert model.env is model.get_env() is env_itself(self.training_env)
            seen.append((model._current_progress_remaining, len(model.ep_success_buffer)))
            return True

    model = quick(lanes(2, Winning))
    assert (model._current_progress_remaining, list(model.ep_success_buffer)) == (1.0, [])
    model.learn(40, callback=Reading())
    assert seen[4] == (1 - 10 / 40, 2)
    assert seen[-1] == (0.0, 8)


def test_the_callback_of_their_manual_that_logs_hyper_parameters(tmp_path: Path, capsys: Any) -> None:
    class HParamCallback(BaseCallback):
        def _on_training_start(self) -> None:
            model: Any = self.model
            said = {
                "algorithm": model.__class__.__name__,
                "learning rate": model.learning_rate,
                "gamma": model.gamma,
            }
            self.logger.record("hparams", HParam(said, {"rollout/ep_len_mean": 0, "train/value_loss": 0.0}))

        def _on_step(self) -> bool:
            return True

    for rate in (1e-3, Linear(1e-3, 0.0)):
        quick(learning_rate=rate, tensorboard_log=tmp_path).learn(40, callback=HParamCallback())
    assert "was removed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gama", "DQN has no attribute 'gama'. Did you mean 'gamma'"),
        ("q_net", "DQN has no attribute 'q_net'. Read policy.q_net.$"),
        ("lr_schedule", "Read rate_schedule, a function of env step and horizon"),
        ("_vec_normalize_env", r"Call get_vec_normalize_env\(\)"),
        ("batch", "no attribute 'batch'.$"),  # nothing is close to it
        ("policy_kwarg", "Did you mean 'policy_kwargs'"),
    ],
)
def test_a_name_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        getattr(quick(), name)


def test_names_that_are_elsewhere_are_there() -> None:
    models = quick(), quick(algorithm=PPO)
    for place in RENAMED.values():
        found: list[Any] = list(models)
        for name in place.partition(",")[0].split("."):
            found = [getattr(one, name) for one in found if hasattr(one, name)]
        assert found, place


def test_the_parts_of_sac_that_are_pointed_to_are_there() -> None:
    model = quick(algorithm=SAC)
    for name, hint in REPLACED.items():
        with pytest.raises(AttributeError, match=re.escape(f"SAC has no attribute {name!r}. {hint}")):
            getattr(model, name)
        for place in re.findall(r"(?:policy|learner)[.][a-z_.]+[a-z]", hint):
            found: Any = model
            for part in place.split("."):
                found = getattr(found, part)


@pytest.mark.parametrize(("algorithm", "part"), [(DQN, "replay_buffer"), (DQN, "replay"), (PPO, "rollout")])
def test_a_part_that_waits_for_an_environment_is_missing(tmp_path: Path, algorithm: Any, part: str) -> None:
    quick(algorithm=algorithm).save(tmp_path / "model")
    model = algorithm.load(tmp_path / "model")
    assert getattr(model, part, None) is None
    with pytest.raises(ConfigurationError, match=r"requires an environment, got none. Call set_env\(...\) first"):
        getattr(model, part)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_other_arguments_cannot_be_assigned(algorithm: Any) -> None:
    model: Any = quick(algorithm=algorithm)
    for name in model.arguments.keys() - set(algorithm.changeable):
        before = getattr(model, name)
        with pytest.raises(
            ConfigurationError, match=rf"^{name}.* cannot be assigned.*(load\(path, env=env, {name}=3\)|Call set_)"
        ):
            setattr(model, name, 3)
        assert getattr(model, name) == before
    model.note = "of one's own"
    assert model.note == "of one's own"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("buffer_size", r"reads buffer_size once.* continue with DQN.load\(path, env=env, buffer_size=1e-05\)"),
        ("env", r"env of a model cannot be assigned. Call set_env\(env\)"),
        ("exploration_rate", r"it follows the schedule. Set another by load\(path, env=env, exploration=...\)"),
        ("num_timesteps", r"it counts env steps. Call learn\(..., reset_num_timesteps=True\) to begin at 0"),
        ("n_envs", r"n_envs of a model cannot be assigned, since it is read from its parts"),
        ("lr_schedule", r"cannot be assigned. Use rate_schedule, .*load\(path, learning_rate=...\) takes another"),
    ],
)  # fmt: skip
def test_what_to_do_instead_of_assigning(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        setattr(quick(), name, 1e-5)


@SLOW
@pytest.mark.parametrize("algorithm", [DQN, SAC, PPO])
def test_a_rate_and_verbosity_that_are_assigned_take_effect(
    algorithm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model: Any = quick(algorithm=algorithm, **({"n_steps": 16} if algorithm is PPO else {})).learn(40)
    other = copy.copy(model)
    model.learning_rate = "linear 2e-5 1e-5"
    model.verbose = 1
    assert other.learning_rate != model.learning_rate
    capsys.readouterr()
    model.learn(40, log_interval=1)
    assert "total_timesteps" in capsys.readouterr().out
    assert 1e-5 <= model.learner.optimizer.param_groups[0]["lr"] < 2e-5
    model.save(tmp_path / "model")
    assert algorithm.load(tmp_path / "model").learning_rate == "linear 2e-5 1e-5"
    for name, wrong in (("learning_rate", -1.0), ("verbose", -1)):
        before = getattr(model, name)
        with pytest.raises(ConfigurationError, match=f"{name} must be"):
            setattr(model, name, wrong)
        assert getattr(model, name) == before


def test_targets_follow_the_tau_and_interval_that_are_assigned() -> None:
    model: Any = quick(learning_starts=8, train_freq=4, target_update_interval=10_000).learn(40)
    start = model.learner.flat_target.clone()
    model.learn(40, reset_num_timesteps=False)
    assert torch.equal(model.learner.flat_target, start)  # the interval is longer than the run
    model.tau, model.target_update_interval = 0.5, 4
    online = model.learner.flat[: len(start)].clone()
    model.learn(4, reset_num_timesteps=False)
    torch.testing.assert_close(model.learner.flat_target, 0.5 * (start + online), rtol=0.05, atol=0.01)
    assert not torch.equal(model.learner.flat_target, start)
    with pytest.raises(ConfigurationError, match="tau must be .* got 1.5"):
        model.tau = 1.5
    assert (model.tau, model.target_update_interval) == (0.5, 4)


def test_what_the_message_says_works(tmp_path: Path) -> None:
    model = quick().learn(30)
    model.save(tmp_path / "model")
    loaded = DQN.load(
        tmp_path / "model", env=Tiny(), learning_rate=1e-5, learning_starts=50, train_freq=2, gradient_steps=1
    )
    updates = loaded._n_updates
    loaded.learn(100, reset_num_timesteps=False)
    assert loaded.learner.optimizer.param_groups[0]["lr"] == pytest.approx(1e-5)
    assert loaded.num_timesteps == 130
    assert loaded._n_updates - updates == (100 - 50) // 2


def test_a_model_can_be_copied() -> None:
    model = quick()
    assert copy.copy(model).gamma == model.gamma


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_a_model_is_not_pickled(algorithm: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"a model must be copied by saving and loading it, got pickle: .* model.save\(path\)"
    ):
        pickle.dumps(quick(algorithm=algorithm))


def test_repr_has_policy_environment_and_what_differs_from_the_defaults(tmp_path: Path) -> None:
    model = DoubleDQN("MlpPolicy", "CartPole-v1", gamma=0.9, policy_kwargs={"net_arch": [8]}, seed=None)
    settings = "gamma=0.9, policy_kwargs={'net_arch': [8]})"
    assert repr(model) == f"DoubleDQN('MlpPolicy', Lanes(CartPole-v1, num_envs=1), {settings}"
    model.save(tmp_path / "model")
    assert repr(DoubleDQN.load(tmp_path / "model")) == f"DoubleDQN('MlpPolicy', None, {settings}"
