"""What a class takes from its paper holds below what a user says, and for every way to name a policy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from sb_dqn.algorithms import BTR, DQN, R2D2, DataEfficientRainbow, Rainbow
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import ImpalaCNN, NatureCNN
from sb_dqn.nn.layers.linear import Noisy, NoisyLinear
from sb_dqn.nn.layers.norms import ImageLayerNorm, SpectralLayer
from sb_dqn.policies import CnnPolicy
from tests.tiny import Tiny, quick

SMALL = {"net_arch": [8]}
MASKED = spaces.Dict({"camera": spaces.Box(0, 255, (1, 44, 44), np.uint8), "legal": spaces.Box(0, 1, (3,), np.int8)})


class Shown(gymnasium.Env[Any, Any]):
    observation_space: Any = spaces.Box(0, 255, (1, 44, 44), np.uint8)
    action_space = spaces.Discrete(3)


class Masked(Shown):
    observation_space = MASKED


@pytest.mark.parametrize(
    ("algorithm", "given", "alpha", "beta", "eps"),
    [
        (Rainbow, True, 0.5, 0.4, 1e-6),
        (Rainbow, {"eps": 1e-5}, 0.5, 0.4, 1e-5),
        (Rainbow, {"alpha": 0.9}, 0.9, 0.4, 1e-6),
        (BTR, {"eps": 1e-5}, 0.2, 0.45, 1e-5),
        (R2D2, {"eps": 1e-5}, 0.9, 0.6, 1e-5),
        (DQN, {"eps": 1e-5}, 0.6, 0.4, 1e-5),
    ],
)
def test_priorities(algorithm: Any, given: Any, alpha: float, beta: float, eps: float) -> None:
    sampler: Any = quick(algorithm=algorithm, policy_kwargs=SMALL, prioritized_replay=given).replay.sampler
    settings = sampler.settings
    assert (settings.alpha, settings.beta(0, 100), settings.eps) == (alpha, beta, eps)


@pytest.mark.parametrize(
    ("noisy", "sigma"),
    [
        (True, 0.1),
        ("factorised", 0.1),
        ({"sigma": 0.3}, 0.3),
        ({}, 0.1),
        ({"kind": "factorised"}, 0.1),
        ({"kind": "factorised", "sigma": 0.3}, 0.3),
        ({"kind": "factorised", "sigma": None}, 0.5),
        (Noisy(), 0.5),
        (Noisy("factorised", 0.2), 0.2),
        ("independent", 0.017),
        ({"kind": "independent"}, 0.017),
        ({"kind": "independent", "sigma": 0.1}, 0.1),
        (Noisy("independent"), 0.017),
    ],
)
def test_noise(noisy: Any, sigma: float) -> None:
    model = quick(algorithm=DataEfficientRainbow, policy_kwargs=SMALL, noisy=noisy)
    layer = next(layer for layer in model.policy.modules() if isinstance(layer, NoisyLinear))
    scale = layer.in_features**0.5 if layer.factorised else 1.0
    assert layer.sigma_weight.flatten()[0].item() * scale == pytest.approx(sigma)


@pytest.mark.parametrize("policy", ["CnnPolicy", CnnPolicy, "CnnLstmPolicy"])
@pytest.mark.parametrize(("algorithm", "torso"), [(BTR, ImpalaCNN), (DataEfficientRainbow, NatureCNN)])
def test_torsos(algorithm: Any, torso: Any, policy: Any) -> None:
    model = quick(Shown(), policy, algorithm, policy_kwargs=None)
    (found,) = [module for module in model.policy.q_net.modules() if isinstance(module, (ImpalaCNN, NatureCNN))]
    assert type(found) is torso
    assert len([name for name, _ in found.named_parameters() if "weight" in name]) == (15 if torso is ImpalaCNN else 2)


class Atari(Shown):
    """Four frames, and the eighteen actions of the whole joystick."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(18)


def parameters(net: nn.Module, kind: Any) -> int:
    """Counts the parameters of the layers of a kind, without those that scale noise."""
    return sum(
        parameter.numel()
        for part in net.modules()
        if isinstance(part, kind)
        for name, parameter in part.named_parameters(recurse=False)
        if "sigma" not in name
    )


def test_btr_has_the_parameters_of_its_paper() -> None:
    """2.91M with 18 actions, of which 2.52M linear; the paper does not count those of the noise."""
    net = quick(Atari(), "CnnPolicy", BTR, policy_kwargs=None, buffer_size=100).policy.q_net
    convolutions, linear = parameters(net, nn.Conv2d), parameters(net, (nn.Linear, NoisyLinear))
    streams, embedding, outputs = 2 * (2_304 * 512 + 512), 64 * 2_304 + 2_304, 513 + 513 * 18
    assert (convolutions, linear) == (389_024, streams + embedding + outputs) == (389_024, 2_519_827)
    assert convolutions + linear == 2_908_851
    noise = sum(parameter.numel() for name, parameter in net.named_parameters() if "sigma" in name)
    assert noise == streams + outputs  # the embedding of fractions is not noisy
    assert sum(parameter.numel() for parameter in net.parameters()) == 2_908_851 + noise


def test_btr_has_spectral_norm_in_its_twelve_residual_convolutions_only() -> None:
    net = quick(Atari(), "CnnPolicy", BTR, policy_kwargs=None, buffer_size=100).policy.q_net
    names = [name for name, part in net.named_modules() if isinstance(part, SpectralLayer)]
    assert len(names) == 12
    assert all(isinstance(net.get_submodule(name), nn.Conv2d) for name in names)
    assert all(name.endswith((".first", ".second")) for name in names)


def test_btr_with_layer_norm_has_it_in_stages_and_between_dense_layers() -> None:
    net = quick(Atari(), "CnnPolicy", BTR, policy_kwargs={"layer_norm": True}, buffer_size=100).policy.q_net
    shapes = [part.normalized_shape for part in net.modules() if isinstance(part, nn.LayerNorm)]
    assert shapes == [(84, 84, 32), (42, 42, 64), (21, 21, 64), (512,), (512,)]
    assert [type(part) for part in net.features.extractor.cnn][:3] == [nn.Conv2d, ImageLayerNorm, nn.MaxPool2d]


def test_btr_evaluates_its_online_network_with_mean_weights_and_no_epsilon() -> None:
    model = quick(algorithm=BTR, policy_kwargs=SMALL, exploration={"schedule": 1.0})
    with torch.no_grad():
        for parameter in model.policy.q_net_target.parameters():
            parameter.fill_(torch.nan)
    observation = np.array([[0.3, -0.7]] * 50, np.float32)
    greedy = model.policy.q_net({"obs": torch.from_numpy(observation)}).q.argmax(-1)
    for _ in range(3):
        assert model.predict(observation, deterministic=True)[0].tolist() == greedy.tolist()
    assert len(set(model.predict(observation, deterministic=False)[0].tolist())) > 1


def test_images_of_a_dict_have_the_torso_too() -> None:
    model = quick(Masked(), "MultiInputPolicy", BTR, action_mask="legal")
    (found,) = [module for module in model.policy.q_net.modules() if isinstance(module, (ImpalaCNN, NatureCNN))]
    assert type(found) is ImpalaCNN
    kwargs = {"cnn_class": NatureCNN, "cnn_kwargs": {"channels": (4, 4, 4)}, "cnn_output_dim": 7}
    model = quick(
        Masked(), "MultiInputPolicy", action_mask="legal", policy_kwargs={"features_extractor_kwargs": kwargs}
    )
    (nature,) = [module for module in model.policy.q_net.modules() if isinstance(module, NatureCNN)]
    assert nature.features_dim == 7
    with pytest.raises(ConfigurationError, match=r"cnn_class.*'Nature'.*NatureCNN"):
        quick(Masked(), "MultiInputPolicy", policy_kwargs={"features_extractor_kwargs": {"cnn_class": "Nature"}})


def test_a_constant_epsilon() -> None:
    assert quick(Tiny(), exploration_initial_eps=0.5, exploration_final_eps=0.5).exploration_rate == 0.5
