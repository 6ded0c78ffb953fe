"""Resets: which weights are drawn again, which move, which stay; in runs as users start them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from sb_dqn.algorithms import FQF, R2D2, SAC
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.resets import Resets, check_resets, reset_networks
from sb_dqn.rng import torch_seeded
from tests.continuous import Reach
from tests.marks import SLOW
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

IMAGE: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": {"features_extractor_kwargs": SMALL_CNN}}


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.policy.named_parameters()}


def test_features_move_by_a_share_and_the_rest_is_drawn_again() -> None:
    """theta <- keep theta + (1 - keep) phi, with another phi for the target network."""
    model = quick(Tiny("image"), **IMAGE).learn(40)
    before, keep = weights(model), 0.75
    copied = copy.deepcopy(model.policy)
    reset_networks(model.policy, model.learner, keep, seed=5)
    after = weights(model)
    with torch_seeded(5):
        online, target = copied.new_networks()
    for prefix, fresh in (("q_net.", online), ("q_net_target.", target)):
        for name, phi in fresh.named_parameters():
            old, new = before[prefix + name], after[prefix + name]
            if name.startswith("features"):
                torch.testing.assert_close(new, keep * old + (1 - keep) * phi)
                wrong = (1 - keep) * old + keep * phi  # the shares exchanged
                assert phi.ndim == 1 or not torch.allclose(new, wrong)
            else:
                torch.testing.assert_close(new, phi.detach())
    name = "features.net.0.weight"
    for name in (name for name in after if name.startswith("q_net.features") and name.endswith("weight")):
        twin = name.replace("q_net.", "q_net_target.")
        assert not torch.equal(after[name] - keep * before[name], after[twin] - keep * before[twin])  # two draws


def test_the_optimizer_forgets_and_the_rate_stays() -> None:
    model = quick(learning_rate=3e-3).learn(40)
    assert model.learner.optimizer.state
    reset_networks(model.policy, model.learner, 0.0, seed=1)
    assert not model.learner.optimizer.state
    assert model.learner.optimizer.param_groups[0]["lr"] == 3e-3
    model.learn(20, reset_num_timesteps=False)
    assert all(torch.isfinite(value).all() for value in weights(model).values())


@SLOW
def test_fractions_of_fqf_forget_too() -> None:
    model = quick(algorithm=FQF, fraction_learning_rate=1e-3).learn(60)
    fractions = model.learner.optimizer_step.fraction_optimizer
    assert fractions is not None
    assert fractions.state
    reset_networks(model.policy, model.learner, 0.0, seed=1)
    assert not fractions.state


def test_frozen_layers_stay_in_both_networks() -> None:
    model = quick(Tiny("image"), **IMAGE)
    model.policy.q_net.features.requires_grad_(False)
    before = weights(model)
    model.learn(60)
    reset_networks(model.policy, model.learner, 0.5, seed=1)
    after = weights(model)
    kept = [name for name in after if ".features." in name]
    assert kept
    assert all(torch.equal(before[name], after[name]) for name in kept)


def test_due_counts_updates_until_the_last() -> None:
    resets = Resets(10, until=35)
    assert [updates for updates in range(1, 61) if resets.is_due(updates)] == [10, 20, 30]
    assert check_resets(7) == check_resets(7.0) == Resets(7)
    assert check_resets(False) is None
    assert check_resets({"every": 1e3}) == Resets(1000)
    assert [type(value) for value in vars(check_resets({"every": 1e3})).values()] == [int, float, type(None)]


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (True, "every"),
        ({"keep": 0.5}, "every"),
        ({"every": 0}, "every"),
        ({"every": 5, "keep": 1.5}, "keep"),
        ({"every": 50, "until": 20}, "until"),
        ({"every": 5, "keeps": 1}, "keeps"),
        ("often", "resets"),
    ],
)
def test_bad_settings_are_named(value: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        check_resets(value)


CASES: dict[str, dict[str, Any]] = {
    "DQN": {},
    "all switches": {
        "double_q": True, "dueling": True, "noisy": True, "n_steps": 3, "prioritized_replay": True, "value_loss": "hl_gauss",
        "tau": 0.1,
    },
    "image, bf16": {**IMAGE, "env": lambda: Tiny("image"), "precision": "bf16"},
    "R2D2": {"algorithm": R2D2, "replay_ratio": 8.0},
    "FQF": {"algorithm": FQF},
    "SAC": {"algorithm": SAC, "env": Reach},
    "groups": {"actors": "overlapped:2x1", "train_freq": 2},
}  # fmt: skip


@SLOW
@pytest.mark.parametrize("name", CASES)
def test_runs_with_resets(name: str) -> None:
    """The run learns on after its resets, differs from one without them, and is the same twice."""

    def run(**more: Any) -> Any:
        settings = {**CASES[name], **more}
        env = lanes(2, settings.pop("env", Tiny))
        return quick(env, **settings).learn(120)

    first, again, without = run(resets=5), run(resets=5), run()
    assert first._n_updates == without._n_updates >= 10
    assert torch.equal(first.learner.flat, again.learner.flat)
    assert not torch.equal(first.learner.flat, without.learner.flat)
    assert torch.isfinite(first.learner.flat).all()
