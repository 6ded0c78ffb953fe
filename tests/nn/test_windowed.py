"""Convolutions of small images as products: against torch's own, and where they are made."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sb_dqn.accelerate import are_small
from sb_dqn.nn import MinAtarCNN
from sb_dqn.nn.layers.convolution import SMALL_PIXELS, StridedConv2d, WindowedConv2d
from sb_dqn.policies import CnnPolicy
from tests.marks import SLOW
from tests.nets import assert_equal_convolutions

CPU = torch.device("cpu")


@SLOW
@given(
    channels=st.integers(1, 4),
    kernel=st.integers(1, 4),
    step=st.integers(1, 3),
    padding=st.integers(0, 2),
    tall=st.integers(0, 5),
    wide=st.integers(0, 5),
    last=st.booleans(),
)
def test_the_same_numbers_and_gradients_as_torch(
    channels: int, kernel: int, step: int, padding: int, tall: int, wide: int, last: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    plain = nn.Conv2d(channels, 3, kernel, step, padding).double()
    ours = WindowedConv2d(channels, 3, kernel, step, padding).double()
    image = torch.randn(2, channels, kernel + tall, kernel + wide, generator=generator, dtype=torch.float64)
    if last:
        image = image.contiguous(memory_format=torch.channels_last)
    assert_equal_convolutions(plain, ours, image, image)


@pytest.mark.parametrize(("pixels", "kind"), [(SMALL_PIXELS, WindowedConv2d), (SMALL_PIXELS + 1, StridedConv2d)])
def test_small_images_get_them(pixels: int, kind: type[nn.Module]) -> None:
    extractor = MinAtarCNN(spaces.Box(0, 255, (2, 10, pixels), np.uint8))
    assert type(extractor.cnn[0]) is kind
    assert are_small([extractor], CPU) == (kind is WindowedConv2d)


def test_their_work_counts_for_the_number_of_threads() -> None:
    extractor = MinAtarCNN(spaces.Box(0, 255, (2, 10, 10), np.uint8), features_dim=None)
    a_row = 16 * 2 * 3 * 3 * 8 * 8
    assert are_small([extractor], CPU, 2**23 // a_row)
    assert not are_small([extractor], CPU, 2**23 // a_row + 1)


def test_bytes_are_divided_as_in_large_images() -> None:
    features = CnnPolicy(spaces.Box(0, 255, (1, 10, 10), np.uint8), spaces.Discrete(2)).make_features()
    for byte in (0, 51, 255):
        image = torch.full((1, 1, 10, 10), byte, dtype=torch.uint8)
        torch.testing.assert_close(features({"obs": image}), features.extractor(image / 255.0))
