"""The nouns that flow through the house: rows from the environment, batches to the learner.

Words: *lane* = one environment's stream inside a vector env; B = lanes; N = batch; A = actions; K = frame stack.
Observations are always a flat dict: `{"obs": array}` for a plain space, keys by path (`"camera/left"`) for a Dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import gymnasium
    import torch
    from torch import Tensor

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Observation = dict[str, npt.NDArray[Any]]
ActionArray = npt.NDArray[Any]
"""`[B]` (`[B, D]` for branches) int64, 0-based; of a Box `[B, *shape]` float32, in the env's own units and bounds."""


@dataclass(slots=True)
class Slot:
    """What arrived, one row for each lane in which `valid` is set. Every array has leading axis B."""

    obs: Observation
    """o_t by key, `[B, *shape]`, native dtype; of a frame stack only the newest frame `[B, 1, H, W]`."""
    reward: FloatArray
    """r_t received on arriving at o_t, as the learner sees it (clipped if so configured); 0 on a reset row."""
    score: FloatArray
    """r_t as the game gave it."""
    terminal: BoolArray
    """There is no value beyond o_t: game over, or a lost life if so configured."""
    last: BoolArray
    """The stream ends here: the next row of this lane is a reset row."""
    valid: BoolArray
    """The slot holds a row of this lane (all true for NEXT_STEP)."""
    full: bool = True
    """`valid.all()`, known beforehand: the fast path of the ring."""
    mask: BoolArray | None = None
    """`[B, A]` (`[B, D, A]` for branches) legal actions at o_t; None where the environment names none."""


def _no_infos() -> list[dict[str, Any]]:
    return []


@dataclass(slots=True)
class Rows:
    """One tick: the departures of the last tick and the arrivals of this one."""

    action: ActionArray | None
    """Actions that left the open rows; None when the stream begins anew: open rows are cut."""
    slots: tuple[Slot, ...]
    """One slot, or two where ended lanes deliver a final row beside the reset one; the last holds the open rows."""
    stepped: BoolArray
    """`[B]` lanes that made an environment step (reset rows did not)."""
    steps: int
    """`stepped.sum()`."""
    make_infos: Callable[[], list[dict[str, Any]]] = _no_infos
    """Builds the list of info dicts, one per lane, when first asked."""
    extra: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    """What else the policy declared on departing, `[B, ...]`."""


class Batch(NamedTuple):
    """What a loss sees of N transitions: no `done`, only a discount (0 after a termination)."""

    obs: dict[str, Tensor]
    action: Tensor
    """`[N]` int64, 0-based; `[N, D]` for MultiDiscrete; of a Box `[N, *shape]` float32."""
    return_: Tensor
    """`[N]` float32, the n-step sum of discounted rewards."""
    discount: Tensor
    """`[N]` float32, gamma**m, or 0 where the window ended in a termination."""
    next_obs: dict[str, Tensor]
    weight: Tensor
    """`[N]` float32; rows of weight 0 are padding."""
    place: Tensor
    """`[2, N]` int64: lane and absolute row number, for feedback."""
    mask: Tensor | None = None
    """`[N, A]` bool, legal actions at `obs` (`[N, D, A]` for branches); None: all."""
    next_mask: Tensor | None = None
    """The same at `next_obs`."""
    extra: dict[str, Tensor] | None = None
    """`[N, ...]` what the policy declared on departing, from a rollout; None from a replay."""

    def to(self, device: torch.device) -> Batch:
        """The batch where the nets are; itself where it lies there already."""
        return self if self.weight.device == device else Batch(*(_moved(field, device) for field in self))

    def tensors(self) -> tuple[Tensor, ...]:
        """All that there are, in one row."""
        parts = (field.values() if isinstance(field, dict) else [field] for field in self if field is not None)
        return tuple(tensor for part in parts for tensor in part)

    def with_tensors(self, tensors: Iterable[Tensor]) -> Batch:
        """A batch of the same form of what `tensors` gave."""
        row = iter(tensors)
        return Batch(*(_refilled(field, row) for field in self))


def _refilled(field: Any, row: Iterator[Tensor]) -> Any:
    if isinstance(field, dict):
        return {key: next(row) for key in field}
    return None if field is None else next(row)


def _moved(field: Any, device: torch.device) -> Any:
    if isinstance(field, dict):
        return {key: x.to(device) for key, x in field.items()}
    return None if field is None else field.to(device)


class Update(NamedTuple):
    """What one gradient step reports; it stays on the device until a log line needs it."""

    loss: Tensor
    """0-d."""
    grad_norm: Tensor
    """0-d, of the whole gradient before it is clipped."""
    facts: Tensor
    """`[F]` float32, named by the objective's `reports`."""


@dataclass(frozen=True)
class Blueprint:
    """The outside of an environment: enough to build a model, for instance one that is loaded without an env."""

    observation_space: gymnasium.Space[Any]
    """Of one lane, as the policy sees it: with its frame stack (`[K, H, W]`) where the stack is ours."""
    action_space: gymnasium.Space[Any]
    num_envs: int = 1
    frame_stack: int = 1
    """K where the ring stores single frames and stacks them itself, else 1."""


class Wait(NamedTuple):
    """What the next update waits for."""

    least: int
    """Env steps over all lanes without which no update can come, >= 1."""
    why: str
    """What is missing, as a clause."""
    fix: str
    """What to do, as a sentence without its full stop."""


class Experience(Protocol):
    """What an algorithm learns from: a replay, or a rollout."""

    def extend(self, rows: Rows) -> None: ...

    def updates_due(self) -> int: ...

    def wait(self) -> Wait:
        """Returns what the next update waits for; between two ticks."""

    def sample(self, noise: Tensor) -> Batch: ...

    def feedback(self, batch: Batch, priority: Tensor) -> None: ...


class Actor(Protocol):
    """Yields one tick after another for ever; the action is chosen when the next tick is asked for."""

    def rows(self) -> Iterator[Rows]: ...


class Objective(Protocol):
    """Loss per transition, `[N]`, and what feedback ("priority" `[N]`; else it is the loss) and the log want to know of it."""

    @property
    def reports(self) -> tuple[str, ...]:
        """Names of the 0-d facts that the log gets, as `train/<name>`."""

    def __call__(self, online: Any, target: Any, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]: ...
