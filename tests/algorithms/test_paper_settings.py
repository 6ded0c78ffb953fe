"""What a class takes from its paper holds below what a user says, and for every way to name a policy."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn.algorithms import BTR, DQN, R2D2, DataEfficientRainbow, Rainbow
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import ImpalaCNN, NatureCNN
from sb_dqn.nn.layers.linear import Noisy, NoisyLinear
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
