"""Priorities of sequences, and which of their steps count: worked numbers with decoys."""

from __future__ import annotations

import pytest
import torch

from sb_dqn.losses.sequences import sequence_priority, valid_steps
from tests.modes import Variant

ERRORS = torch.tensor([[0.5, -1.0, 2.0, 0.25]]).T


def test_worked_numbers(variant: Variant) -> None:
    arguments = (ERRORS.repeat(1, 2), torch.tensor([[True, True], [True, True], [True, False], [True, False]]))
    found = variant(sequence_priority, arguments)(*arguments)
    assert found.tolist() == pytest.approx(
        [1.89375, 0.975]
    )  # decoys: the mean of all four 0.99375, signed errors 1.84375


def test_what_does_not_count_may_hold_anything() -> None:
    spoilt = torch.tensor([[0.5, 1.0, float("nan"), 99.0]]).T
    valid = torch.tensor([[True, True, False, False]]).T
    assert sequence_priority(spoilt, valid, 0.9).tolist() == pytest.approx([0.975])
    assert sequence_priority(spoilt, torch.zeros_like(valid), 0.9).tolist() == [0.0]


@pytest.mark.parametrize(("eta", "want"), [(1.0, 2.0), (0.0, 0.9375)])
def test_the_ends_are_the_largest_and_the_mean(eta: float, want: float) -> None:
    assert sequence_priority(ERRORS, torch.ones(4, 1, dtype=torch.bool), eta).tolist() == pytest.approx([want])


def test_steps_count_up_to_the_first_end(variant: Variant) -> None:
    """An end on *arriving* at step 2 (of the seed system: `done[1]`) leaves the steps 0 and 1; a second end revives nothing."""
    last = torch.tensor([[0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool).T
    assert variant(valid_steps, (last,))(last).T.int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]
