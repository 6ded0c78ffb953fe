"""Optimizers: checks of their classes, RMSprop as in TensorFlow, and transfer of their state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from sb_dqn.checks import check_float
from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.nn.parameters.flat import flat_views
from sb_dqn.types import Kwargs, State

ELEMENTWISE = (
    "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "RMSpropTFLike", "SGD", "Adagrad", "Adadelta", "ASGD",
)  # fmt: skip
"""Optimizers that treat each number independently, so that one flat parameter gives the same result as many."""


class RMSpropTFLike(torch.optim.Optimizer):
    r"""RMSprop as in TensorFlow: epsilon inside the root, and running squares initialized to 1.

    .. math:: s \leftarrow \alpha s + (1 - \alpha) g^2, \quad \theta \leftarrow \theta - \eta\, g / \sqrt{s + \varepsilon}

    The first steps are small where torch's are large; A2C was tuned with this form (as Stable-Baselines3's class of this
    name).

    Args:
        params: parameters, or groups of them.
        lr: eta, >= 0.
        alpha: smoothing, [0, 1].
        eps: epsilon, >= 0.
        weight_decay: L2 penalty, >= 0.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        check_float("alpha", alpha, 0.0, 1.0)
        check_float("eps", eps, 0.0)
        check_float("weight_decay", weight_decay, 0.0)
        super().__init__(params, {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one step along the current gradients."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: torch.Tensor, gradient: torch.Tensor, group: Kwargs) -> None:
        state = self.state[parameter]
        if not state:
            state["square_avg"] = torch.ones_like(parameter)
        if group["weight_decay"]:
            gradient = gradient.add(parameter, alpha=group["weight_decay"])
        square = state["square_avg"].mul_(group["alpha"]).addcmul_(gradient, gradient, value=1.0 - group["alpha"])
        parameter.addcdiv_(gradient, (square + group["eps"]).sqrt_(), value=-float(group["lr"]))


MOMENT_OPTIONS = ("amsgrad", "centered", "momentum")
"""Options with which an optimizer has further moments."""


def take_moments(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], plain_adam: bool) -> None:
    """Loads moments, counts and learning rate of another optimizer; no moments if the two have different ones.

    Args:
        optimizer: optimizer to change; its options stay.
        saved: `state_dict` of an optimizer of the same class.
        plain_adam: the optimizer is stepped by a fused kernel of torch, which does not check its state.

    Raises:
        ValueError: the state is that of other parameters; nothing has changed.
    """
    before = optimizer.state_dict()
    pairs = list(zip(before["param_groups"], saved["param_groups"], strict=True))
    same_moments = all(bool(mine.get(key)) == bool(theirs.get(key)) for mine, theirs in pairs for key in MOMENT_OPTIONS)
    groups = [{**mine, "lr": theirs["lr"]} for mine, theirs in pairs]
    try:
        optimizer.load_state_dict({"state": saved["state"] if same_moments else {}, "param_groups": groups})
        _check_moments(optimizer, plain_adam)
    except Exception:
        optimizer.load_state_dict(before)
        raise


def is_of_one(saved: Mapping[str, Any]) -> bool:
    """Returns True for the `state_dict` of an optimizer of one flat parameter."""
    return sum(len(group["params"]) for group in saved["param_groups"]) == 1


def split_moments(saved: Mapping[str, Any], like: Sequence[torch.Tensor]) -> Mapping[str, Any]:
    """Returns the state of an optimizer of one flat parameter as that of an optimizer of its parts.

    Args:
        saved: `state_dict` of the optimizer of the flat parameter; that of the parts is returned as it is.
        like: the parts, in order.
    """
    if not is_of_one(saved):
        return saved
    whole = sum(each.numel() for each in like)
    states: list[State] = [{} for _ in like]
    for state in saved["state"].values():
        for name, value in state.items():
            flat = torch.is_tensor(value) and value.ndim == 1 and len(value) == whole
            for own, part in zip(states, flat_views(value, like) if flat else [value] * len(like), strict=True):
                own[name] = part.clone() if torch.is_tensor(part) else part
    (group,) = saved["param_groups"]
    by_place = {place: state for place, state in enumerate(states) if state}
    return {"state": by_place, "param_groups": [{**group, "params": list(range(len(like)))}]}


def _check_moments(optimizer: torch.optim.Optimizer, plain_adam: bool) -> None:
    """Checks the state, which kernels would fail on in the next step."""
    for master, state in optimizer.state.items():
        if not isinstance(master, torch.Tensor):
            raise ValueError(
                "the optimizer's state must be of the same parameters, got one of more. Use the same networks."
            )
        missing = {"step", "exp_avg", "exp_avg_sq"} - state.keys() if plain_adam else set()
        for name in missing:
            raise ValueError(f"the optimizer's state must have {name!r}, got none. Use the state of an Adam.")
        for name, moment in state.items():
            if torch.is_tensor(moment):
                fits = moment.shape in ((), (1,), master.shape)
            else:
                fits = not plain_adam and (moment is None or isinstance(moment, (int, float)))
            if not fits:
                found = getattr(moment, "shape", moment)
                raise ValueError(
                    f"the optimizer's {name!r} must have shape {tuple(master.shape)}, got {found!r}. Use the same networks."
                )


def checked_optimizer(optimizer_class: object) -> str:
    """Returns the name of an optimizer class that steps along one gradient.

    Raises:
        ConfigurationError: it is another class.
    """
    if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, torch.optim.Optimizer)):
        raise ConfigurationError(
            f"optimizer_class must be a class of torch.optim, got {optimizer_class!r}. Give for example torch.optim.Adam."
        )
    if issubclass(optimizer_class, torch.optim.LBFGS):
        raise ConfigurationError(
            "optimizer_class must step along one gradient, got LBFGS, which evaluates the loss many times a step. Give for "
            "example torch.optim.Adam."
        )
    return optimizer_class.__name__


FUSED_ON_CUDA = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
"""Optimizers with a fused kernel for CUDA in every version of torch that is allowed: that of Adagrad came with 2.13."""


def are_matrices(network: nn.Module) -> list[bool]:
    """Returns for each parameter of a network if it is a weight of two or more dimensions: no bias, and not of a layer norm,
    whose weights have the shape of an image where it is over a whole image."""
    norms = {id(own) for part in network.modules() if isinstance(part, nn.LayerNorm) for own in part.parameters()}
    return [parameter.dim() > 1 and id(parameter) not in norms for parameter in network.parameters()]


def are_decayed(
    parameters: Iterable[nn.Parameter], optimizer_class: type[torch.optim.Optimizer], kwargs: Kwargs
) -> list[bool] | None:
    """Returns for each parameter if the weight decay of an optimizer of this class is for it; None: for all.

    It never is for a scalar: the learned temperature of SAC would be pulled to 1.
    """
    option = inspect.signature(optimizer_class).parameters.get("weight_decay")
    decay = kwargs.get("weight_decay", 0.0 if option is None else option.default)
    decayed = [parameter.dim() > 0 for parameter in parameters]
    return decayed if decay and not all(decayed) else None


def make_optimizer(
    optimizer_class: type[torch.optim.Optimizer],
    masters: list[nn.Parameter],
    kwargs: Kwargs,
    decayed: Sequence[bool] | None = None,
) -> torch.optim.Optimizer:
    """Returns an optimizer with a learning rate of 0, to be set before its first step.

    Args:
        optimizer_class: class of torch.optim.
        masters: parameters to optimize.
        kwargs: its arguments without the learning rate.
        decayed: True for the parameters with weight decay, which become its first group; the others are a second group
            without. If None, all parameters are in one group.

    Raises:
        ConfigurationError: the class refuses the arguments, the learning rate is one of them, or there is no weight decay to
            restrict.
    """
    allowed = [name for name in inspect.signature(optimizer_class).parameters if name not in ("params", "lr")]
    if "lr" in kwargs:
        raise ConfigurationError(
            f"optimizer_kwargs must not have 'lr', which is set before each step, got {kwargs}. Give "
            f"learning_rate={kwargs['lr']!r} to the algorithm."
        )
    has_kernel = issubclass(optimizer_class, FUSED_ON_CUDA) or not any(master.is_cuda for master in masters)
    fused = has_kernel and "fused" in allowed and not kwargs.keys() & {"fused", "foreach", "differentiable"}
    groups: list[Any] = masters
    if decayed is not None:
        parts = ([p for p, has in zip(masters, decayed, strict=True) if has is wanted] for wanted in (True, False))
        groups = [{"params": part} for part in parts]
    try:
        optimizer = optimizer_class(groups, **{"lr": 0.0, **kwargs, **({"fused": True} if fused else {})})
    except (TypeError, ValueError, RuntimeError) as error:
        unknown = next((str(key) for key in kwargs if key not in allowed), "")
        raise ConfigurationError(
            f"optimizer_kwargs must be arguments of {optimizer_class.__name__}, among {allowed}, got {kwargs} ({error}). Change "
            f"them.{nearest(unknown, allowed)}"
        ) from error
    if decayed is not None:
        if not optimizer.param_groups[0].get("weight_decay"):
            raise ConfigurationError(
                f"policy_kwargs['decay_matrices_only'] must be False without a weight decay, got True with "
                f"{optimizer_class.__name__} and {kwargs}. Give optimizer_kwargs={{'weight_decay': 0.01}} or leave it out."
            )
        optimizer.param_groups[1]["weight_decay"] = 0.0
    return optimizer
