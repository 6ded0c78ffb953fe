"""Modules of a user's own that learn in another way than they act: dropout, batch statistics, branches on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sb_dqn.algorithms import DQN, PPO
from sb_dqn.nn import BaseFeaturesExtractor
from tests.tiny import Tiny, quick


class Own(BaseFeaturesExtractor):
    """One layer, and what becomes of its numbers; writes down in which mode it was asked, and whether for a gradient."""

    def __init__(self, space: Any, then: nn.Module) -> None:
        super().__init__(space, 8)
        self.layer, self.then = nn.Linear(space.shape[0], 8), then
        self.asked: set[tuple[bool, bool]] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.asked.add((self.training, torch.is_grad_enabled() and not torch.is_inference_mode_enabled()))
        out: Tensor = self.then(self.layer(x))
        return out


class Branch(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.mean() > 0 else x


def own(then: nn.Module) -> dict[str, Any]:
    return {"policy_kwargs": {"features_extractor_class": Own, "features_extractor_kwargs": {"then": then}}}


def test_dropout_is_for_learning_alone() -> None:
    model = quick(**own(nn.Dropout(0.5)))
    model.learn(60)
    online, target = (net.features.extractor for net in (model.policy.q_net, model.policy.q_net_target))
    assert online.asked == {(True, True), (False, False)}
    assert target.asked == {(False, False)}
    observation = np.ones((1, 2), np.float32)
    obs = {"obs": torch.from_numpy(observation)}
    assert len({model.policy.q_net(obs).q.detach().numpy().tobytes() for _ in range(9)}) == 1
    ppo = PPO("MlpPolicy", Tiny(), n_steps=16, batch_size=8, n_epochs=1, device="cpu", **own(nn.Dropout(0.5)))
    ppo.learn(32)
    assert not ppo.learner.online.training


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_batch_statistics_are_learnt_in_learning_alone(precision: str) -> None:
    model = quick(precision=precision, **own(nn.BatchNorm1d(8)))
    statistics = model.policy.q_net.features.extractor.then
    assert statistics.running_mean.tolist() == [0.0] * 8
    model.learn(60)
    assert int(statistics.num_batches_tracked) == model._n_updates > 10
    assert (statistics.running_mean != 0).all()
    before = statistics.running_mean.clone()
    model.predict(np.ones((5, 2), np.float32))
    assert torch.equal(statistics.running_mean, before)
    twin = model.learner.online.features.extractor.then
    assert torch.equal(twin.running_mean.float(), before)
    model.learner.store.sync_target()
    for net in (model.policy.q_net_target, model.learner.target):
        assert torch.equal(net.features.extractor.then.running_mean.float(), before)


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_a_branch_on_values_is_not_frozen(policy: str) -> None:
    sequences = {"sequences": {"batch_T": 4, "warmup_T": 0, "store_rnn_state_interval": 4}} if "Lstm" in policy else {}
    quick(policy=policy, **own(Branch()), **sequences).learn(60)


class Constants(BaseFeaturesExtractor):
    """Has a constant, batch statistics and dropout."""

    mean: torch.Tensor

    def __init__(self, space: Any) -> None:
        super().__init__(space, 4)
        self.register_buffer("mean", torch.tensor([0.123456, 100.123, -3.3333, 0.7]))
        self.norm, self.dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.dropout(self.norm(x - self.mean.to(x.dtype)))
        return out


def with_constants(**changes: Any) -> Any:
    kwargs = {"features_extractor_class": Constants, "net_arch": [4]}
    settings: dict[str, Any] = {
        "learning_starts": 10,
        "buffer_size": 100,
        "seed": 0,
        "train_freq": 1,
        "policy_kwargs": kwargs,
    }
    return DQN("MlpPolicy", "CartPole-v1", **settings, **changes)


def test_constants_keep_their_precision_in_bf16() -> None:
    model = with_constants(precision="bf16")
    extractor = model.policy.q_net.features.extractor
    model.learn(40)
    assert extractor.mean.equal(torch.tensor([0.123456, 100.123, -3.3333, 0.7]))
    assert not extractor.norm.running_var.equal(torch.ones(4))


def test_a_prior_has_neither_dropout_nor_new_statistics() -> None:
    model = with_constants(ensemble={"members": 2, "prior_scale": 3.0})
    obs = {"obs": torch.randn(5, 4)}
    model.policy.q_net.train()
    before = model.policy.q_net.prior(obs)
    model.policy.q_net.eval()
    model.learn(40)
    assert model.policy.q_net.prior(obs).equal(before)
    assert model.policy.q_net_target.prior(obs).equal(before)


def test_a_tau_of_0_keeps_the_statistics_of_the_target() -> None:
    model = with_constants(tau=0.0, target_update_interval=10)
    model.learn(40)
    assert model.policy.q_net_target.features.extractor.norm.running_var.equal(torch.ones(4))
    assert not model.policy.q_net.features.extractor.norm.running_var.equal(torch.ones(4))


def test_xavier_weights_leave_two_hot_values_at_zero() -> None:
    bins = {"kind": "two_hot", "transform": "symlog", "v_min": -1e5, "v_max": 1e5}
    model = DQN(
        "MlpPolicy", "CartPole-v1", value_loss=bins, policy_kwargs={"xavier_init": True}, buffer_size=100, seed=0
    )
    values = model.q_values(np.ones((3, 4), np.float32))
    rounding = 1e5 * np.finfo(np.float32).eps  # of a sum of parts up to 1e5, whose order depends on the processor
    np.testing.assert_allclose(values, 0.0, atol=rounding)
