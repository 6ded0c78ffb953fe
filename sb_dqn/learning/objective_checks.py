"""Checks of objectives, since an own one may be wrong in ways that do not raise errors."""

from __future__ import annotations

from typing import Any

from sb_dqn.errors import ConfigurationError
from sb_dqn.types import Batch, Objective


def check_objective(objective: Objective) -> Objective:
    """Returns `objective` if it has `reports`.

    Raises:
        ConfigurationError: it has none.
    """
    if getattr(objective, "reports", None) is None:
        raise ConfigurationError(
            f"{type(objective).__name__} must have an attribute `reports` with the names of its logged extras. Add reports = "
            f"('q_mean',), for example, or ()."
        )
    return objective


def check_outputs(objective: Objective, outputs: Any, batch: Batch) -> None:
    """Checks the loss of each row `[N]` and the extras that an objective returned.

    Raises:
        ConfigurationError: a shape is wrong, or a report is missing.
    """
    name = type(objective).__name__
    rows, places = batch.weight.shape, batch.place.shape[-1:]  # of sequences, one place for many rows
    try:
        loss, facts = outputs
        missing = [fact for fact in objective.reports if fact not in facts]
        shapes = {
            "loss": (loss.shape, rows),
            "priority": (facts["priority"].shape, places) if "priority" in facts else (rows, rows),
        }
    except (TypeError, ValueError, AttributeError):
        raise ConfigurationError(
            f"{name} must return the loss of each row [N] and a dict of extras, got {type(outputs).__name__}. Return both."
        ) from None
    if missing:
        raise ConfigurationError(
            f"{name} must return every extra in its reports, got {sorted(facts)} without {missing}. Add them, or shorten reports."
        )
    for what, (shape, expected) in shapes.items():
        if shape != expected:
            raise ConfigurationError(
                f"{what} of {name} must have shape {list(expected)}, got {list(shape)}. Return one number per row; the learner "
                f"applies weights and the mean."
            )
