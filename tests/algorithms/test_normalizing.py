"""Normalizers inside of models: what is learned from, what acts, what is saved, and what stays as it is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.algorithms import DQN, PPO, PQN
from sb_dqn.core.base_algorithm import BaseAlgorithm
from sb_dqn.errors import ConfigurationError
from sb_dqn.evaluation import evaluate_policy
from sb_dqn.normalize import NormalizeObservations
from tests.tiny import Tiny, lanes, quick

pytestmark = pytest.mark.usefixtures("eagerly")

ON: dict[str, Any] = {"normalize_observations": True, "normalize_rewards": True}
ON_POLICY: dict[str, Any] = {"n_steps": 5, "batch_size": 6, "exploration_final_eps": 0.5}
OBS = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
MODELS: dict[str, Any] = {
    "DQN": partial(quick, algorithm=DQN, n_steps=2, prioritized_replay=True, **ON),
    "PPO": partial(quick, algorithm=PPO, n_steps=5, **ON),
    "PQN": partial(quick, algorithm=PQN, **ON_POLICY, **ON),
}
ENVS: dict[str, Any] = {
    "next step": lambda: lanes(3, partial(Tiny, length=4)),
    "same step": lambda: SyncVectorEnv(
        [partial(Tiny, length=2, truncates=True), partial(Tiny, length=3)], autoreset_mode=AutoresetMode.SAME_STEP
    ),
}


def rows_of(model: BaseAlgorithm) -> Any:
    """The ring of a model, whatever learns from it."""
    return model._experience.ring


def statistics(model: BaseAlgorithm) -> dict[str, Any]:
    return model.normalizer.state_dict()


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("name", MODELS)
def test_every_row_counts_once_and_stays_raw(name: str, env: str) -> None:
    model = MODELS[name](ENVS[env]())
    model.learn(20)
    ring = rows_of(model)
    arrived = int(ring.cursor.sum())
    moments = statistics(model)["observations"]["moments"]["obs"]
    assert int(moments["count"]) == arrived
    if arrived <= ring.capacity and name == "DQN":
        rows = ring.obs["obs"][: int(ring.cursor[0]) * ring.num_lanes].double().numpy()
        if env == "next step":  # all lanes have as many rows
            np.testing.assert_allclose(moments["mean"].numpy(), rows.mean(0), rtol=1e-9)
    assert int(statistics(model)["rewards"]["moments"]["count"]) == model.num_timesteps


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_replay_normalizes_what_it_samples(n_steps: int) -> None:
    model = quick(lanes(2), n_steps=n_steps, gamma=0.9, batch_size=64, **ON).learn(60)
    replay = model.replay
    replay.refresh()
    raw, scaled = replay.view.scale, statistics(model)
    generator = torch.Generator().manual_seed(0)  # of whose draws some find a reward
    noise = torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator)
    seen = model.normalizer.batch(replay.sample_from(noise))
    replay.view.scale = lambda x: x
    stored = replay.sample_from(noise)
    replay.view.scale = raw
    effect = scaled["observations"]["effect"]["obs"]
    for got, kept in ((seen.obs, stored.obs), (seen.next_obs, stored.next_obs)):
        assert torch.equal(got["obs"], ((kept["obs"] - effect["mean"]) * effect["scale"]).clamp(-10, 10))
    assert torch.allclose(seen.return_, stored.return_ * scaled["rewards"]["scale"])
    assert not torch.allclose(seen.return_, stored.return_)


def test_rewards_are_clipped_before_they_are_summed() -> None:
    model = quick(
        lanes(2), n_steps=3, gamma=1.0, batch_size=64, learning_starts=50, normalize_rewards={"clip": 0.5}
    ).learn(60)
    replay = model.replay
    replay.refresh()
    generator = torch.Generator().manual_seed(0)
    batch = replay.sample_from(torch.rand(replay.sampler.noise_shape, dtype=torch.float64, generator=generator))
    assert float(batch.return_.max()) <= 1.5
    assert float(batch.return_.max()) > 0.5


class Tape(PQN):
    """Compares, at every update, what the policy said when it acted with what it says now."""

    compared = 0

    def gradient_step(self) -> Any:
        rollout: Any = self.rollout
        if rollout._drawn == 0:  # before the first update the weights are those that acted
            batch = self.normalizer.batch(rollout.sample_from(torch.arange(rollout.n_steps * rollout.ring.num_lanes)))
            with torch.no_grad():
                now = self.policy.values(batch.obs).amax(-1)
            there = batch.weight > 0
            assert batch.extra is not None
            torch.testing.assert_close(now[there], batch.extra["value"][there])
            self.compared += int(there.sum())
        return super().gradient_step()


@pytest.mark.traced
@pytest.mark.parametrize("mode", ["eager", "traced"])
def test_updates_see_what_the_policy_saw(mode: Any) -> None:
    model: Any = quick(lanes(3, partial(Tiny, length=4)), algorithm=Tape, **ON_POLICY, **ON)
    model.mode = mode
    model.attach(model.stream)
    effects = []
    for _ in range(4):
        model.learn(30, reset_num_timesteps=False)
        effects.append(statistics(model)["observations"]["effect"]["obs"]["mean"])
    assert model.compared > 60
    assert not torch.equal(effects[0], effects[-1])


class ActorTape(PPO):
    """The same of log-probabilities."""

    compared = 0

    def gradient_step(self) -> Any:
        if self.rollout._drawn == 0:  # type: ignore[attr-defined]  # of a rollout
            places = torch.arange(self.rollout.view.places)
            batch = self.normalizer.batch(self.rollout.sample_from(places))
            with torch.no_grad():
                policy, value, _ = self.policy.net(batch.obs)
            there = batch.weight > 0
            assert batch.extra is not None
            torch.testing.assert_close(policy.log_prob(batch.action)[there], batch.extra["log_prob"][there])
            torch.testing.assert_close(value[there], batch.extra["value"][there])
            self.compared += int(there.sum())
        return super().gradient_step()


def test_log_probabilities_computed_anew_equal_those_recorded() -> None:
    model: Any = quick(lanes(3, partial(Tiny, length=4)), algorithm=ActorTape, n_steps=5, n_epochs=2, **ON)
    model.learn(120)
    assert model.compared > 60


@pytest.mark.parametrize("name", MODELS)
def test_looking_changes_nothing(name: str) -> None:
    model = MODELS[name](ENVS["next step"]()).learn(40)
    before = str(statistics(model))
    model.predict(OBS, deterministic=True)
    evaluate_policy(model, Tiny(), 3)
    assert str(statistics(model)) == before


@pytest.mark.parametrize("name", MODELS)
def test_statistics_are_in_the_file(name: str, tmp_path: Path) -> None:
    model = MODELS[name](ENVS["next step"]()).learn(40)
    model.save(tmp_path / "m")
    for env in (None, ENVS["next step"]()):
        loaded = type(model).load(tmp_path / "m", env)
        assert str(statistics(loaded)) == str(statistics(model))
        assert np.array_equal(loaded.predict(OBS, deterministic=True)[0], model.predict(OBS, deterministic=True)[0])
    count = int(statistics(loaded)["observations"]["moments"]["obs"]["count"])
    loaded.learn(20, reset_num_timesteps=False)
    assert int(statistics(loaded)["observations"]["moments"]["obs"]["count"]) > count + 20


def test_nets_see_normalized_observations() -> None:
    model = quick(lanes(2), normalize_observations=NormalizeObservations(clip=5.0)).learn(40)
    with torch.no_grad():
        seen = model.normalizer.observations({"obs": torch.from_numpy(OBS * 100)})
        assert float(seen["obs"].abs().max()) == 5.0
        expected = model.policy.values(seen).numpy()
    assert np.array_equal(model.predictor.explore({"obs": OBS * 100}, None)[0], expected)


def test_a_file_without_statistics_can_be_gone_on_with(tmp_path: Path) -> None:
    model = quick(lanes(2)).learn(20)
    assert "normalizer" not in model.saved_parts()
    model.save(tmp_path / "m")
    loaded = DQN.load(tmp_path / "m", lanes(2), normalize_observations=True)
    assert int(statistics(loaded)["observations"]["moments"]["obs"]["count"]) == 0
    loaded.learn(20)


def test_settings_survive_the_file(tmp_path: Path) -> None:
    model = quick(lanes(2), normalize_observations=NormalizeObservations(clip=3.0), normalize_rewards={"clip": 2})
    model.save(tmp_path / "m")
    loaded = DQN.load(tmp_path / "m")
    assert loaded.arguments["normalize_observations"] == NormalizeObservations(clip=3.0)
    assert loaded.arguments["normalize_rewards"] == {"clip": 2}


def test_keys_of_a_dict() -> None:
    env = lanes(2, partial(Tiny, "dict"))
    model = quick(env, "MultiInputPolicy", normalize_observations={"keys": ["place"]}).learn(30)
    assert list(statistics(model)["observations"]["moments"]) == ["place"]


@pytest.mark.parametrize("algorithm", [DQN, PQN])
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"normalize_observations": 3}, "normalize_observations must be"),
        (
            {"normalize_rewards": {"gamma": 0.9}},
            "keys of normalize_rewards must be among ['clip', 'epsilon', 'peak'], got 'gamma'",
        ),
        ({"normalise_rewards": True}, "did you mean 'normalize_rewards'"),
    ],
)
def test_refusals(algorithm: Any, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        quick(lanes(2), algorithm=algorithm, **wrong)
    assert named.lower() in str(refused.value).lower()


def test_images_need_no_statistics() -> None:
    with pytest.raises(ConfigurationError, match="normalize_observations must be False"):
        quick(lanes(2, partial(Tiny, "discrete")), normalize_observations=True)
