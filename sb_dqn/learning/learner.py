"""The learner: loss, gradient, clipping and optimizer step; the only place that applies the weights of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.errors import ConfigurationError
from sb_dqn.learning.augmentation import ImageAugmentation
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.learning.optimizer_step import OptimizerStep
from sb_dqn.learning.parameter_store import ParameterStore
from sb_dqn.losses.td import weighted_mean
from sb_dqn.nn.parameters.flat import flat_copy
from sb_dqn.policies.actor_critic_network import ActorCriticNetwork
from sb_dqn.types import Batch, Objective, Settings, State, Update


class Learner:
    """Minimizes an objective: from a batch to a gradient, and from a gradient to an optimizer step.

    Args:
        online: network that learns; its parameters become views of one flat tensor.
        target: network that bootstraps, a copy of the online network or of its first part; None: the objective needs none.
        objective: (online, target, batch) -> loss per transition `[N]`, extras.
        batch_size: N, for the noise of noisy layers; 1 if not known.
        optimizer_class: of torch.optim.
        optimizer_kwargs: its arguments without the rate.
        max_grad_norm: bound on the 2-norm of the whole gradient, and of the part that the online network has `clipped_apart`;
            None: no bound.
        precision: "fp32" or "bf16", see `ParameterStore`.
        group: learners that average their gradients; None: this one alone.
        decay_matrices_only: no weight decay of biases and norms.

    Attributes:
        store, optimizer_step: the parameters, and the optimizer step.
        online, target, flat, flat_target, low: see `ParameterStore`.
        optimizer: of torch.

    Raises:
        ConfigurationError: the optimizer refuses its arguments.
    """

    def __init__(
        self,
        online: Any,
        target: Any,
        objective: Objective,
        batch_size: int = 1,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: Settings | None = None,
        max_grad_norm: float | None = 10.0,
        precision: str = "fp32",
        group: LearnerGroup | None = None,
        decay_matrices_only: bool = False,
    ) -> None:
        online.eval()
        if target is not None:
            target.eval()
        self.objective = check_objective(objective)
        self.max_grad_norm = max_grad_norm
        self.group = group if group is not None and group.size > 1 else None
        self.store = store = ParameterStore(online, target, precision)
        self.online, self.target = store.online, store.target
        self.flat, self.flat_target, self.low = store.flat, store.flat_target, store.low
        self.set_batch_size(batch_size)
        self.finite = torch.ones((), dtype=torch.bool, device=self.flat.device)
        """0-d bool tensor, False once a loss or gradient was not finite."""
        self.optimizer_step = OptimizerStep(self.flat, online, optimizer_class, optimizer_kwargs, decay_matrices_only)
        self.optimizer = self.optimizer_step.optimizer
        own = {id(p) for p in online.clipped_apart()} if isinstance(online, ActorCriticNetwork) else set()
        masks = (torch.full_like(p, id(p) in own, dtype=torch.bool) for p in online.parameters())
        self.clipped_separately = flat_copy(masks) if own else None
        """`[P]` bool, True for the parameters that are clipped by their own norm; None: there are none."""
        self.augmentation: ImageAugmentation | None = None
        """Changes the images of each batch; None: they stay."""
        self._checked = False

    def set_batch_size(self, batch_size: int) -> None:
        """Makes the noise of updates for batches of another size."""
        self.batch_size = batch_size
        self.noises = (
            self.online.learning_noise(batch_size, as_target=False),
            self.target.learning_noise(batch_size, as_target=True),
        )

    def gradient(self, batch: Batch) -> tuple[Tensor, Tensor, Update]:
        """Returns the clipped gradient `[P]`, new priorities `[N]`, and loss, norm and reports, without a Python branch
        on the value of a tensor. With several learners, `average` clips the gradient."""
        if self.augmentation is not None:
            batch = self.augmentation(batch)
        online, target = (
            network if noise is None else partial(network, noise=noise)
            for network, noise in zip((self.online, self.target), self.noises, strict=True)
        )
        parameters = self.store.trainable_parameters()
        with _training(self.online), self.store.learning_weights():
            outputs = self.objective(online, target, batch)
            return self._differentiate(outputs, parameters, batch)

    def evaluate(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Returns the mean loss and the extras of copies of the networks, with random numbers that are the same in each call."""
        networks: list[Any] = []
        for network, as_target in ((online, False), (target, True)):
            noise = network.learning_noise(len(batch.weight), as_target=as_target)
            if noise is not None:
                noise.renew(torch.Generator(batch.weight.device).manual_seed(0))
            networks.append(network if noise is None else partial(network, noise=noise))
        loss, extras = self.objective(networks[0], networks[1], batch)
        return weighted_mean(loss, batch.weight), extras

    def _differentiate(
        self, outputs: Any, parameters: list[nn.Parameter], batch: Batch
    ) -> tuple[Tensor, Tensor, Update]:
        if not self._checked:
            check_outputs(self.objective, outputs, batch)
            self._checked = True
        loss, extras = outputs
        total = weighted_mean(loss, batch.weight)
        found = iter(torch.autograd.grad(total, parameters, materialize_grads=True))
        every = (next(found) if p.requires_grad else torch.zeros_like(p) for p in self.store.trained)
        flat = flat_copy(every).float()
        norm = self._clip(flat, total.detach()) if self.group is None else torch.zeros_like(total)
        values = torch.stack([total.detach(), norm, *(extras[name] for name in self.objective.reports)])
        return flat, extras.get("priority", loss.detach()), Update(values)

    def clip(self, flat: Tensor) -> tuple[Tensor, Tensor | None]:
        """Clips a gradient `[P]` in place, and returns its norm before.

        The critic of an actor-critic by classification is clipped by a norm of its own, which is returned second (None
        elsewhere). FQF's fractions are not clipped. Neither is part of the first norm.
        """
        free = self.optimizer_step.fractions if self.clipped_separately is None else self.clipped_separately
        norm: Tensor = (flat if free is None else flat.masked_fill(free, 0.0)).norm()
        own = None if self.clipped_separately is None else flat.masked_fill(~self.clipped_separately, 0.0).norm()
        if self.max_grad_norm is not None:
            factor = (self.max_grad_norm / norm).clamp_max(1.0)  # a norm of 0 gives infinity, then 1
            if self.clipped_separately is not None and own is not None:
                factor = torch.where(self.clipped_separately, (self.max_grad_norm / own).clamp_max(1.0), factor)
            elif free is not None:
                factor = torch.where(free, 1.0, factor)
            flat.mul_(factor)
        return norm, own

    def _clip(self, flat: Tensor, total: Tensor) -> Tensor:
        """Clips a gradient `[P]` in place, notes if it or the loss is not finite, and returns its norm before; see `clip`."""
        norm, own = self.clip(flat)
        self.finite.logical_and_(
            torch.hypot(norm if own is None else norm + own, total) < math.inf
        )  # False for NaN too
        return norm

    @torch.no_grad()
    def average(self, gradient: Tensor, update: Update) -> tuple[Tensor, Update]:
        """Returns the mean of gradient, loss and reports over all learners, clipped; one all-reduce. It is no part of
        traces. A single learner's are returned as they are."""
        if self.group is None:
            return gradient, update
        packed = torch.cat([gradient, update.values.float()])
        self.group.average(packed)
        mean, values = packed[: gradient.numel()], packed[gradient.numel() :].clone()
        values[1] = self._clip(mean, values[0])
        return mean, Update(values)

    def apply(self, gradient: Tensor) -> None:
        """Makes one optimizer step along a gradient `[P]`."""
        self.optimizer_step(gradient)
        self.store.after_step()

    def prepare_update(self, generator: torch.Generator) -> None:
        """Draws the noise of the next update, for each network its own, and normalizes the target's weights if needed."""
        self.store.refresh_target_weights()
        for noise in self.noises:
            if noise is not None:
                noise.renew(generator)
        if self.augmentation is not None:
            self.augmentation.draw(generator)

    def set_learning_rate(self, rate: float) -> None:
        self.optimizer_step.set_learning_rate(rate)

    def refresh(self) -> None:
        """Recomputes what is derived from the parameters after they were written from outside; see `ParameterStore.refresh`."""
        self.store.refresh()

    def state_dict(self) -> State:
        return self.optimizer_step.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Loads the state of the optimizer; parameters are loaded by the policy."""
        self.optimizer_step.load_state_dict(state)


@contextmanager
def _training(network: nn.Module) -> Iterator[None]:
    """Puts a network in training mode (dropout, batch statistics); outside it is in eval mode."""
    network.train()
    try:
        yield
    finally:
        network.eval()


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
        loss, extras = outputs
        missing = [each for each in objective.reports if each not in extras]
        shapes = {
            "loss": (loss.shape, rows),
            "priority": (extras["priority"].shape, places) if "priority" in extras else (rows, rows),
        }
    except (TypeError, ValueError, AttributeError):
        raise ConfigurationError(
            f"{name} must return the loss of each row [N] and a dict of extras, got {type(outputs).__name__}. Return both."
        ) from None
    if missing:
        raise ConfigurationError(
            f"{name} must return every extra in its reports, got {sorted(extras)} without {missing}. Add them, or shorten reports."
        )
    for what, (shape, expected) in shapes.items():
        if shape != expected:
            raise ConfigurationError(
                f"{what} of {name} must have shape {list(expected)}, got {list(shape)}. Return one number per row; the learner "
                f"applies weights and the mean."
            )
