"""Normalized weights of spectral layers, shared by the passes of an update and cached for acting: never those of old weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from sb_dqn import BTR, DQN, PPO
from sb_dqn.accelerate import forced_mode
from sb_dqn.callbacks import CheckpointCallback
from sb_dqn.learning.learner import Learner
from sb_dqn.learning.parameter_store import ParameterStore
from sb_dqn.nn.layers.norms import SpectralLayer, SpectralWeights, spectrally_normalized
from sb_dqn.objectives.bootstrap import Bootstrap
from sb_dqn.objectives.q_learning import QLearning
from sb_dqn.policies import CnnPolicy, MlpPolicy, QPolicy
from sb_dqn.rng import torch_seeded
from tests.continuing import differences
from tests.marks import SLOW, a_few
from tests.nets import PICTURE, SMALL_CNN, VECTOR, make_batch
from tests.tiny import Tiny, quick

OBS = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))


def policy_of(name: str) -> QPolicy:
    """A policy with spectral layers, whose target differs from its online network."""
    kwargs: dict[str, Any] = {"net_arch": [12, 5]} if name == "mlp" else {"features_extractor_kwargs": SMALL_CNN}
    policy_class, space = (MlpPolicy, VECTOR) if name == "mlp" else (CnnPolicy, PICTURE)
    with torch_seeded(0):
        policy = policy_class(space, spaces.Discrete(3), spectral_norm=True, **kwargs)
        with torch.no_grad():
            for parameter in policy.q_net_target.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
    return policy


def learner_of(policy: QPolicy, **kwargs: Any) -> Learner:
    return Learner(policy.q_net, policy.q_net_target, QLearning(Bootstrap(double_q=True)), **kwargs)


def layers(network: Any) -> list[SpectralLayer]:
    return [part for part in network.modules() if isinstance(part, SpectralLayer)]


def in_use(learner: Learner) -> list[tuple[Tensor, Tensor]]:
    """The weights that the layers of both networks divide by in an update, and those that they should."""
    with learner.store.learning_weights():
        found = [layer.shared_weight for network in (learner.online, learner.target) for layer in layers(network)]
    expected = [
        spectrally_normalized(layer.weight) for network in (learner.online, learner.target) for layer in layers(network)
    ]
    assert all(weight is not None for weight in found)
    return list(zip(found, expected, strict=True))  # type: ignore[arg-type]  # checked above


def assert_current(learner: Learner) -> None:
    pairs = in_use(learner)
    assert len(pairs) == 4
    for found, expected in pairs:
        torch.testing.assert_close(found, expected, rtol=1e-5 if found.dtype == torch.float32 else 1e-2, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_an_update_is_that_of_layers_that_each_compute_their_own(name: str) -> None:
    learner, batch = learner_of(policy_of(name)), make_batch(name, 1)
    gradient, priority, update = learner.gradient(batch)
    with patch.object(ParameterStore, "learning_weights", lambda _: nullcontext()):
        expected, expected_priority, expected_update = learner.gradient(batch)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(priority, expected_priority, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(update.loss, expected_update.loss)
    with patch.object(SpectralWeights, "computed", SpectralWeights.cached):  # decoy: sigma as a constant
        constant, *_ = learner.gradient(batch)
    assert not torch.allclose(constant, expected, rtol=0.05, atol=1e-3 * float(expected.norm()))


def by_hand(learner: Learner, then: Callable[[Learner], None]) -> None:
    learner.flat.mul_(1.7).add_(0.01)
    learner.flat_target.mul_(0.3).add_(0.02)
    then(learner)


def by_data(learner: Learner) -> None:
    for parameter in learner.store.masters + learner.store.target_masters:
        parameter.data.add_(0.05)
    learner.store.gather([*learner.store.masters, *learner.store.target_masters])


def by_step(learner: Learner) -> None:
    learner.set_learning_rate(0.3)
    learner.apply(learner.gradient(make_batch("mlp", 1))[0])


def by_replaced_storage(learner: Learner) -> None:
    parameters = [*learner.store.masters, *learner.store.target_masters]
    total = sum(parameter.numel() for parameter in parameters)
    torch.nn.utils.vector_to_parameters(torch.linspace(-1.0, 1.0, total), parameters)
    learner.store.gather(parameters)


CHANGES: dict[str, Callable[[Learner], None]] = {
    "step": by_step,
    "sync": lambda learner: learner.store.sync_target(),
    "sync by a share": lambda learner: learner.store.sync_target(0.3),
    "refresh": partial(by_hand, then=lambda learner: learner.refresh()),
    "gather": by_data,
    "replaced storage": by_replaced_storage,
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("change", CHANGES)
def test_no_cache_is_outdated(change: str, precision: str) -> None:
    policy = policy_of("mlp")
    learner = learner_of(policy, precision=precision)
    assert_current(learner)
    before = [found.clone() for found, _ in in_use(learner)]
    acting = [learner.store.acting_weights(network) for network in (policy.q_net, learner.online, learner.target)]
    for weights in acting:
        assert weights is not None
        weights.refresh()
    CHANGES[change](learner)
    assert_current(learner)
    changed = [not torch.equal(old, new) for old, (new, _) in zip(before, in_use(learner), strict=True)]
    assert any(changed)  # else the test would show nothing
    for weights in acting:
        assert weights is not None
        with weights.cached():
            for layer in weights.layers:
                assert layer.shared_weight is not None
                torch.testing.assert_close(
                    layer.shared_weight, spectrally_normalized(layer.weight), rtol=1e-2, atol=1e-6
                )


def test_a_state_dict_needs_no_refresh() -> None:
    policy = policy_of("mlp")
    learner = learner_of(policy)
    acting = learner.store.acting_weights(policy.q_net)
    assert acting is not None
    acting.refresh()
    assert_current(learner)
    policy.load_state_dict({name: value * 0.5 - 0.1 for name, value in policy.state_dict().items()})
    assert_current(learner)
    with acting.cached():
        for layer in layers(policy.q_net):
            torch.testing.assert_close(layer.shared_weight, spectrally_normalized(layer.weight))


def test_layers_are_left_as_they_were() -> None:
    """Also after errors: networks and their copies compute their own outside of updates and acting."""
    policy = policy_of("mlp")
    learner = learner_of(policy)
    state = copy.deepcopy(policy.state_dict())
    with pytest.raises(ZeroDivisionError), learner.store.learning_weights():
        assert all(layer.shared_weight is not None for layer in layers(policy))
        raise ZeroDivisionError
    assert all(layer.shared_weight is None for layer in layers(policy))
    assert policy.state_dict().keys() == state.keys()
    other = copy.deepcopy(policy)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.2)
    expected = policy_of("mlp")
    expected.load_state_dict(other.state_dict())
    torch.testing.assert_close(other.values({"obs": OBS}), expected.values({"obs": OBS}), rtol=0, atol=0)
    plain = torch.nn.Linear(2, 2)
    assert ParameterStore(plain, None, "fp32").acting_weights(plain) is None


def greedy_values(model: Any) -> tuple[Any, Any]:
    """What the model acts on, and what it should."""
    obs = {"obs": OBS.numpy()}
    found = model.collector.actor.selector.runner.run_single(obs, None)
    return found, model.policy.values({"obs": OBS}).detach().numpy()


@SLOW
@pytest.mark.parametrize("traced", [True, False])
def test_acting_follows_the_weights(traced: bool, tmp_path: Path) -> None:
    """In the middle of a `learn`, after loading, and after parameters were set."""
    settings: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8], "spectral_norm": True}, "tau": 0.2}
    settings |= {"exploration": "boltzmann", "learning_rate": 0.05, "learning_starts": 10, "prioritized_replay": True}
    seen = []

    def check(model: Any) -> None:
        np.testing.assert_allclose(*greedy_values(model), rtol=1e-4, atol=1e-5)
        seen.append(greedy_values(model)[0])

    class Check:
        def __call__(self, names: Any, _: Any) -> bool:
            if names["self"].num_timesteps > 15:
                check(names["self"])
            return True

    with forced_mode("traced" if traced else "eager"):
        model = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu", **settings)
        model.learn(60, callback=Check())
        assert not np.allclose(seen[0], seen[-1], atol=1e-2)  # the weights did change
        parameters = {"policy": {name: value + 0.1 for name, value in model.policy.state_dict().items()}}
        model.set_parameters(parameters, exact_match=False)
        check(model)
        assert not np.allclose(seen[-2], seen[-1], atol=1e-2)
        path = model.save(tmp_path / "model")
        loaded = DQN.load(path, env="CartPole-v1", device="cpu")
        loaded.learn(20, callback=Check())


RESUMED: dict[str, dict[str, Any]] = {
    "per": {"prioritized_replay": True, "target_update_interval": 17},
    "tau": {"tau": 0.1, "double_q": True},
    "bf16": {"precision": "bf16", "target_update_interval": 13},
}


@SLOW
@pytest.mark.parametrize("name", a_few(RESUMED, "per"))
def test_a_resumed_run_is_the_same(name: str, tmp_path: Path) -> None:
    """Bit for bit: the caches are functions of the weights alone."""
    make: Any = partial(quick, policy_kwargs={"net_arch": [8, 8], "spectral_norm": True}, **RESUMED[name])
    whole = make("CartPole-v1").learn(120, callback=CheckpointCallback(70, tmp_path, full=True))
    (path,) = tmp_path.glob("*.zip")
    resumed = type(whole).load(path, env="CartPole-v1", device="cpu")
    assert resumed.num_timesteps < whole.num_timesteps
    resumed.resume(callback=CheckpointCallback(70, tmp_path / "again", full=True))
    assert whole._n_updates > 20
    assert differences(whole, resumed) == []


IMAGES: dict[str, Any] = {
    "features_extractor_class": "ImpalaCNN",
    "features_extractor_kwargs": {"features_dim": 8, "widths": (4, 6), "spectral_norm": True},
}


@SLOW
@pytest.mark.parametrize("algorithm", [BTR, PPO])
def test_images(algorithm: Any) -> None:
    """Acting in the middle of a `learn` is what the policy computes, where the network is large and where it samples."""
    settings: dict[str, Any] = (
        {"n_steps": 16, "batch_size": 8}
        if algorithm is PPO
        else {
            "batch_size": 4,
            "buffer_size": 100,
            "learning_starts": 10,
            "train_freq": 2,
            "exploration": {"schedule": 0.0},
        }
    )
    model = algorithm("CnnPolicy", Tiny("image"), seed=0, device="cpu", policy_kwargs=IMAGES, **settings)
    model.learn(40)
    obs = np.random.default_rng(0).integers(0, 256, (3, 1, 12, 12), np.uint8)
    tensor = {"obs": torch.from_numpy(obs)}
    if algorithm is PPO:
        found = model.collector.actor.selector.bootstrap_values({"obs": obs}, None)
        expected = model.policy.value_step(tensor, None)[0]
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4, atol=1e-5)
    weights = model.learner.store.acting_weights(model.policy.networks[0])
    assert weights is not None
    assert len(weights.layers) == 8
    with weights.cached():
        for layer in weights.layers:
            torch.testing.assert_close(layer.shared_weight, spectrally_normalized(layer.weight), rtol=1e-4, atol=1e-5)
