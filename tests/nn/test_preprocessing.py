"""From stored observations to what a network reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.errors import SpaceError
from sb_dqn.nn.torsos.feature_extractor import Preprocess
from sb_dqn.spaces import is_image


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def bools(*shape: int) -> spaces.Box:
    return spaces.Box(0, 1, shape, bool)  # type: ignore[arg-type]  # gymnasium takes it, its annotations do not say so


def pixels(*shape: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def leaf(space: spaces.Space[object], x: torch.Tensor, **kwargs: object) -> torch.Tensor:
    return Preprocess(space, **kwargs)({"obs": x}, torch.float32)["obs"]  # type: ignore[arg-type]  # mixed on purpose


def test_images_become_0_to_1_in_nchw() -> None:
    x = pixels(5, 4, 8, 9)
    found = leaf(image(4, 8, 9), x)
    torch.testing.assert_close(found, x.float() / 255)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_hwc_images_are_turned() -> None:
    x = pixels(5, 8, 9, 3)
    found = leaf(image(8, 9, 3), x)
    torch.testing.assert_close(found, x.permute(0, 3, 1, 2).float() / 255)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert Preprocess(image(8, 9, 3)).feature_spaces()["obs"].shape == (3, 8, 9)


def test_the_stored_pixels_are_left_alone() -> None:
    x = pixels(2, 4, 8, 9)
    before = x.clone()
    leaf(image(4, 8, 9), x)
    assert torch.equal(x, before)


def test_pixels_as_they_are() -> None:
    x = pixels(5, 4, 8, 9)
    torch.testing.assert_close(leaf(image(4, 8, 9), x, normalize_images=False), x.float())


def test_channels_must_be_said_where_the_shape_does_not_tell() -> None:
    with pytest.raises(SpaceError, match="channels='first'"):
        Preprocess(image(3, 8, 3))
    x = pixels(2, 3, 8, 3)
    torch.testing.assert_close(leaf(image(3, 8, 3), x, channels="first"), x.float() / 255)
    torch.testing.assert_close(leaf(image(3, 8, 3), x, channels="last"), x.permute(0, 3, 1, 2).float() / 255)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (3, 8, 9), np.float32),
        spaces.Box(0, 254, (3, 8, 9), np.uint8),
        spaces.Box(0, 255, (8, 9), np.uint8),
        spaces.Box(0, 255, (3, 8, 9), np.int32),
    ],
)
def test_only_images_are_divided(space: spaces.Box) -> None:
    x = torch.full((2, *space.shape), 7).to(torch.from_numpy(np.zeros(0, space.dtype)).dtype)
    assert leaf(space, x).unique().tolist() == [7.0]


@pytest.mark.parametrize("channels", [1, 4, 6, 7, 10, 16])
def test_images_of_bools_become_floats_in_nchw(channels: int) -> None:
    space = bools(10, 10, channels)  # MinAtar's
    x = pixels(5, 10, 10, channels) > 99
    found = leaf(space, x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, x.permute(0, 3, 1, 2).float(), rtol=0, atol=0)
    assert found.is_contiguous(memory_format=torch.channels_last)
    after = Preprocess(space).feature_spaces()["obs"]
    assert after == bools(channels, 10, 10)
    assert is_image(after)


def test_bools_with_channels_first() -> None:
    x = pixels(2, 4, 10, 10) > 99
    torch.testing.assert_close(leaf(bools(4, 10, 10), x), x.float(), rtol=0, atol=0)
    cube = pixels(2, 10, 10, 10) > 99
    found = leaf(bools(10, 10, 10), cube, channels="first")
    torch.testing.assert_close(found, cube.float(), rtol=0, atol=0)


def test_images_that_the_user_has_normalized() -> None:
    space = spaces.Box(-1.0, np.float32(1), (10, 12, 4), np.float32)
    x = torch.randn(3, 10, 12, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(leaf(space, x), x)  # three axes of floats are no image unless one says so
    found = leaf(space, x, normalize_images=False)
    torch.testing.assert_close(found, x.permute(0, 3, 1, 2))
    assert found.is_contiguous(memory_format=torch.channels_last)
    after = Preprocess(space, normalize_images=False).feature_spaces()["obs"]
    assert after == spaces.Box(-1.0, 1.0, (4, 10, 12), np.float32)
    whole = spaces.Box(0, 1, (10, 10, 6), np.uint8)
    ones = pixels(2, 10, 10, 6) % 2
    torch.testing.assert_close(leaf(whole, ones, normalize_images=False), ones.permute(0, 3, 1, 2).float())


def test_bounds_turn_with_the_axes() -> None:
    low, high = np.zeros((2, 3, 4), np.float32), np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    after = Preprocess(spaces.Box(low, high), normalize_images=False, channels="last").feature_spaces()["obs"]
    assert after == spaces.Box(low.transpose(2, 0, 1), high.transpose(2, 0, 1))


def test_whole_numbers_become_one_hot() -> None:
    assert leaf(spaces.Discrete(3), torch.tensor([0, 2])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert leaf(spaces.Discrete(3, start=-1), torch.tensor([-1, 1])).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_several_whole_numbers() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    assert leaf(space, torch.tensor([[1, 5], [0, 7]])).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    matrix = spaces.MultiDiscrete(np.array([[2, 2], [2, 3]]))
    assert leaf(matrix, torch.tensor([[[1, 0], [0, 2]]])).tolist() == [[0, 1, 1, 0, 1, 0, 0, 0, 1]]


def test_bits() -> None:
    assert leaf(spaces.MultiBinary((2, 2)), torch.tensor([[[1, 0], [1, 1]]], dtype=torch.int8)).tolist() == [
        [1, 0, 1, 1]
    ]


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (spaces.Discrete(5, start=2), 5),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.MultiDiscrete(np.array([[2, 2], [2, 3]])), 9),
        (spaces.MultiBinary(4), 4),
        (spaces.MultiBinary((2, 3)), 6),
    ],
)
def test_widths_agree_with_what_is_made(space: spaces.Space[object], width: int) -> None:
    assert Preprocess(space).feature_spaces()["obs"].shape == (width,)
    sample = torch.from_numpy(np.asarray(space.sample()))[None]
    assert leaf(space, sample).shape == (1, width)


def test_keys_of_a_nested_dict() -> None:
    space = spaces.Dict({"a": spaces.Dict({"x": spaces.Discrete(2)}), "b": spaces.Box(-1, 1, (2,), np.float64)})
    found = Preprocess(space)({"a/x": torch.tensor([1]), "b": torch.zeros(1, 2)}, torch.bfloat16)
    assert list(found) == ["a/x", "b"]
    assert {x.dtype for x in found.values()} == {torch.bfloat16}
