"""The optimizer step: flat Adam without overhead, frozen parameters, RMSprop for FQF's fractions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sb_dqn.accelerate.torch_internals import fused_adam_kernel
from sb_dqn.checks import check_bool, check_mapping
from sb_dqn.nn.heads.fraction import FractionEmbedding
from sb_dqn.nn.heads.shared import first_heads
from sb_dqn.nn.parameters.flat import flat_copy, flat_views
from sb_dqn.nn.parameters.optimizers import (
    ELEMENTWISE,
    RMSpropTFLike,
    are_decayed,
    are_matrices,
    checked_optimizer,
    is_of_one,
    make_optimizer,
    split_moments,
    take_moments,
)
from sb_dqn.types import Settings, State

FLUSH_EVERY = 128
"""Steps between two flushes of tiny moments. In this time a momentum shrinks by at most six digits, so that it never gets from
`TINY` to the range of denormal numbers."""
TINY = 1e-30


class OptimizerStep:
    """Steps the parameters of the online network along a flat gradient.

    Elementwise optimizers see one flat parameter. Where some parameters are frozen, are those of FQF's fractions, or have no
    weight decay, each is stepped on its own. The fractions have RMSprop with a constant rate (Yang et al. 2019, arXiv
    1911.02140), and their gradient is not clipped.

    Args:
        flat: `[P]`, all parameters.
        online: network whose parameters are views of it.
        optimizer_class: of torch.optim.
        optimizer_kwargs: its arguments without the rate.
        decay_matrices_only: no weight decay of biases and norms.

    Attributes:
        fractions: `[P]` bool, True for the parameters that propose FQF's fractions; None: there are none.
        fraction_optimizer: their optimizer.
        first_heads: `[F]` int64, places of heads that are only targets, which weight decay must not change; None: there are none.

    Raises:
        ConfigurationError: the optimizer refuses its arguments.
    """

    def __init__(
        self,
        flat: Tensor,
        online: nn.Module,
        optimizer_class: type[torch.optim.Optimizer],
        optimizer_kwargs: Settings | None,
        decay_matrices_only: bool = False,
    ) -> None:
        kwargs = check_mapping("optimizer_kwargs", optimizer_kwargs)
        self.flat = flat
        self.parameters = parameters = list(online.parameters())
        self.fractions: Tensor | None = None
        self.fraction_optimizer: torch.optim.RMSprop | None = None
        for embedding in (part for part in online.modules() if isinstance(part, FractionEmbedding)):
            own = list(embedding.proposal.parameters())
            ids = {id(parameter) for parameter in own}
            self.fractions = flat_copy(torch.full_like(p, id(p) in ids, dtype=torch.bool) for p in parameters)
            self.fraction_optimizer = torch.optim.RMSprop(own, lr=embedding.learning_rate, alpha=0.95, eps=1e-5)
        self.first_heads = first_heads(online, parameters)
        elementwise = checked_optimizer(optimizer_class) in ELEMENTWISE
        grouped = check_bool("policy_kwargs['decay_matrices_only']", decay_matrices_only)
        self._matrices = are_matrices(online)
        decayed = self._matrices if grouped else are_decayed(parameters, optimizer_class, kwargs)
        self.whole = (
            elementwise and decayed is None and self.fractions is None and all(p.requires_grad for p in parameters)
        )
        self.masters = [nn.Parameter(flat)] if self.whole else parameters
        self.optimizer = make_optimizer(optimizer_class, self.masters, kwargs, decayed)
        if self.whole:
            self._follow_backward()
        self.steps = 0
        group = self.optimizer.param_groups[0]
        decoupled = group.get("decoupled_weight_decay", optimizer_class is torch.optim.AdamW)
        self._adam_kernel = fused_adam_kernel(decoupled)
        self.plain_adam = (
            self.whole
            and self._adam_kernel is not None
            and optimizer_class in (torch.optim.Adam, torch.optim.AdamW)
            and bool(group["fused"] and not group["amsgrad"] and not group["maximize"])
        )

    def __call__(self, gradient: Tensor) -> None:
        """Makes one step along a gradient `[P]`."""
        if self.whole and not all(parameter.requires_grad for parameter in self.parameters):
            self._split()
        targets = None if self.first_heads is None else self.flat.index_select(0, self.first_heads)
        if self.plain_adam and self.masters[0] in self.optimizer.state:
            self._adam_step(gradient)
        else:
            for master, grad in zip(self.masters, flat_views(gradient, self.masters), strict=True):
                master.grad = grad if master.requires_grad else None
            if self.fraction_optimizer is not None:
                self.fraction_optimizer.step()
                self.fraction_optimizer.zero_grad()  # the other optimizer leaves parameters without gradient as they are
            self.optimizer.step()
        if targets is not None:
            self.flat.index_copy_(0, self.first_heads, targets)  # type: ignore[arg-type]  # not None
        self.steps += 1
        if self.steps % FLUSH_EVERY == 0:
            self._flush_tiny_moments()

    def clear(self) -> None:
        """Clears all moments and counts, as if no step had been made; rate and options stay."""
        for optimizer in (self.optimizer, self.fraction_optimizer):
            if optimizer is not None:
                optimizer.state.clear()

    @torch.no_grad()
    def reset_moments(self, changed: Tensor, counts: bool = False) -> None:
        """Sets the moments of some parameters to their initial values; rate and options stay.

        Args:
            changed: `[P]` bool.
            counts: set the step counts of the tensors with such parameters to 0, too; one flat tensor has one count.
        """
        masks: dict[Tensor, Tensor] = dict(zip(self.parameters, flat_views(changed, self.parameters), strict=True))
        if self.whole:
            masks[self.masters[0]] = changed
        for optimizer in filter(None, (self.optimizer, self.fraction_optimizer)):
            initial = 1.0 if isinstance(optimizer, RMSpropTFLike) else 0.0
            for master, state in optimizer.state.items():
                if not masks[master].any():
                    continue
                for name, value in state.items():
                    if name == "step":
                        state[name] = value * 0 if counts else value
                    elif torch.is_tensor(value) and value.shape == master.shape:
                        value.masked_fill_(masks[master], initial)

    def _split(self) -> None:
        """Steps each parameter on its own from now on, so that frozen ones keep their moments and counts."""
        saved = self.optimizer.state_dict()
        self.whole = False
        self.plain_adam = False
        self.masters = self.parameters
        self.optimizer.param_groups[0]["params"] = self.masters  # the object stays that of programs
        self.optimizer.state.clear()
        self.take_moments(saved)

    def _follow_backward(self) -> None:
        """Makes `step` and `zero_grad` of the optimizer follow the gradients that `backward` adds to the networks' parameters,
        as those of an optimizer with one parameter after another."""

        def gather() -> None:
            if not self.whole or self.masters[0].grad is not None:  # `__call__` has set it
                return
            gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
            if len(gradients) == len(self.parameters):
                self.masters[0].grad = flat_copy(gradients)
            elif gradients:
                self._split()

        def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
            closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
            if closure is None:
                return gather()

            def compute() -> Any:
                loss = closure()
                gather()
                return loss

            return (optimizer, compute), {}

        def after(*_: Any) -> None:
            if self.whole:
                self.masters[0].grad = None

        def zero_grad(set_to_none: bool = True) -> None:
            for parameter in self.parameters:
                parameter.grad = None

        self.optimizer.register_step_pre_hook(before)
        self.optimizer.register_step_post_hook(after)
        self.optimizer.zero_grad = zero_grad  # type: ignore[method-assign]

    def _adam_step(self, gradient: Tensor) -> None:
        """Calls the kernel of `Adam.step` on its state, without its bookkeeping, which costs more for small networks."""
        group, state = self.optimizer.param_groups[0], self.optimizer.state[self.masters[0]]
        state["step"] += 1
        assert self._adam_kernel is not None  # checked by `plain_adam`
        self._adam_kernel(
            [self.flat], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]],
            lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], weight_decay=group["weight_decay"],
            eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip

    @torch.no_grad()
    def _flush_tiny_moments(self) -> None:
        """Sets the moments of gradients that ceased long ago to 0, such as those of a dead unit.

        A momentum without gradient shrinks by a tenth at each step until it is the smallest denormal number, and stays
        there, since 0.9 of that rounds to itself. CPUs compute with denormal numbers ten times more slowly.
        """
        for state in self.optimizer.state.values():
            for moment in state.values():  # a step count has no dimension
                if torch.is_tensor(moment) and moment.is_floating_point() and moment.ndim > 0:
                    moment.copy_(torch.hardshrink(moment, TINY))

    def set_learning_rate(self, rate: float) -> None:
        """Sets the learning rate of all parameters but FQF's fractions."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def state_dict(self) -> State:
        fractions = {} if self.fraction_optimizer is None else {"apart": self.fraction_optimizer.state_dict()}
        return {
            "kind": type(self.optimizer).__name__,
            "optimizer": self.optimizer.state_dict(),
            "steps": self.steps,
            **fractions,
        }

    def load_state_dict(self, state: State) -> None:
        """Loads moments, counts and the rate. The other options stay as constructed, and an optimizer of another kind than
        the saved one starts afresh."""
        if state.get("kind", type(self.optimizer).__name__) == type(self.optimizer).__name__:
            self.take_moments(state["optimizer"])
        self.steps = int(state.get("steps", 0))  # older files have none
        if self.fraction_optimizer is not None:
            self.take_fraction_moments(state["apart"])

    def take_moments(self, saved: Mapping[str, Any]) -> None:
        """Loads moments, counts and the rate of an optimizer of the same parameters, whole or one by one.

        Raises:
            ValueError: they are of other parameters; nothing has changed.
        """
        if self.whole and not is_of_one(saved):
            self._split()
        parts = saved if self.whole else self._regrouped(split_moments(saved, self.parameters))
        take_moments(self.optimizer, parts, self.plain_adam)

    def _regrouped(self, saved: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the state of an optimizer of all parameters one by one in the groups of this one."""
        own = self.optimizer.param_groups
        theirs, ours = (self._places(len(groups[0]["params"])) for groups in (saved["param_groups"], own))
        return {
            "state": {ours.index(theirs[number]): state for number, state in saved["state"].items()},
            "param_groups": saved["param_groups"][:1] * len(own),
        }

    def _places(self, decayed: int) -> list[int]:
        """Returns the places of the parameters in the order in which torch numbers them, group by group, where `decayed` of
        them have weight decay: all, all but scalars, or matrices alone."""
        sets = ([True] * len(self.parameters), [each.dim() > 0 for each in self.parameters], self._matrices)
        chosen = next((each for each in sets if sum(each) == decayed), sets[0])
        return sorted(range(len(chosen)), key=lambda place: not chosen[place])

    def take_fraction_moments(self, saved: Mapping[str, Any]) -> None:
        """Loads the running squares of FQF's fractions; their rate stays that of the constructor.

        Raises:
            ValueError: they are of other parameters; nothing has changed.
        """
        assert self.fraction_optimizer is not None
        (group,) = self.fraction_optimizer.state_dict()["param_groups"]
        state = split_moments(saved, self.fraction_optimizer.param_groups[0]["params"])["state"]  # older files have one
        take_moments(self.fraction_optimizer, {"state": state, "param_groups": [group]}, plain_adam=False)
