"""What an objective answers, checked: one of a user's own may be wrong in ways that train on in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sb_dqn.errors import ConfigurationError
from sb_dqn.types import Batch, Objective


def check_objective(objective: Objective) -> Objective:
    """`objective`, if it names what it reports.

    Raises:
        ConfigurationError: it does not.
    """
    if getattr(objective, "reports", None) is None:
        raise ConfigurationError(
            f"{type(objective).__name__} has no `reports`: give it the names of the facts that the log gets, such as "
            f"reports = ('q_mean',), or ()"
        )
    return objective


def answer(objective: Objective, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The loss of each row `[N]`, and facts.

    Raises:
        ConfigurationError: the objective answers anything else.
    """
    given: Any = objective(online, target, batch)
    name = type(objective).__name__
    rows, places = batch.weight.shape, batch.place.shape[-1:]  # of sequences, one place for many rows
    try:
        loss, facts = given
        missing = [fact for fact in objective.reports if fact not in facts]
        found = {
            "loss": (loss.shape, rows),
            "priority": (facts["priority"].shape, places) if "priority" in facts else (rows, rows),
        }
    except (TypeError, ValueError, AttributeError):
        raise ConfigurationError(
            f"{name} answers {type(given).__name__}; an objective answers two things: the loss of each row [N], and a dict of facts"
        ) from None
    if missing:
        raise ConfigurationError(
            f"{name} reports {missing}, and its facts are {sorted(facts)}; put them in, or leave them out"
        )
    for what, (shape, wanted) in found.items():
        if shape != wanted:
            raise ConfigurationError(
                f"{name}: {what} has shape {list(shape)}, and a batch {list(wanted)}; give a number for each: weights and the mean "
                f"over rows are the learner's"
            )
    return loss, facts
