"""Data types: rows from the environment, batches for the learner.

Terms: a *lane* is one environment of a vector environment. B = number of lanes, N = batch size, A = number of actions,
D = action branches, K = frame stack. Observations are always a flat dict: `{"obs": array}` for a plain space, paths as keys
(`"camera/left"`) for a Dict space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsFloat, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import gymnasium
    import torch
    from torch import Tensor

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
"""Array of any dtype."""
ArraySpec = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and dtype of an array."""
Observation = dict[str, Array]
ActionArray = Array
"""`[B]` (`[B, D]` for branches) int64, 0-based; for a Box `[B, *shape]` float32, in the units and bounds of the env."""
State = dict[str, Any]
"""State of an object, as its `state_dict` returns it."""
EnvLike: TypeAlias = Any
"""Environment of any supported kind: a gymnasium `Env` or `VectorEnv`, a `VecEnv` of Stable-Baselines3, an environment of EnvPool or
PettingZoo, an id, or a function that makes one. They have no common base class."""
ModelLike: TypeAlias = Any
"""Model of this library or of Stable-Baselines3, or another object with their `predict`. They have no common base class."""
Env: TypeAlias = "gymnasium.Env[Any, Any]"
"""Environment with the interface of gymnasium, of one lane."""
Info = dict[str, Any]
"""Info dict of an environment."""
ResetResult = tuple[Any, Info]
"""Result of `reset` of an environment: observation and info."""
StepResult = tuple[Any, SupportsFloat, bool, bool, Info]
"""Result of `step` of an environment: observation, reward, terminated, truncated and info."""
VectorStep = tuple[Any, Array, Array, Array, Info]
"""Result of `step` of a vector environment: observations, rewards `[B]`, terminated `[B]`, truncated `[B]` and info."""
Settings = Mapping[str, Any]
"""Values by the names of settings or keyword arguments, read only."""
Kwargs = dict[str, Any]
"""Keyword arguments by name."""
Network: TypeAlias = Callable[..., Any]
"""A network, or a function that calls one with its random numbers: from observations and a mask to its output."""


def any_true(mask: BoolArray) -> bool:
    """Returns `mask.any()`, several times as fast for small arrays."""
    return b"\x01" in mask.tobytes()


@dataclass(slots=True)
class Slot:
    """The arrivals of a step: one row for each lane in which `valid` is set. Every array has leading axis B."""

    obs: Observation
    """Observations o_t by key, `[B, *shape]`, in their native dtype; only the newest frame `[B, 1, H, W]` of a frame stack."""
    reward: FloatArray
    """Rewards r_t received on arrival at o_t, as used for training (clipped if so configured); 0 on a reset row."""
    score: FloatArray
    """Rewards r_t as the environment returned them."""
    terminal: BoolArray
    """True if no value follows o_t: the episode terminated, or a life was lost if so configured. The bootstrap is 0 then."""
    last: BoolArray
    """True at the end of an episode: the next row of this lane is a reset row. `last & ~terminal` is a truncation, for
    example by a time limit: targets bootstrap from the value of o_t, the last observation of the episode."""
    valid: BoolArray
    """True if the slot has a row of this lane (always with NEXT_STEP)."""
    full: bool = True
    """Equals `valid.all()`; it is computed in advance for the fast path of the ring."""
    mask: BoolArray | None = None
    """Legal actions at o_t, `[B, A]` (`[B, D, A]` for branches), or None if the environment has no action masks."""


@dataclass(slots=True)
class Rows:
    """One tick (a step of all lanes): the departures of the last tick and the arrivals of this one."""

    action: ActionArray | None
    """Actions taken at the open rows; None when the stream restarts, which cuts the open rows (see `departed`)."""
    slots: tuple[Slot, ...]
    """One slot, or two if ended lanes return a final row in addition to the reset row; the last has the open rows."""
    stepped: BoolArray
    """Lanes `[B]` that made an environment step; lanes with a reset row did not."""
    steps: int
    """Number of environment steps, `stepped.sum()`."""
    make_infos: Callable[[], list[Info]] = list
    """Builds the list of info dicts, one per lane, on demand."""
    extra: dict[str, Array] = field(default_factory=dict)
    """Further outputs of the policy at the departure, `[B, ...]`."""
    departed: BoolArray | None = None
    """Lanes `[B]` whose actions are in `action`. If None, `action` has those of all lanes. A tick from other processes may
    hold some lanes only: a lane without a departure and without a row here is unchanged, one without a departure but with a
    row was restarted."""

    def restarted(self) -> BoolArray | None:
        """Returns the lanes `[B]` that were reset in the middle of an episode, whose open rows are cut, or None if
        there is no such lane."""
        if self.departed is None:
            return np.ones_like(self.stepped) if self.action is None else None
        arrived: BoolArray = np.any([slot.valid for slot in self.slots], axis=0)
        return arrived & ~self.departed

    def begins(self, last: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Returns the lanes `[B]` whose open rows begin an episode, and those whose open rows end one.

        Args:
            last: `[B]`, the second result for the tick before.
        """
        begins = np.ones_like(last) if self.action is None else np.zeros_like(last)
        for slot in self.slots:
            begins |= slot.valid & last
            last = np.where(slot.valid, slot.last, last)
        return begins, last


class Batch(NamedTuple):
    """N transitions as the input of a loss, with a discount (0 after a termination) instead of `done`."""

    obs: dict[str, Tensor]
    action: Tensor
    """Actions `[N]` int64, 0-based; `[N, D]` for MultiDiscrete; `[N, *shape]` float32 for a Box."""
    return_: Tensor
    """Sums of the discounted rewards of n steps, `[N]` float32."""
    discount: Tensor
    """Discounts `[N]` float32: gamma**m after m steps, or 0 after a termination."""
    next_obs: dict[str, Tensor]
    weight: Tensor
    """Weights of the losses, `[N]` float32; rows of weight 0 are padding."""
    place: Tensor
    """Lane and absolute row number of each transition, `[2, N]` int64, for `feedback`."""
    mask: Tensor | None = None
    """Legal actions at `obs`, `[N, A]` bool (`[N, D, A]` for branches). If None, all actions are legal."""
    next_mask: Tensor | None = None
    """Legal actions at `next_obs`, `[N, A]` bool (`[N, D, A]` for branches). If None, all actions are legal."""
    extra: dict[str, Tensor] | None = None
    """Further outputs of the policy at the departure, `[N, ...]`, from a rollout; `future_action` and `future_valid` with
    `future`."""
    future: dict[str, Tensor] | None = None
    """Observations 1 .. K steps after `obs`, `[K * N, ...]`, for self-prediction. If None, they are not read."""

    def to(self, device: torch.device) -> Batch:
        """Returns the batch on `device`; `self` if it is there already."""
        return self if self.weight.device == device else self.with_tensors(x.to(device) for x in self.tensors())

    def tensors(self) -> tuple[Tensor, ...]:
        """Returns all tensors of the batch as a flat tuple."""
        parts = (field.values() if isinstance(field, dict) else [field] for field in self if field is not None)
        return tuple(tensor for part in parts for tensor in part)

    def with_tensors(self, tensors: Iterable[Tensor]) -> Batch:
        """Returns a batch of the same structure with other tensors, in the order of `tensors()`."""
        iterator = iter(tensors)
        return Batch(*(_refilled(field, iterator) for field in self))


def _refilled(field: object, tensors: Iterator[Tensor]) -> Any:
    if isinstance(field, dict):
        return {key: next(tensors) for key in field}
    return None if field is None else next(tensors)


class Update(NamedTuple):
    """Results of one gradient step; they stay on the device until a log line needs them."""

    values: Tensor
    """Values `[2 + F]` float32: the loss, the norm of the whole gradient before clipping, and the values named by the
    objective's `reports`."""
    applied: bool = True
    """False if training stopped before the step, as PPO does for its target KL divergence."""

    @property
    def loss(self) -> Tensor:
        """The loss, 0-d."""
        return self.values[0]

    @property
    def grad_norm(self) -> Tensor:
        """The norm of the whole gradient before clipping, 0-d."""
        return self.values[1]

    @property
    def reports(self) -> Tensor:
        """Values to log, `[F]`."""
        return self.values[2:]


@dataclass(frozen=True)
class Blueprint:
    """Spaces and lanes of an environment: enough to build a model, for example when it is loaded without an env."""

    observation_space: gymnasium.Space[Any]
    """Space of one lane as the policy sees it, including the frame stack (`[K, H, W]`) if this library stacks the frames."""
    action_space: gymnasium.Space[Any]
    num_envs: int = 1
    frame_stack: int = 1
    """K if the ring stores single frames and this library stacks them, else 1."""


class Wait(NamedTuple):
    """Reason why no update is due yet."""

    least: int
    """Number of env steps over all lanes without which no update can come, >= 1."""
    why: str
    """What the update waits for, as a clause."""
    fix: str
    """What the user can do, as a sentence without its full stop."""


class Experience(Protocol):
    """Source of training batches: a replay buffer, a rollout buffer or an episode buffer."""

    @property
    def view(self) -> Any:
        """Reader of the samples. When it is replaced, functions are traced again."""

    def extend(self, rows: Rows) -> None:
        """Adds one tick."""

    def updates_due(self) -> int:
        """Returns the updates to make now, and counts them as done."""

    def wait(self) -> Wait:
        """Returns what the next update waits for; it is called between two ticks."""

    def refresh(self) -> None:
        """Updates what the next sample needs to know of new rows."""

    def draw(self, generator: torch.Generator) -> Tensor:
        """Returns the random numbers, or the places, of the next batch."""

    def sample_from(self, drawn: Tensor) -> Batch:
        """Returns the batch for the result of `draw`: tensor operations that can be traced."""

    def traced_sampling(self, drawn: Tensor) -> Callable[[Tensor], Batch]:
        """Returns `sample_from`, or a faster version of it for numbers of this shape."""

    def feedback(self, batch: Batch, priority: Tensor) -> None:
        """Takes the new priorities `[N]` of the samples of a batch."""

    def sends_batches(self, device: torch.device) -> bool:
        """Returns True if `sample_from` cannot be part of a traced update of networks on a device."""

    def preserve_state(self) -> AbstractContextManager[None]:
        """Restores at the end what `feedback` changes within."""


class Objective(Protocol):
    """Function that returns the loss per transition `[N]` and a dict of further tensors.

    The dict has the 0-d values to log and optionally "priority" `[N]`, the new priorities; without it the losses are used.
    """

    @property
    def reports(self) -> tuple[str, ...]:
        """Names of the 0-d values that are logged as `train/<name>`."""

    def __call__(self, online: Network, target: Network, batch: Batch) -> tuple[Tensor, Mapping[str, Tensor]]: ...
