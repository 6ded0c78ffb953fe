"""Optimisers: which are allowed, those that torch does not have, and what one takes over from another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from sb_dqn.checks import check_float
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.flat import flat_views

# these treat each number alone, so one flat parameter gives what many would
ELEMENTWISE = (
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "RAdam",
    "RMSprop",
    "RMSpropTFLike",
    "SGD",
    "Adagrad",
    "Adadelta",
    "ASGD",
)


class RMSpropTFLike(torch.optim.Optimizer):
    r"""RMSprop in the form of TensorFlow: epsilon under the root, and running squares that begin at 1.

    .. math:: s \leftarrow \alpha s + (1 - \alpha) g^2, \quad \theta \leftarrow \theta - \eta\, g / \sqrt{s + \varepsilon}

    The first steps are small where those of `torch.optim.RMSprop` are large. The original A2C and Stable-Baselines3's class of
    this name use this form; `A2C` takes it by `policy_kwargs=dict(optimizer_class="RMSpropTFLike")`.

    Args:
        params: parameters, or groups of them.
        lr: eta, >= 0.
        alpha: share of the old squares, [0, 1].
        eps: epsilon, >= 0.
        weight_decay: times the parameters, added to the gradient, >= 0.

    Raises:
        ConfigurationError: a number is out of its range.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        check_float("alpha", alpha, 0.0, 1.0)
        check_float("eps", eps, 0.0)
        check_float("weight_decay", weight_decay, 0.0)
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step along the gradients that are there."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["square_avg"] = torch.ones_like(parameter)
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        square = state["square_avg"].mul_(group["alpha"]).addcmul_(gradient, gradient, value=1.0 - group["alpha"])
        parameter.addcdiv_(gradient, (square + group["eps"]).sqrt_(), value=-float(group["lr"]))


KEEPING = ("amsgrad", "centered", "momentum")
"""Settings with which an optimiser keeps further moments."""


def take_moments(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], plain_adam: bool) -> None:
    """Has an optimiser take over momenta, counts and the rate of another; no momenta where that one kept others than it.

    Args:
        optimizer: how it steps stays as it is.
        saved: `state_dict` of an optimiser of its class.
        plain_adam: it is stepped by a kernel of torch's, which reads what it is told to.

    Raises:
        ValueError: they are of other parameters; nothing has changed.
    """
    before = optimizer.state_dict()
    pairs = list(zip(before["param_groups"], saved["param_groups"], strict=True))
    alike = all(bool(mine.get(key)) == bool(theirs.get(key)) for mine, theirs in pairs for key in KEEPING)
    groups = [{**mine, "lr": theirs["lr"]} for mine, theirs in pairs]
    try:
        optimizer.load_state_dict({"state": saved["state"] if alike else {}, "param_groups": groups})
        _check_moments(optimizer, plain_adam)
    except Exception:
        optimizer.load_state_dict(before)
        raise


def split_moments(saved: Mapping[str, Any], like: Sequence[torch.Tensor]) -> dict[str, Any]:
    """What an optimiser of one flat parameter keeps, as one of the parameters that lie in it keeps it."""
    whole = sum(each.numel() for each in like)
    states: list[dict[str, Any]] = [{} for _ in like]
    for state in saved["state"].values():
        for name, kept in state.items():
            flat = torch.is_tensor(kept) and kept.ndim == 1 and len(kept) == whole
            for own, part in zip(states, flat_views(kept, like) if flat else [kept] * len(like), strict=True):
                own[name] = part.clone() if torch.is_tensor(part) else part
    (group,) = saved["param_groups"]
    kept_by = {place: state for place, state in enumerate(states) if state}
    return {"state": kept_by, "param_groups": [{**group, "params": list(range(len(like)))}]}


def _check_moments(optimizer: torch.optim.Optimizer, plain_adam: bool) -> None:
    """Refuses what the kernels would stumble over at the next step."""
    for master, state in optimizer.state.items():
        if not isinstance(master, torch.Tensor):
            raise ValueError("the optimiser's state is of more parameters")
        missing = {"step", "exp_avg", "exp_avg_sq"} - state.keys() if plain_adam else set()
        for name in missing:
            raise ValueError(f"the optimiser's {name!r} is missing")
        for name, moment in state.items():
            if torch.is_tensor(moment):
                fits = moment.shape in ((), (1,), master.shape)
            else:
                fits = not plain_adam and (moment is None or isinstance(moment, (int, float)))
            if not fits:
                raise ValueError(f"the optimiser's {name!r} is {getattr(moment, 'shape', moment)!r}")


def checked_optimizer(optimizer_class: Any) -> str:
    """The name of a class of torch.optim that steps along one gradient."""
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer)):
        raise ConfigurationError(
            f"optimizer_class={optimizer_class!r} is not allowed: give a class of torch.optim, e.g. torch.optim.Adam"
        )
    if issubclass(optimizer_class, torch.optim.LBFGS):
        raise ConfigurationError(
            "optimizer_class=LBFGS evaluates the loss many times a step; give one that steps along one gradient"
        )
    return optimizer_class.__name__


def make_optimizer(
    optimizer_class: type[torch.optim.Optimizer], masters: list[nn.Parameter], kwargs: dict[str, Any]
) -> torch.optim.Optimizer:
    """An optimiser with a rate of 0, to be set before its first step.

    Raises:
        ConfigurationError: it does not take these arguments, or the rate is among them.
    """
    allowed = [name for name in inspect.signature(optimizer_class).parameters if name not in ("params", "lr")]
    if "lr" in kwargs:
        raise ConfigurationError(
            f"optimizer_kwargs={kwargs}: the rate is not for the optimiser, which is told it before each step; give "
            f"learning_rate={kwargs['lr']!r} to the algorithm"
        )
    fused = "fused" in allowed and not kwargs.keys() & {"fused", "foreach", "differentiable"}
    try:
        return optimizer_class(masters, **{"lr": 0.0, **kwargs, **({"fused": True} if fused else {})})
    except (TypeError, ValueError, RuntimeError) as error:
        unknown = next((str(key) for key in kwargs if key not in allowed), "")
        raise ConfigurationError(
            f"optimizer_class={optimizer_class.__name__} does not take optimizer_kwargs={kwargs}: {error}; allowed are "
            f"{allowed}.{nearest(unknown, allowed)}"
        ) from error
