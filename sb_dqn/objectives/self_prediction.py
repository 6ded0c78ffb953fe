"""Self-prediction of latent states as a second loss (SPR, Schwarzer et al. 2021, arXiv 2007.05929)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sb_dqn.checks import check_float, check_int, set_fields
from sb_dqn.losses.sequences import self_prediction_loss
from sb_dqn.types import Batch, Network, Objective


@dataclass(frozen=True)
class SelfPrediction:
    """Settings of self-prediction.

    Args:
        steps: number K of actions ahead, from 1.
        weight: factor of the loss of self-prediction, above 0.

    Raises:
        ConfigurationError: a value is out of range.
    """

    steps: int = 5
    weight: float = 5.0

    def __post_init__(self) -> None:
        set_fields(
            self,
            steps=check_int("self_prediction['steps']", self.steps, 1),
            weight=check_float("self_prediction['weight']", self.weight, 0.0, above=True),
        )


class SelfPredictionObjective:
    r"""Adds a second loss to another objective, that of predicting the projections of the next K latent states from the
    actions taken.

    .. math:: L = L_{\mathrm{TD}} + \lambda \, \frac1K \sum_{k=1}^K m_k
        \left\| \frac{\hat y_k}{\|\hat y_k\|} - \frac{y_k}{\|y_k\|} \right\|^2

    :math:`\hat y_k` is the online network's prediction, y_k the target network's projection of the observation k steps later, and
    m_k is 0 after the end of the episode. The priority stays that of the TD loss.

    Args:
        inner: objective to which the second loss is added.
        settings: number of steps K and weight of the second loss.
    """

    def __init__(self, inner: Objective, settings: SelfPrediction) -> None:
        self.inner = inner
        self.settings = settings
        self.reports = (*inner.reports, "self_prediction")
        self.bootstrap = getattr(inner, "bootstrap", None)

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, extras = self.inner(online, target, batch)
        bare: Any = online.func if isinstance(online, partial) else online  # latent states have no noise
        bootstrap: Any = target.func if isinstance(target, partial) else target
        assert batch.future is not None
        assert batch.extra is not None  # from the replay, see `TransitionView`
        actions, valid = batch.extra["future_action"], batch.extra["future_valid"]
        with torch.no_grad():
            y = bootstrap.projection(bootstrap.latent(batch.future)).view(*valid.shape, -1)
        predicted = bare.predicted_projections(bare.latent(batch.obs), actions)
        distance = self_prediction_loss(predicted, y, valid)
        extras = {"priority": loss.detach(), **extras, "self_prediction": distance.detach().mean()}
        return loss + self.settings.weight * distance, extras
