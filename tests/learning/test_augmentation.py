"""Augmentation of images: crops against a padded image, what is drawn for what, and runs of all kinds of agents."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.algorithms import DQN, R2D2, SAC
from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.augmentation import Augmentation, ImageAugmentation, shift_images
from sb_dqn.types import Batch
from tests.continuing import digest
from tests.marks import SLOW
from tests.tiny import SMALL_CNN, Tiny, lanes, quick

SMALL: dict[str, Any] = {"features_extractor_kwargs": SMALL_CNN}
IMAGE: dict[str, Any] = {"policy": "CnnPolicy", "policy_kwargs": SMALL}


@settings(max_examples=40, derandomize=True, database=None)
@given(
    pad=st.integers(0, 4),
    height=st.integers(1, 7),
    width=st.integers(1, 7),
    hwc=st.booleans(),
    seed=st.integers(0, 999),
)
def test_equal_to_a_crop_of_the_padded_image(pad: int, height: int, width: int, hwc: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (3, 2, height, width), np.uint8)
    offsets = rng.integers(0, 2 * pad + 1, (3, 2))
    padded = np.pad(images, ((0, 0), (0, 0), (pad, pad), (pad, pad)), mode="edge")
    want = np.stack(
        [padded[i, :, top : top + height, left : left + width] for i, (top, left) in enumerate(offsets.tolist())]
    )
    given_images = torch.from_numpy(images)
    if hwc:
        given_images, want = given_images.permute(0, 2, 3, 1), want.transpose(0, 2, 3, 1)
    found = shift_images(given_images, torch.from_numpy(offsets), pad, hwc)
    assert found.dtype == torch.uint8
    np.testing.assert_array_equal(found, want)


def test_a_shift_by_hand() -> None:
    """A crop that starts one row later moves the image up, its last row repeated; the other direction would repeat the first."""
    image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    assert shift_images(image, torch.tensor([[2, 1]]), 1).tolist() == [[[[3, 4], [3, 4]]]]
    assert shift_images(image, torch.tensor([[1, 0]]), 1).tolist() == [[[[1, 1], [3, 3]]]]
    assert shift_images(image, torch.tensor([[1, 1]]), 1).tolist() == image.tolist()


def augmented(settings: Augmentation, model: Any, rows: int = 16) -> ImageAugmentation:
    return ImageAugmentation(settings, model.policy.networks[0], rows, torch.device("cpu"))


def batch_of(obs: dict[str, torch.Tensor], next_obs: dict[str, torch.Tensor]) -> Batch:
    numbers = torch.zeros(len(next(iter(obs.values()))))
    return Batch(obs, numbers.long(), numbers, numbers, next_obs, numbers, torch.zeros(2, len(numbers)).long())


def test_intensity_by_hand_and_what_has_draws_of_its_own() -> None:
    model = quick(Tiny("dict with image"), "MultiInputPolicy")
    changes = augmented(Augmentation(shift=0, intensity=0.05), model, rows=4)
    changes.normal.copy_(torch.tensor([[1.0, -3.0, 0.5, 2.5]]))
    camera, place = torch.full((2, 1, 3, 3), 100, dtype=torch.uint8), torch.ones(2, 2)
    batch = changes(batch_of({"camera": camera, "place": place}, {"camera": camera, "place": place}))
    found = [float(x) for x in torch.cat([batch.obs["camera"], batch.next_obs["camera"]])[:, 0, 0, 0]]
    assert found == pytest.approx([105.0, 90.0, 102.5, 110.0])  # -3 and 2.5 are clipped; else 85 and 112.5
    assert batch.obs["place"] is place
    assert camera.unique().tolist() == [100]


def test_numbers_are_even_and_change_from_draw_to_draw() -> None:
    changes = augmented(Augmentation(shift=4), quick(Tiny("image"), **IMAGE), rows=9000)
    changes.draw(torch.Generator().manual_seed(0))
    first = changes.offsets.clone()
    counts = torch.bincount(first.flatten(), minlength=10)
    assert counts[9] == 0  # 0 .. 8; the published code of BBF leaves out 8
    assert counts[:9].min() > 1700
    assert not torch.equal(first[..., 0], first[..., 1])
    changes.draw(torch.Generator().manual_seed(1))
    assert not torch.equal(first, changes.offsets)


CASES: dict[str, dict[str, Any]] = {
    "image": {**IMAGE},
    "channels last": {**IMAGE, "env": partial(Tiny, "hwc")},
    "bf16, double, n-step, priorities": {
        **IMAGE, "precision": "bf16", "double_q": True, "n_steps": 3, "prioritized_replay": True, "dueling": True,
    },
    "dict": {"policy": "MultiInputPolicy", "env": partial(Tiny, "dict with image")},
    "R2D2": {"algorithm": R2D2, "replay_ratio": 8.0, "policy": "CnnPolicy"},
    "SAC": {"algorithm": SAC, **IMAGE},
}  # fmt: skip


@SLOW
@pytest.mark.parametrize("name", CASES)
def test_runs(name: str) -> None:
    def run(augmentation: Any) -> Any:
        settings = dict(CASES[name])
        env = settings.pop("env", partial(Tiny, "image"))
        return quick(lanes(2, env), augmentation=augmentation, **settings).learn(40)

    first, again, without = run({"shift": 2}), run({"shift": 2}), run(False)
    assert first._n_updates >= 2
    assert digest(first) == digest(again)
    assert not torch.equal(first.learner.flat, without.learner.flat)


def test_images_of_a_batch_stay_those_of_the_replay() -> None:
    """Images are made floats by the intensity; nothing that reads them may write to them."""
    model = quick(Tiny("image"), **IMAGE, augmentation=True).learn(60)
    batch = model.replay.sample(8)
    before = {key: x.clone() for key, x in batch.obs.items()}
    floats = batch._replace(obs={key: x.float() for key, x in batch.obs.items()})
    kept = {key: x.clone() for key, x in floats.obs.items()}
    values = model.policy.q_net(floats.obs).q
    torch.testing.assert_close(values, model.policy.q_net(batch.obs).q)
    assert all(torch.equal(floats.obs[key], kept[key]) and torch.equal(batch.obs[key], before[key]) for key in kept)


def test_batches_of_another_size_are_augmented() -> None:
    model: Any = quick(lanes(2, partial(Tiny, "image")), augmentation={"shift": 2}, **IMAGE).learn(40)
    model.batch_size = 24
    model.learn(20, reset_num_timesteps=False)
    assert model.learner.augmentation.offsets.shape == (1, 48, 2)
    assert bool((model.learner.augmentation.offsets != 0).any())


@pytest.mark.parametrize("value", ["crop", 4, None, {"shift": -1}, {"shift": 0, "intensity": 0.0}, {"pad": 3}])
def test_bad_settings(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="augmentation"):
        quick(augmentation=value)


def test_vectors_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="augmentation must be False without images"):
        DQN("MlpPolicy", "CartPole-v1", augmentation=True)
