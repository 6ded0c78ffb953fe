"""Single measures against numbers worked by hand, each with decoys that a wrong reading would confuse."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sb_dqn.diagnosis.measures import MEASURES, Diagnosis
from sb_dqn.diagnosis.model import (
    bounded_explained_variance,
    changed_actions,
    different_states,
    effective_rank,
    relative_epsilon,
)
from sb_dqn.diagnosis.sample import discounted_returns
from sb_dqn.nn.units import dormant_share, watched
from sb_dqn.types import Batch


def test_a_unit_is_dormant_by_its_share_of_the_layers_mean() -> None:
    sizes = torch.tensor([4.0, 0.0, 0.02, 0.04])  # mean 1.015: scores 3.94, 0, 0.0197, 0.0394
    alternating = torch.stack([sizes, -sizes])  # signs cancel in a mean without absolute values
    assert dormant_share(alternating) == 0.5
    assert dormant_share(alternating * 1e-3) == 0.5, "the scale of the layer does not matter"
    assert dormant_share(torch.zeros(3, 5)) == 1.0, "a dead layer is not NaN"


def test_the_units_of_a_convolution_are_its_channels() -> None:
    images = torch.zeros(2, 3, 4, 4)
    images[:, 0, 0, 0] = 1.0  # one pixel of channel 0 is active; pixels as units would be 15 of 16 dormant
    assert dormant_share(images) == pytest.approx(2 / 3)


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam])
def test_adams_epsilon_is_compared_with_the_gradients_that_its_moments_have(make: Any) -> None:
    weights = torch.nn.Parameter(torch.zeros(5))
    optimizer = make([weights], eps=0.1)
    assert relative_epsilon(optimizer) is None, "no update so far"
    weights.grad = torch.tensor([0.0, 0.0, 0.01, -0.02, 0.5])  # the first two never had one
    for _ in range(3):
        optimizer.step()
        assert relative_epsilon(optimizer) == pytest.approx(0.1 / 0.02, rel=1e-4)
    assert relative_epsilon(torch.optim.SGD([weights], lr=0.1)) is None


def test_the_effective_rank_counts_singular_values_up_to_99_percent_of_their_sum() -> None:
    values = torch.tensor(
        [60.0, 30.0, 9.5, 0.5]
    )  # shares 0.6, 0.9, 0.995; of the squares it would be 0.8, 0.98, 1 - 5e-5
    q, _ = torch.linalg.qr(torch.randn(7, 4, generator=torch.Generator().manual_seed(0)))
    assert effective_rank(q @ torch.diag(values)) == 3
    assert effective_rank(torch.ones(5, 4)) == 1
    assert effective_rank(torch.zeros(5, 4)) == 0


def test_returns_end_at_terminations_and_are_unknown_before_cuts() -> None:
    rewards = np.array([1, 2, 4, 8, 16], np.float32)
    terminal = np.array([False, True, False, False, False])
    cut = np.array([False, False, False, False, True])
    found = discounted_returns(rewards, terminal, cut, gamma=0.5, unknown=0.2)
    # 1 + 0.5 * 2; 2; then 4 + 0.5 * 8 + 0.25 * 16 with a rest of weight 1/8; rests of 1/4 and 1/2 are too large
    np.testing.assert_array_equal(found, [2.0, 2.0, 12.0, np.nan, np.nan])


def test_changed_actions_are_counted_by_state() -> None:
    before, after = torch.tensor([[0, 1], [2, 2], [1, 0]]), torch.tensor([[0, 1], [3, 3], [1, 1]])
    assert changed_actions(before, after, None).tolist() == [False, True, True]  # half of the entries
    moved = torch.tensor([[0.0, 0.05], [0.0, 0.2]])
    assert changed_actions(torch.zeros(2, 2), moved, torch.tensor([1.0, 10.0])).tolist() == [False, True]


def test_states_are_different_where_any_part_of_the_observation_is() -> None:
    place = torch.tensor([[0.0], [1.0], [0.0], [0.0], [1.0]])
    image = torch.tensor([[[1]], [[1]], [[1]], [[2]], [[1]]], dtype=torch.uint8)
    rows = different_states({"image": image, "place": place})
    assert sorted((int(image[i]), float(place[i])) for i in rows) == [(1, 0.0), (1, 1.0), (2, 0.0)]


def batch_of(returns: list[float], values: list[float], weight: list[float]) -> Batch:
    none = torch.zeros(len(returns))
    extra = {"value": torch.tensor(values)}
    return Batch({}, none, torch.tensor(returns), none, {}, torch.tensor(weight), none, extra=extra)


def test_bounded_explained_variance_of_the_samples_without_padding() -> None:
    batch = batch_of([0.0, 4.0, 1e6], [1.0, 4.0, 0.0], [1.0, 1.0, 0.0])  # errors -1, 0: variance 0.25 of 4
    assert bounded_explained_variance(batch) == pytest.approx(1 - 0.25 / 4)
    shifted = batch_of([0.0, 4.0], [10.0, 14.0], [1.0, 1.0])  # an offset is no variance
    assert bounded_explained_variance(shifted) == 1.0
    flat = batch_of([100.0, 100.0], [99.0, 101.0], [1.0, 1.0])  # the same returns: no division by their variance, 0
    assert -1 < bounded_explained_variance(flat) < 1


def test_activations_are_watched_by_name_and_no_longer_than_the_context() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    with watched(net) as outputs:
        net(torch.ones(4, 2))
    assert {name: output.shape for name, output in outputs.items()} == {"1": (4, 3)}
    before: Tensor = outputs["1"]
    net(torch.zeros(4, 2))
    assert outputs["1"] is before


def test_findings_are_the_values_outside_of_their_bounds() -> None:
    values = {
        "gradient_norm": 1e9,
        "horizon": 2.0,
        "dormant_units": 0.9,
        "effective_rank": 1.0,
        "overestimation": math.nan,
    }
    diagnosis = Diagnosis(values, {"dormant_units": "in torso"})
    named = {finding.name: finding for finding in diagnosis.findings}
    assert named.keys() == {"horizon", "dormant_units", "overestimation"}, "what is NaN is no number within bounds"
    assert (named["horizon"].threshold, named["dormant_units"].threshold) == (5, 0.8)
    assert named["dormant_units"].sentence.startswith("dormant_units = 0.9, should be <= 0.8 (in torso). Set redo=True")
    text = str(diagnosis)
    assert text.count("\n! ") == 3
    assert "gradient_norm   1e+09" in text


@pytest.mark.parametrize("name", MEASURES)
def test_measures_with_bounds_have_a_source_and_advice(name: str) -> None:
    measure: Any = MEASURES[name]
    assert not measure.bounds or (measure.source and measure.advice.endswith("."))


def test_the_page_lists_every_measure_with_its_bounds_and_source() -> None:
    page = (Path(__file__).parents[2] / "docs/pages/does-not-learn.md").read_text(encoding="utf-8")
    for name, measure in MEASURES.items():
        bounds = measure.bounds.replace(">=", "≥").replace("<=", "≤")
        assert f"| `{name}` | {measure.meaning} | {bounds} | {measure.source} |" in page
