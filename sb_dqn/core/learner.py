"""The learner: loss, gradient, clip, optimiser step, target sync; the one place that multiplies weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.checks import check_mapping
from sb_dqn.core.objective_checks import answer, check_objective
from sb_dqn.errors import ConfigurationError
from sb_dqn.losses.td import weighted_mean
from sb_dqn.nn.parameters.flat import flat_copy, flat_views, flatten_parameters, point_into
from sb_dqn.nn.parameters.optimizers import ELEMENTWISE, checked_optimizer, make_optimizer, split_moments, take_moments
from sb_dqn.types import Batch, Objective, Update

FORGET_EVERY = (
    128  # steps, in which a momentum shrinks by six digits at most: it never gets from `TINY` to the smallest numbers
)
TINY = 1e-30


class Learner:
    """Moves the parameters of `online` downhill and `target` after them.

    The parameters of each net live in one flat tensor. With `precision="bf16"` forward and backward run on bfloat16
    twins, while the nets themselves stay the float32 masters that the optimiser steps and checkpoints hold.

    Args:
        online: net that learns; its parameters are re-pointed into flat storage.
        target: net that bootstraps: a copy of the online net, or of the part of it that comes first; None: the objective
            needs none.
        objective: (online, target, batch) -> loss per transition `[N]`, facts.
        batch_size: N, for which the nets' random numbers are drawn; nets without any do not ask. 1: not known.
        optimizer_class: of torch.optim.
        optimizer_kwargs: its arguments beside the rate.
        max_grad_norm: bound on the 2-norm of the whole gradient; None leaves it.
        precision: "fp32" or "bf16".

    Raises:
        ConfigurationError: the optimiser refuses its arguments.
    """

    def __init__(
        self,
        online: Any,
        target: Any,
        objective: Objective,
        batch_size: int = 1,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        max_grad_norm: float | None = 10.0,
        precision: str = "fp32",
    ) -> None:
        online.eval()
        if target is not None:
            target.eval()
        self.objective, self.batch_size = check_objective(objective), batch_size
        self.max_grad_norm = max_grad_norm
        self.flat = flatten_parameters(list(online.parameters()))
        self.flat_target = self.flat if target is None else flatten_parameters(list(target.parameters()))
        target = online if target is None else target
        self.buffers = list(zip(target.buffers(), online.buffers(), strict=False))
        self.online, self.target = online, target
        self.low: Tensor | None = None
        self.low_buffers: list[tuple[Tensor, Tensor]] = []
        self.low_target_buffers: list[tuple[Tensor, Tensor]] = []
        if precision == "bf16":
            self.online = online.twin(torch.bfloat16)
            self.target = self.online if target is online else target.twin(torch.bfloat16)
            self.low = _flatten_low(self.online)
            self.low_target = self.low if target is online else _flatten_low(self.target)
            self.low_buffers = list(zip(online.buffers(), self.online.buffers(), strict=True))
            self.low_target_buffers = list(zip(target.buffers(), self.target.buffers(), strict=True))
        self.noises = (
            self.online.learning_noise(batch_size, as_target=False),
            self.target.learning_noise(batch_size, as_target=True),
        )
        self.named, self.named_target = list(online.parameters()), list(target.parameters())
        self.parameters = list(self.online.parameters())
        self.finite = torch.ones((), dtype=torch.bool, device=self.flat.device)
        kwargs = check_mapping("optimizer_kwargs", optimizer_kwargs)
        self.whole = checked_optimizer(optimizer_class) in ELEMENTWISE and all(self.learns)
        self.make_optimizer = partial(make_optimizer, optimizer_class, kwargs=kwargs)
        self.masters = [nn.Parameter(self.flat)] if self.whole else self.named
        self.optimizer = self.make_optimizer(self.masters)
        self.steps = 0
        self.apart = online.make_apart(self.flat)
        group = self.optimizer.param_groups[0]
        decoupled = group.get("decoupled_weight_decay", optimizer_class is torch.optim.AdamW)
        self._adam_kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self.plain_adam = (
            self.whole
            and optimizer_class in (torch.optim.Adam, torch.optim.AdamW)
            and bool(group["fused"] and not group["amsgrad"] and not group["maximize"])
        )

    @property
    def learns(self) -> list[bool]:
        """Of each parameter, whether it is to learn: a user may freeze some by `requires_grad_(False)`, at any time."""
        return [parameter.requires_grad for parameter in self.named]

    def renew_noise(self, generator: torch.Generator) -> None:
        """Draws the random numbers of the next gradient, for each net its own."""
        for noise in self.noises:
            if noise is not None:
                noise.renew(generator)

    def gradient(self, batch: Batch) -> tuple[Tensor, Tensor, Update]:
        """The clipped gradient `[P]`, new priorities `[N]`, and what to report; no Python branch on a tensor's value."""
        online, target = (
            net if noise is None else partial(net, noise=noise)
            for net, noise in zip((self.online, self.target), self.noises, strict=True)
        )
        trained = self._trained()
        with _learning(self.online):
            loss, facts = answer(self.objective, online, target, batch)
            total = weighted_mean(loss, batch.weight)
            found = iter(torch.autograd.grad(total, trained, materialize_grads=True))
        flat = flat_copy(next(found) if p.requires_grad else torch.zeros_like(p) for p in self.parameters).float()
        taken = None if self.apart is None else self.apart.take(flat)
        norm = flat.norm()
        if self.max_grad_norm is not None:
            flat.mul_((self.max_grad_norm / norm).clamp_max(1.0))  # a norm of 0 gives infinity, then 1
        if self.apart is not None and taken is not None:
            self.apart.give(flat, taken)
        self.finite.logical_and_(norm + total.detach().abs() < math.inf)  # False for NaN too
        reports = torch.stack([facts[name] for name in self.objective.reports])
        return flat, facts.get("priority", loss.detach()), Update(total.detach(), norm, reports)

    def _trained(self) -> list[nn.Parameter]:
        for parameter, learns in zip(self.parameters, self.learns, strict=True):
            if parameter.requires_grad is not learns:  # a twin's
                parameter.requires_grad_(learns)
        trained = [parameter for parameter in self.parameters if parameter.requires_grad]
        if not trained:
            raise ConfigurationError("requires_grad is False for all parameters, so nothing can learn; leave some True")
        return trained

    def apply(self, gradient: Tensor) -> None:
        """One optimiser step along a gradient `[P]`."""
        if self.whole and not all(self.learns):
            self._split()
        if self.apart is None:
            self._step(gradient)
        else:
            self.apart.step(gradient, partial(self._step, gradient))
        if self.low is not None:
            self.low.copy_(self.flat[: self.low.numel()])
        for master, twin in self.low_buffers:
            master.copy_(twin)

    def _split(self) -> None:
        """Steps each parameter by itself from now on, so that frozen ones keep their moments and their counts."""
        saved = self.optimizer.state_dict()
        self.whole, self.plain_adam, self.masters = False, False, self.named
        self.optimizer = self.make_optimizer(self.masters)
        self.take_moments(saved)

    def _step(self, gradient: Tensor) -> None:
        if self.whole:
            self.masters[0].grad = gradient
        else:
            for master, grad in zip(self.masters, flat_views(gradient, self.masters), strict=True):
                master.grad = grad if master.requires_grad else None
        if self.plain_adam and self.masters[0] in self.optimizer.state:
            self._adam_step(gradient)
        else:
            self.optimizer.step()
        self.steps += 1
        if self.steps % FORGET_EVERY == 0:
            self._forget_tiny_moments()

    @torch.no_grad()
    def _forget_tiny_moments(self) -> None:
        """Sets to 0 what the optimiser remembers of gradients that ceased long ago, such as those behind a dead unit.

        A momentum without gradient shrinks by a tenth with each step until it is the smallest number that there is, and
        stays there: 0.9 of that is rounded to itself. CPUs calculate with such numbers ten times more slowly.
        """
        for state in self.optimizer.state.values():
            for moment in state.values():  # a count has no dimension
                if torch.is_tensor(moment) and moment.is_floating_point() and moment.ndim > 0:
                    moment.copy_(torch.hardshrink(moment, TINY))

    def _adam_step(self, gradient: Tensor) -> None:
        """The kernel that `Optimizer.step` calls, on its state, without its bookkeeping: for small nets that costs more."""
        group, state = self.optimizer.param_groups[0], self.optimizer.state[self.masters[0]]
        state["step"] += 1
        self._adam_kernel(
            [self.flat], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], weight_decay=group["weight_decay"],
            eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip

    def set_learning_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @torch.no_grad()
    def sync_target(self, tau: float = 1.0) -> None:
        """Moves the target to the online net: all the way, or by the share `tau` (Polyak)."""
        followed = self.flat[: self.flat_target.numel()]
        if tau == 1.0:
            self.flat_target.copy_(followed)
        else:
            self.flat_target.lerp_(followed, tau)
        for target, online in self.buffers:
            target.copy_(online)
        if self.low is not None:
            self.low_target.copy_(self.flat_target[: self.low.numel()])
        for master, twin in self.low_target_buffers:
            twin.copy_(master)

    def gather(self, parameters: Iterable[nn.Parameter]) -> None:
        """Takes back what was re-pointed from outside, as `vector_to_parameters` does, with its new values.

        Args:
            parameters: that the policy has now.

        Raises:
            ConfigurationError: some were exchanged for others, which no optimiser knows.
        """
        known = [*self.named, *self.named_target]
        if {id(each) for each in parameters} != {id(each) for each in known}:
            raise ConfigurationError(
                "parameters of the policy were exchanged after the model was made, so they would not learn; copy weights by "
                "load_state_dict, or give a policy class or policy_kwargs that builds what you want"
            )
        views = flat_views(self.flat, self.named) + flat_views(self.flat_target, self.named_target)
        point_into(zip(known, views, strict=True))
        self.refresh()

    def refresh(self) -> None:
        """Brings the low-precision twins up to date after the masters were written from outside."""
        if self.low is not None:
            self.low.copy_(self.flat[: self.low.numel()])
            self.low_target.copy_(self.flat_target[: self.low.numel()])
        for master, twin in self.low_buffers + self.low_target_buffers:
            twin.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        apart = {} if self.apart is None else {"apart": self.apart.state_dict()}
        return {
            "kind": type(self.optimizer).__name__,
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            **apart,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over momenta, counts and the rate. How to step stays as the constructor says, and an optimiser of another
        kind than the saved one begins anew."""
        if state.get("kind", type(self.optimizer).__name__) == type(self.optimizer).__name__:
            self.take_moments(state["optimizer"])
        self.steps = int(state.get("steps", 0))  # older files have none
        if self.apart is not None:
            self.apart.load_state_dict(state["apart"])

    def take_moments(self, saved: Mapping[str, Any]) -> None:
        """Takes over momenta, counts and the rate of an optimiser of the same parameters, one by one or as a whole.

        Raises:
            ValueError: they are of other parameters; nothing has changed.
        """
        one = sum(len(group["params"]) for group in saved["param_groups"]) == 1
        if self.whole and not one:
            self._split()
        take_moments(
            self.optimizer, split_moments(saved, self.named) if one and not self.whole else saved, self.plain_adam
        )


@contextmanager
def _learning(net: nn.Module) -> Iterator[None]:
    """Dropout and batch statistics while a net learns; whoever else asks it meets it in `eval` mode."""
    net.train()
    try:
        yield
    finally:
        net.eval()


def _flatten_low(twin: nn.Module) -> Tensor:
    """The low-precision parameters of a twin as one flat tensor; they come first, its head is the master's own."""
    low = [parameter for parameter in twin.parameters() if parameter.dtype == torch.bfloat16]
    return flatten_parameters(low, torch.bfloat16) if low else torch.empty(0, dtype=torch.bfloat16)
