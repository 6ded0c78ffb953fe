"""Sequence priorities and valid steps: worked numbers with decoys."""

from __future__ import annotations

import pytest
import torch

from sb_dqn.losses.sequences import sequence_priority, valid_steps
from tests.modes import Variant

ERRORS = torch.tensor([[0.5, -1.0, 2.0, 0.25]]).T


def test_worked_numbers(variant: Variant) -> None:
    arguments = (ERRORS.repeat(1, 2), torch.tensor([[True, True], [True, True], [True, False], [True, False]]))
    result = variant(sequence_priority, arguments)(*arguments)
    # decoys: the mean of all four 0.99375, signed errors 1.84375
    assert result.tolist() == pytest.approx([1.89375, 0.975])


def test_errors_of_invalid_steps_are_ignored() -> None:
    errors = torch.tensor([[0.5, 1.0, float("nan"), 99.0]]).T
    valid = torch.tensor([[True, True, False, False]]).T
    assert sequence_priority(errors, valid, 0.9).tolist() == pytest.approx([0.975])
    assert sequence_priority(errors, torch.zeros_like(valid), 0.9).tolist() == [0.0]


@pytest.mark.parametrize(("eta", "expected"), [(1.0, 2.0), (0.0, 0.9375)])
def test_eta_1_is_the_largest_error_and_0_the_mean(eta: float, expected: float) -> None:
    assert sequence_priority(ERRORS, torch.ones(4, 1, dtype=torch.bool), eta).tolist() == pytest.approx([expected])


def test_steps_are_valid_up_to_the_first_end(variant: Variant) -> None:
    """Checks that an end at row 2 keeps steps 0 and 1 valid, and that later steps stay invalid after a second end."""
    last = torch.tensor([[0, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]], dtype=torch.bool).T
    assert variant(valid_steps, (last,))(last).T.int().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
    ]
