"""Numbers of the loss that are assigned between two `learn`s."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sb_dqn.algorithms import ALGORITHMS, DQN, PPO, SAC
from sb_dqn.errors import ConfigurationError
from tests.marks import SLOW, a_few
from tests.tiny import Tiny, quick

ASSIGNED: list[Any] = [
    (DQN, {"gamma": 0.5, "batch_size": 7}, {}),
    (DQN, {"gamma": 0.5, "batch_size": 7}, {"prioritized_replay": True, "noisy": True, "n_steps": 3}),
    (DQN, {"gamma": 0.5}, {"policy": "MlpLstmPolicy", "sequences": {"batch_T": 4, "warmup_T": 0, "store_rnn_state_interval": 1}}),
    (SAC, {"gamma": 0.5, "batch_size": 7, "ent_coef": 0.5}, {"ent_coef": 0.1}),
    (PPO, {"gamma": 0.5, "batch_size": 5, "ent_coef": 0.5}, {"n_steps": 16, "normalize_rewards": True}),
    (ALGORITHMS["A2C"], {"gamma": 0.5, "ent_coef": 0.5}, {}),
    (ALGORITHMS["VPG"], {"gamma": 0.5, "ent_coef": 0.5}, {}),
    (ALGORITHMS["PQN"], {"gamma": 0.5}, {"n_steps": 16}),
]  # fmt: skip


@SLOW
@pytest.mark.parametrize(("algorithm", "changes", "settings"), ASSIGNED)
@pytest.mark.parametrize("steps", a_few([0, 60], 60))
def test_numbers_of_the_loss_that_are_assigned_take_effect(
    algorithm: Any, changes: dict[str, Any], settings: dict[str, Any], steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first `learn` they are those of the constructor; after one, what is traced follows them."""

    def make(**further: Any) -> Any:
        return quick(algorithm=algorithm, **{**settings, "seed": 0, "verbose": 0, **further})

    assigned = make()
    other = make() if steps else make(**changes)
    if steps:
        monkeypatch.setattr(type(other), "update_mode", "eager")
        other.learn(steps)
        monkeypatch.undo()
        assigned.learn(steps)
    before = assigned.learner.flat.clone()
    for name, value in changes.items():
        setattr(assigned, name, value)
        if steps:
            setattr(other, name, value)
        assert getattr(assigned, name) == value
    assigned.learn(60)
    monkeypatch.setattr(type(other), "update_mode", "eager")
    other.learn(60)
    assert not torch.equal(assigned.learner.flat, before)
    torch.testing.assert_close(assigned.learner.flat, other.learner.flat, rtol=1e-3, atol=1e-5)


def test_wrong_numbers_are_refused_when_they_are_assigned() -> None:
    for algorithm, name, value, message in [
        (DQN, "gamma", 1.5, "gamma must be"),
        (DQN, "batch_size", 0, "batch_size must be"),
        (PPO, "ent_coef", -1.0, "ent_coef must be"),
        (PPO, "batch_size", 1, "batch_size must be >= 2"),
        (
            DQN,
            "gamma",
            {"start": 0.9, "end": 0.99, "updates": 5},
            "gamma must be a number before and after an assignment",
        ),
        (SAC, "ent_coef", 0.1, "ent_coef must stay a fixed number, or a learned one, got 'auto' and then 0.1"),
    ]:
        model: Any = quick(algorithm=algorithm)
        before = getattr(model, name)
        with pytest.raises(ConfigurationError, match=message):
            setattr(model, name, value)
        assert getattr(model, name) == before


@SLOW
def test_an_annealed_horizon_goes_on_with_batches_of_another_size() -> None:
    steps = {"start": 3, "end": 1, "updates": 20}
    model: Any = quick(algorithm=DQN, n_steps=steps).learn(40)
    model.batch_size = 5
    model.learn(100)
    assert model.replay.view.horizon.current[0] == 1
    with pytest.raises(
        ConfigurationError, match="gamma must be a number before and after an assignment, and n_steps too"
    ):
        model.gamma = 0.5


def test_an_assigned_batch_size_keeps_the_seed_of_the_next_reset() -> None:
    env = Tiny()
    model: Any = quick(env, algorithm=PPO, n_steps=8, seed=None).learn(8)
    assert set(env.seeds) == {None}
    model.set_random_seed(3)
    model.batch_size = 4
    model.learn(8, reset_num_timesteps=False)
    assert [seed for seed in env.seeds if seed is not None] == [model.rng.env_seed]
    model.batch_size = 8
    model.learn(8, reset_num_timesteps=False)  # the seed is of one reset
    assert [seed for seed in env.seeds if seed is not None] == [model.rng.env_seed]


def test_arguments_that_a_class_sets_itself_are_refused_with_their_reason() -> None:
    for name, attribute, value, reason in [
        ("R2D2", "batch_size", 8, "Set batch_B, the number of sequences"),
        ("R2D2", "train_freq", 4, "Set replay_ratio"),
        ("QRDQN", "loss", "mse", "Remove it: it is for scalar values"),
        ("PPO", "actors", "overlapped", "Remove it: an on-policy algorithm learns only from actions of its current"),
    ]:
        model: Any = quick(algorithm=ALGORITHMS[name])
        with pytest.raises(ConfigurationError, match=f"^{attribute} must be unset for {name}, got {value!r}. {reason}"):
            setattr(model, attribute, value)
        assert attribute not in vars(model)
