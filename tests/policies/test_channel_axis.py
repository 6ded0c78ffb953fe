"""Which axis of an image holds the channels: the network that comes of it, what is printed, and how it is overruled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN, PPO
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError
from sb_dqn.nn import MinAtarCNN, NatureCNN
from sb_dqn.nn.torsos.feature_extractor import Features
from sb_dqn.nn.torsos.features import images_of
from tests.marks import SLOW
from tests.policies.test_images_of_other_numbers import Shown


def pixels(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def features(model: Any) -> Features:
    return next(part for part in model.policy.modules() if isinstance(part, Features))


def first_weights(model: Any) -> tuple[int, ...]:
    return next(tuple(weight.shape) for weight in features(model).parameters() if weight.dim() == 4)


LARGE = [(84, 84, 12), (64, 64, 6), (64, 64, 9), (96, 96, 12), (84, 84, 2), (84, 84, 1), (210, 160, 3), (36, 36, 16)]
SMALL = [*((10, 10, channels) for channels in (1, 4, 5, 6, 7, 8, 9)), (12, 14, 3)]


@SLOW
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("shape", LARGE + SMALL)
def test_large_images_get_the_nature_cnn_and_small_ones_minatars(shape: tuple[int, int, int], first: bool) -> None:
    height, width, channels = shape
    space = pixels(channels, height, width) if first else pixels(*shape)
    model = DQN("CnnPolicy", Shown(space), buffer_size=100, policy_kwargs={"net_arch": [8]})
    assert type(features(model).extractor) is (NatureCNN if shape in LARGE else MinAtarCNN)
    assert first_weights(model)[:2] == ((32, channels) if shape in LARGE else (16, channels))
    model.predict(space.sample())


@pytest.mark.parametrize("cls", [DQN, PPO])
def test_verbose_says_what_was_decided(cls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kwargs = {} if cls is PPO else {"buffer_size": 100}
    cls("CnnPolicy", Shown(pixels(84, 84, 12)), verbose=1, **kwargs)
    line = "image 'obs' of shape (84, 84, 12) is read with channels last: 12 channels of 84 x 84 pixels, NatureCNN\n"
    assert capsys.readouterr().out.count(line) == 1
    cls("CnnPolicy", Shown(pixels(84, 84, 12)), **kwargs)
    assert capsys.readouterr().out == ""


def test_verbose_says_it_of_each_image_of_a_dict(capsys: pytest.CaptureFixture[str]) -> None:
    space = spaces.Dict({"far": pixels(9, 64, 64), "near": pixels(10, 10, 2), "row": spaces.Box(-1, 1, (3,))})
    DQN("MultiInputPolicy", Shown(space), buffer_size=100, verbose=1)
    found = [line for line in capsys.readouterr().out.splitlines() if line.startswith("image")]
    assert found == [
        "image 'far' of shape (9, 64, 64) is read with channels first: 9 channels of 64 x 64 pixels, NatureCNN",
        "image 'near' of shape (10, 10, 2) is read with channels last: 2 channels of 10 x 10 pixels, MinAtarCNN",
    ]


def test_channels_by_key() -> None:
    space = spaces.Dict({"cube": pixels(10, 10, 10), "board": pixels(12, 10, 9), "clear": pixels(12, 12, 3)})
    chosen = {"channels": {"cube": "last", "board": "first"}}
    model = DQN("MultiInputPolicy", Shown(space), buffer_size=100, policy_kwargs=chosen)
    assert {key: image.channels for key, image in images_of(model.policy).items()} == {
        "board": "first", "clear": "last", "cube": "last",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ("middle", r"policy_kwargs\['channels'\] must be one of .* got 'middle'"),
        ({"obs": "middle"}, r"policy_kwargs\['channels'\]\['obs'\] must be one of .* got 'middle'"),
        ({"camera": "last"}, r"key of policy_kwargs\['channels'\] must be one of .* got 'camera'"),
        (None, r"policy_kwargs=dict\(channels='first'\) or dict\(channels='last'\)"),
    ],
)
def test_channels_that_are_refused(channels: Any, message: str) -> None:
    with pytest.raises((ConfigurationError, ValueError), match=message):
        DQN("CnnPolicy", Shown(pixels(10, 10, 10)), buffer_size=100, policy_kwargs={"channels": channels})


@pytest.mark.parametrize(("height", "width", "frames"), [(10, 10, 10), (8, 12, 8), (12, 10, 9), (12, 4, 12)])
@pytest.mark.parametrize("said", [{}, {"channels": "last"}])
def test_frames_that_the_model_stacks_have_channels_first(
    height: int, width: int, frames: int, said: dict[str, Any]
) -> None:
    stream = open_stream(Shown(pixels(1, height, width)), options=StreamOptions(frame_stack=frames))
    model = DQN("CnnPolicy", stream, buffer_size=100, policy_kwargs=said)
    assert first_weights(model)[1] == frames
    assert images_of(model.policy)["obs"].channels == "first"
