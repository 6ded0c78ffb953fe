"""Schedules: values that change with the environment steps of a run, counted over all lanes."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from sb_dqn.checks import check_float, check_int
from sb_dqn.errors import ConfigurationError


class Schedule(abc.ABC):
    """Base class: `schedule(step, horizon) -> float`, where both arguments count environment steps over all lanes."""

    @abc.abstractmethod
    def __call__(self, step: int, horizon: int) -> float:
        """Returns the value at this step of a run of `horizon` steps."""

    @abc.abstractmethod
    def values(self) -> tuple[float, ...]:
        """Returns the values between which the schedule moves, in order; its two ends for a function."""

    def ends(self) -> tuple[float, float]:
        """Returns the first and the final value."""
        values = self.values()
        return values[0], values[-1]

    def rises(self) -> bool:
        """Returns True if the value increases anywhere; for a function only the two ends are compared."""
        return any(after > before for before, after in pairwise(self.values()))


@dataclass(frozen=True)
class Constant(Schedule):
    """Schedule with the same value at every step."""

    value: float

    def __call__(self, step: int, horizon: int) -> float:
        return self.value

    def values(self) -> tuple[float, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Linear(Schedule):
    """Linear schedule from `start` to `end`, constant afterwards.

    It reaches `end` after `steps` environment steps, or, if `steps` is None, after `fraction` of the horizon.
    """

    start: float
    end: float
    steps: int | None = None
    fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_int("steps", self.steps, 1)
        check_float("fraction", self.fraction, 0.0, 1.0)

    def __call__(self, step: int, horizon: int) -> float:
        length = self.steps if self.steps is not None else self.fraction * horizon
        if step >= length:
            return self.end
        return self.start + step / length * (self.end - self.start)

    def values(self) -> tuple[float, ...]:
        return self.start, self.end


@dataclass(frozen=True)
class Piecewise(Schedule):
    """Piecewise linear schedule through `(environment step, value)` points, constant before the first and after the last."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.points]
        if not steps or steps != sorted(set(steps)):
            raise ConfigurationError(
                f"points must be (env step, value) pairs with increasing steps, got {self.points!r}. Sort them by step."
            )

    def __call__(self, step: int, horizon: int) -> float:
        before = self.points[0]
        for point in self.points:
            if step < point[0]:
                if step <= before[0]:
                    return before[1]
                share = (step - before[0]) / (point[0] - before[0])
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]

    def values(self) -> tuple[float, ...]:
        return tuple(value for _, value in self.points)


@dataclass(frozen=True)
class Sampled(Schedule):
    """Values at equal shares of the horizon, from its start to its end, with straight lines between them."""

    points: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.points) < 2:
            raise ConfigurationError(f"points must be a tuple of at least two numbers, got {self.points!r}. Add some.")
        for point in self.points:
            check_float("a point of Sampled", point, -math.inf)

    def __call__(self, step: int, horizon: int) -> float:
        place = min(step / max(horizon, 1), 1.0) * (len(self.points) - 1)
        before = min(int(place), len(self.points) - 2)
        start, end = self.points[before : before + 2]
        return start + (place - before) * (end - start)

    def values(self) -> tuple[float, ...]:
        return self.points


@dataclass(frozen=True)
class FromProgress(Schedule):
    """Schedule of Stable-Baselines3: a function of the progress remaining (1 at the start, 0 at the horizon)."""

    function: Callable[[float], float]

    def __call__(self, step: int, horizon: int) -> float:
        # with several lanes the last tick may pass the horizon, where roots and logarithms would be undefined
        return float(self.function(max(0.0, 1.0 - step / max(horizon, 1))))

    def values(self) -> tuple[float, ...]:
        return self(0, 1), self(1, 1)


@dataclass(frozen=True)
class Annealed:
    r"""A number that moves from `start` to `end` over T updates, and stays there until the networks are reset.

    .. math:: x = x_0^{\,b} \, x_1^{\,1 - b}, \qquad b = \max(0, 1 - t / T)

    t counts the updates since the last reset (`resets=`), without resets since the first one. For a discount, x is
    1 - gamma; for numbers of steps, x is rounded (Schwarzer et al. 2023, arXiv 2305.19452).

    Args:
        start, end: the first and the last value.
        updates: number T of updates, from 1.

    Raises:
        ConfigurationError: `updates` is out of range.
    """

    start: float
    end: float
    updates: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "updates", check_int("updates of an annealed value", self.updates, 1))

    def between(self, first: float, last: float, t: int) -> float:
        """Returns x after t updates, for the values x_0 and x_1."""
        share = max(0.0, 1.0 - t / self.updates)
        return math.exp(share * math.log(first) + (1.0 - share) * math.log(last))


def as_annealed(name: str, value: object) -> Annealed | None:
    """Returns the settings of an annealed value; None for anything that is neither `Annealed` nor a dict.

    Raises:
        ConfigurationError: the dict has other keys than `start`, `end` and `updates`.
    """
    if isinstance(value, Annealed) or not isinstance(value, Mapping):
        return value if isinstance(value, Annealed) else None
    if set(value) != {"start", "end", "updates"}:
        raise ConfigurationError(
            f"{name} must be a number, or a dict of start, end and updates, got {dict(value)!r}. Give all three."
        )
    updates = check_int(f"{name}['updates']", value["updates"], 1)
    return Annealed(value["start"], value["end"], updates)


ScheduleLike: TypeAlias = float | str | Schedule | Callable[[float], float] | Sequence[tuple[int, float]]
"""Types of arguments that `as_schedule` converts to a schedule."""
SCHEDULES: dict[str, type[Any]] = {
    schedule.__name__: schedule for schedule in (Annealed, Constant, Linear, Piecewise, Sampled)
}


def as_schedule(name: str, value: object, *, high: float = math.inf, above: bool = True) -> Schedule:
    """Converts an argument to a `Schedule`.

    Args:
        name: argument name, for messages.
        value: a number, a `Schedule` of this module or your own, a text for `parse`, (environment step, value) pairs as
            for `Piecewise`, or a function of the progress remaining.
        high: largest allowed value.
        above: True if a constant must be greater than 0; a schedule may still start or end there.

    Raises:
        ConfigurationError: the value is none of these, or out of range.
    """
    if isinstance(value, str):
        schedule = parse(value, name)
    elif isinstance(value, Schedule):
        schedule = value
    elif callable(value):
        schedule = FromProgress(value)
    elif isinstance(value, Sequence):
        schedule = Piecewise(_points(name, value))
    else:
        schedule = Constant(check_float(name, value, 0.0, high, above=above))
    try:
        values = schedule.values()
    except Exception as error:  # a user's function may raise anything
        raise ConfigurationError(
            f"{name} must be a function of the progress remaining (1 at the start, 0 at the end), got {value!r}, which "
            f"raised {type(error).__name__}: {error}. Fix the function."
        ) from error
    for number in values:
        check_float(f"the value of {name}={value!r}", number, 0.0, high, above=above and len(values) == 1)
    return schedule


def _points(name: str, pairs: Sequence[Any]) -> tuple[tuple[int, float], ...]:
    """Checks (environment step, value) pairs."""
    invalid = ConfigurationError(
        f"{name} must be (env step, value) pairs with increasing steps, got {pairs!r}. Use for example [(0, 0.1), (10_000, 0.01)]."
    )
    if not pairs or any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pairs):
        raise invalid
    points = tuple(
        (check_int(f"the step of {name}", step, 0), check_float(f"the value of {name}", value, -math.inf))
        for step, value in pairs
    )
    if any(after[0] <= before[0] for before, after in pairwise(points)):
        raise invalid
    return points


def parse(text: str, name: str = "schedule") -> Schedule:
    """Parses `"0.001"`, `"linear 0.001"` (to 0 over the run), `"linear 0.001 0.0001"`, or the RL Zoo's `"lin_0.001"`.

    Raises:
        ConfigurationError: the text has another form.
    """
    words = text.replace("lin_", "linear ").split()
    try:
        if words[0] == "linear" and len(words) in (2, 3):
            return Linear(float(words[1]), float(words[2]) if len(words) == 3 else 0.0)
        if len(words) == 1:
            return Constant(float(words[0]))
    except (ValueError, IndexError):
        pass
    raise ConfigurationError(
        f"{name} must be a schedule such as '0.001', 'linear 0.001' or 'linear 0.001 0.0001', got {text!r}. Use one of these "
        f"forms."
    )
