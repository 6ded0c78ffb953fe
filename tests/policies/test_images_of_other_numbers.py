"""Images that are no bytes: `normalize_images=False` says that they are images."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import BTR, DQN, PPO, DataEfficientRainbow
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import FlattenExtractor, ImpalaCNN, MinAtarCNN, NatureCNN

FLOATS = spaces.Box(-1.0, 1.0, (3, 40, 44), np.float32)
BYTES = spaces.Box(0, 255, (3, 64, 64), np.uint8)
VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)


class Shown(gymnasium.Env[Any, Any]):
    """Random observations of a space, for ten steps."""

    action_space = spaces.Discrete(3)

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space, self.t = space, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 10, False, {}


def small(cls: Any) -> dict[str, int]:
    """A replay that needs little memory, for those that have one."""
    return {} if cls is PPO else {"buffer_size": 300}


@pytest.mark.parametrize("cls", [DQN, PPO])
@pytest.mark.parametrize("policy", ["CnnPolicy", "CnnLstmPolicy"])
def test_one_image(cls: Any, policy: str) -> None:
    with pytest.raises(ConfigurationError, match="must be one image .* for CnnPolicy.*'normalize_images': False"):
        cls(policy, Shown(FLOATS), **small(cls))
    model = cls(policy, Shown(FLOATS), policy_kwargs={"normalize_images": False}, **small(cls))
    assert any(isinstance(part, NatureCNN) for part in model.policy.modules())
    model.predict(FLOATS.sample())


@pytest.mark.parametrize(
    ("cls", "policy"), [(DQN, "MultiInputPolicy"), (PPO, "MultiInputPolicy"), (DQN, "MultiInputLstmPolicy")]
)
def test_images_of_a_dict(cls: Any, policy: str) -> None:
    env = Shown(spaces.Dict({"far": FLOATS, "near": spaces.Box(-1.0, 1.0, (2, 10, 10), np.float32), "row": VECTOR}))
    model = cls(policy, env, policy_kwargs={"normalize_images": False}, **small(cls))
    (parts, *_) = [part.parts for part in model.policy.modules() if hasattr(part, "parts")]
    assert [type(part) for part in parts] == [NatureCNN, MinAtarCNN, FlattenExtractor]
    model.predict(env.observation_space.sample())
    as_vectors = cls(policy, env, **small(cls))
    (parts, *_) = [part.parts for part in as_vectors.policy.modules() if hasattr(part, "parts")]
    assert {type(part) for part in parts} == {FlattenExtractor}


def test_the_papers_torsos_within_a_dict() -> None:
    env = Shown(spaces.Dict({"image": BYTES, "row": VECTOR}))
    found = {}
    for cls in (BTR, DataEfficientRainbow):
        model: Any = cls("MultiInputPolicy", env, buffer_size=300)
        (found[cls], *_) = [part.parts[0] for part in model.policy.modules() if hasattr(part, "parts")]
    assert isinstance(found[BTR], ImpalaCNN)
    small = found[DataEfficientRainbow]
    assert isinstance(small, NatureCNN)
    assert [tuple(weight.shape) for weight in small.parameters() if weight.ndim == 4] == [(32, 3, 5, 5), (64, 32, 5, 5)]
    assert small.features_dim == 256


@pytest.mark.parametrize(("cls", "smallest"), [(BTR, 41), (DataEfficientRainbow, 25)])
def test_the_papers_torsos_and_small_images(cls: Any, smallest: int) -> None:
    def make(size: int, **kwargs: Any) -> Any:
        return cls("CnnPolicy", Shown(spaces.Box(0, 255, (1, size, size), np.uint8)), buffer_size=300, **kwargs)

    with pytest.raises(ConfigurationError, match="features_extractor_class=MinAtarCNN"):
        make(smallest - 1)
    make(smallest)
    make(10, policy_kwargs={"features_extractor_class": "MinAtarCNN"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"cnn_class": 3},
            r"features_extractor_kwargs\['cnn_class'\] must be a subclass of BaseFeaturesExtractor, got 3",
        ),
        ({"cnn_class": "NatureCn"}, "cnn_class.*NatureCNN"),
        ({"cnn_class": "FlattenExtractor"}, "must be one of .* got 'FlattenExtractor'"),
        ({"cnn_kwargs": 5}, r"cnn_kwargs'\] must be a dict.* got 5"),
        (
            {"cnn_class": "ImpalaCNN", "cnn_kwargs": {"wdth": 2}},
            "cnn_kwargs must be arguments of ImpalaCNN, among .*'width'",
        ),
        ({"cnn_output_dim": 0}, r"cnn_output_dim'\] must be .* got 0"),
    ],
)
def test_what_a_dict_refuses(given: dict[str, Any], message: str) -> None:
    env = Shown(spaces.Dict({"image": BYTES, "row": VECTOR}))
    with pytest.raises(ConfigurationError, match=message):
        DQN("MultiInputPolicy", env, policy_kwargs={"features_extractor_kwargs": given}, buffer_size=300)
