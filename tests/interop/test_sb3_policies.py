"""Policies under `sb_dqn.sb3` as programs for Stable-Baselines3 use them: their optimizer, their actions, their files."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch.nn import functional

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.nn.parameters.flat import flat_copy
from tests.marks import SLOW

peer: Any = pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
pytest.importorskip("sb3_contrib", reason="its second package, installed by the test extra")
room: Any = import_module("sb_dqn.sb3")

OBS = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
CHOICES = (OBS[:, 0] > 0).long()
PENDULUM = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))


def quick(algorithm: Any, env: str = "CartPole-v1", **settings: Any) -> Any:
    replay = algorithm.__name__ in ("DQN", "SAC")
    small = {"learning_starts": 20, "buffer_size": 500} if replay else {"n_steps": 16}
    return algorithm("MlpPolicy", env, learning_rate=1e-2, seed=0, **small, **settings)


def imitation(model: Any) -> Any:
    """Cross entropy of the policy with the right choices."""
    return -model.policy.get_distribution(OBS).log_prob(CHOICES).mean()


def classification(model: Any) -> Any:
    return functional.cross_entropy(model.q_net(OBS), CHOICES)


def regression(model: Any) -> Any:
    """Squared error of the actor's mean action."""
    return (model.policy.distribution({"obs": PENDULUM}).mode() - PENDULUM[:, :1]).square().mean()


LOSSES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "DQN": (classification, "CartPole-v1"),
    "PPO": (imitation, "CartPole-v1"),
    "A2C": (imitation, "CartPole-v1"),
    "SAC": (regression, "Pendulum-v1"),
}


def descend(model: Any, loss_of: Callable[[Any], Any], steps: int = 100) -> float:
    for _ in range(steps):
        loss = loss_of(model)
        model.policy.optimizer.zero_grad()
        loss.backward()
        model.policy.optimizer.step()
    return float(loss_of(model).detach())


@SLOW
@pytest.mark.parametrize("name", LOSSES)
def test_the_optimizer_of_a_policy_descends_and_learn_goes_on_from_there(name: str, tmp_path: Path) -> None:
    loss_of, env = LOSSES[name]
    model = quick(getattr(room, name), env)
    assert model.policy.optimizer.param_groups[0]["lr"] == 1e-2
    assert float(loss_of(model).detach()) > 0.1
    assert descend(model, loss_of) < 0.01
    before = model.learner.flat.clone()
    model.learn(64)
    assert model.learner.optimizer_step.steps > 0
    assert bool(model.learner.flat.isfinite().all())
    assert not model.learner.flat.equal(before)
    torch.testing.assert_close(flat_copy(model.policy.networks[0].parameters()), model.learner.flat, rtol=0, atol=0)
    assert descend(model, loss_of) < 0.01
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert loaded.policy.optimizer.param_groups[0]["lr"] == 1e-2
    assert float(loss_of(loaded).detach()) == float(loss_of(model).detach())


@SLOW
@pytest.mark.parametrize(("name", "settings"), [("PPO", {"batch_size": 16}), ("A2C", {})])
def test_imitation_by_a_trained_policy_is_that_of_stable_baselines3(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The moments of the training count, and the value function, which gets no gradient, stays."""
    theirs = quick(getattr(peer, name), **settings).learn(96)
    theirs.save(tmp_path / "theirs")
    ours = getattr(room, name).load(tmp_path / "theirs")
    values = ours.policy.predict_values(OBS)
    for model in (theirs, ours):
        descend(model, imitation, 20)
    mine, expected = (model.policy.get_distribution(OBS).log_prob(CHOICES) for model in (ours, theirs))
    torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-5)
    assert ours.policy.predict_values(OBS).equal(values)


def test_the_rate_of_the_optimizer_is_that_of_the_schedule() -> None:
    model = quick(room.PPO)
    falling = type(model)("MlpPolicy", "CartPole-v1", learning_rate=lambda progress: 1e-3 * progress, n_steps=16)
    (group,) = falling.policy.optimizer.param_groups
    assert group["lr"] == 1e-3
    falling.learn(64)
    assert group["lr"] == pytest.approx(falling.logger.name_to_value["train/learning_rate"])
    assert 0 <= group["lr"] < 5e-4


@torch.no_grad()
@pytest.mark.parametrize("squash_output", [False, True])
@pytest.mark.parametrize("name", ["PPO", "A2C"])
def test_actions_of_a_policy_are_those_whose_log_probability_it_returns(name: str, squash_output: bool) -> None:
    model = quick(getattr(room, name), "Pendulum-v1", policy_kwargs={"squash_output": squash_output})
    obs = torch.randn(2_000, 3, generator=torch.Generator().manual_seed(0))
    actions, values, log_prob = model.policy(obs)
    again, expected, _ = model.policy.evaluate_actions(obs, actions)
    torch.testing.assert_close(log_prob, expected, rtol=1e-3, atol=1e-3)
    assert values.equal(again)
    assert actions.shape == (2_000, 1)
    outside = float((actions.abs() > 2.0).float().mean())
    assert outside == 0.0 if squash_output else 0.02 < outside < 0.08  # 4.6 % of a normal distribution
    assert bool((torch.as_tensor(model.policy.predict(obs.numpy())[0]).abs() <= 2.0).all())


def test_actions_of_a_rollout_are_those_of_its_log_probabilities() -> None:
    rollouts = []

    class Reads(import_module("sb_dqn.sb3.common.callbacks").BaseCallback):  # type: ignore[misc]
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer, policy = self.model.rollout_buffer, self.model.policy
            obs, actions = (torch.as_tensor(each).flatten(0, 1) for each in (buffer.observations, buffer.actions))
            log_prob = policy.evaluate_actions(obs, actions)[1].detach()
            torch.testing.assert_close(log_prob, torch.as_tensor(buffer.log_probs).flatten())
            rollouts.append(float(actions.abs().max()))

    room.PPO("MlpPolicy", "Pendulum-v1", n_steps=256, n_epochs=1, seed=0).learn(256, callback=Reads())
    assert rollouts
    assert max(rollouts) > 2.0


PLACES = {
    "dqn": "DQN MlpPolicy", "ppo": "PPO MlpPolicy", "a2c": "A2C MlpPolicy", "sac": "SAC MlpPolicy", "qrdqn": "QRDQN MlpPolicy",
    "ppo_mask": "MaskablePPO MlpPolicy", "ppo_recurrent": "RecurrentPPO MlpLstmPolicy",
}  # fmt: skip


@pytest.mark.parametrize("package", PLACES)
def test_the_policy_class_of_an_algorithm_makes_its_models_and_loads_their_policies(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`save` writes exactly the path, so that `load` never takes another file."""
    monkeypatch.chdir(tmp_path)
    name, alias = PLACES[package].split()
    policy_class = getattr(import_module(f"sb_dqn.sb3.{package}.policies"), alias)
    assert getattr(import_module(f"sb_dqn.sb3.{package}"), alias) is policy_class
    env: Any = gymnasium.make("Pendulum-v1" if name == "SAC" else "CartPole-v1")
    if name == "MaskablePPO":
        env = import_module("sb_dqn.sb3.common.wrappers").ActionMasker(env, lambda _: np.ones(2, bool))
    size = {"buffer_size": 100} if name in ("DQN", "QRDQN", "SAC") else {"n_steps": 8}
    model = getattr(room, name)(policy_class, env, seed=0, **size)
    assert isinstance(model.policy, policy_class)
    assert model.policy_class is policy_class
    assert isinstance(model.policy, import_module("sb_dqn.sb3.common.policies").BasePolicy)
    obs = np.random.default_rng(0).normal(size=(20, *env.observation_space.shape)).astype(np.float32)
    expected, _ = model.predict(obs, deterministic=True)
    model.policy.save("p")
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    for loaded in (policy_class.load("p"), getattr(room, name).load("p")):
        np.testing.assert_array_equal(loaded.predict(obs, deterministic=True)[0], expected)
    model.save("q")
    with pytest.raises(
        CheckpointError, match=r"path must be that of policy.save, got 'q'.* Pass 'q.zip', if it is meant"
    ):
        policy_class.load("q")
    with pytest.raises(CheckpointError, match=r"got 'r', which is no file. Check the path"):
        policy_class.load("r")
    (tmp_path / "empty").touch()
    with pytest.raises(CheckpointError):
        policy_class.load("empty")
    with pytest.raises(ConfigurationError, match="must be made by its algorithm"):
        policy_class(env.observation_space, env.action_space, lambda _: 1e-3)
    own = type("Own", (policy_class,), {})
    assert own.__mro__[1].__module__.startswith(("stable_baselines3.", "sb3_contrib."))
    model = getattr(room, name)(own, env, **size)
    assert isinstance(model.policy, own)
    assert model.policy_class is own


def test_a_policy_file_of_stable_baselines3_is_refused(tmp_path: Path) -> None:
    quick(peer.A2C).policy.save(tmp_path / "theirs")
    with pytest.raises(CheckpointError, match="theirs"):
        import_module("sb_dqn.sb3.ppo.policies").MlpPolicy.load(tmp_path / "theirs")
    with pytest.raises(CheckpointError, match="must hold a.*SACMlpPolicy, got a.*MlpPolicy. Load it with PPO.load"):
        quick(room.PPO).policy.save(tmp_path / "ours")
        import_module("sb_dqn.sb3.sac.policies").MlpPolicy.load(tmp_path / "ours")


@SLOW
def test_values_by_classification_are_called_as_values() -> None:
    policy = quick(room.PPO, value_loss="hl_gauss").learn(32).policy
    features = policy.mlp_extractor.forward_critic(policy.extract_features(OBS))
    values = policy.predict_values(OBS)
    assert values.shape == (64, 1)
    torch.testing.assert_close(policy.value_net(features), values)
    torch.testing.assert_close(policy.evaluate_actions(OBS, CHOICES)[0], values)
    model = quick(room.SAC, "Pendulum-v1", value_loss="two_hot").learn(40)
    actions = torch.zeros(64, 1)
    one, two = model.policy.critic(PENDULUM, actions)
    assert one.shape == two.shape == (64, 1)
    assert not torch.equal(one, two)
    torch.testing.assert_close(model.policy.critic.q1_forward(PENDULUM, actions), one)
