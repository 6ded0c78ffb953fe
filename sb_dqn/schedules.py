"""Schedules: a frozen function of the env steps done and the horizon of the run, both over all lanes."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sb_dqn.checks import check_float, check_int
from sb_dqn.errors import ConfigurationError


class Schedule(abc.ABC):
    """`schedule(step, horizon) -> float`; both count env steps over all lanes."""

    @abc.abstractmethod
    def __call__(self, step: int, horizon: int) -> float:
        """The value at this step."""

    @abc.abstractmethod
    def values(self) -> tuple[float, ...]:
        """Those between which it moves, in order; of a function the first one."""

    def ends(self) -> tuple[float, float]:
        """The first value, and the one at which it stays."""
        values = self.values()
        return values[0], values[-1]

    def rises(self) -> bool:
        """Whether it grows somewhere; of a function only its two ends are known."""
        values = (*self.values(), self.ends()[1])
        return any(after > before for before, after in pairwise(values))


@dataclass(frozen=True)
class Constant(Schedule):
    """The same value at every step."""

    value: float

    def __call__(self, step: int, horizon: int) -> float:
        return self.value

    def values(self) -> tuple[float, ...]:
        return (self.value,)


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from `start` to `end`, which then stays at `end`.

    It ends after `steps` env steps, or, where `steps` is None, after `fraction` of the horizon.
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
    """Straight lines between `(env step, value)` points; constant outside them."""

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        steps = [step for step, _ in self.points]
        if not steps or steps != sorted(set(steps)):
            raise ConfigurationError(f"points={self.points!r} is not allowed: give (step, value) pairs, steps rising")

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
class FromProgress(Schedule):
    """A Stable-Baselines3 schedule, a function of the progress remaining (1 at the start, 0 at the horizon)."""

    function: Callable[[float], float]

    def __call__(self, step: int, horizon: int) -> float:
        # the last tick of several lanes goes beyond the horizon; roots and logarithms are not made for that
        return float(self.function(max(0.0, 1.0 - step / max(horizon, 1))))

    def values(self) -> tuple[float, ...]:
        return (self(0, 1),)

    def ends(self) -> tuple[float, float]:
        return self(0, 1), self(1, 1)


SCHEDULES: dict[str, type[Any]] = {schedule.__name__: schedule for schedule in (Constant, Linear, Piecewise)}


def as_schedule(name: str, value: Any, *, low: float = 0.0, high: float = math.inf, above: bool = True) -> Schedule:
    """A number, a `Schedule` (of this module, or of your own), a text for `parse`, pairs (env step, value) as for
    `Piecewise`, or a function of the progress remaining.

    Args:
        name: of the argument, for messages.
        value: as above.
        low: smallest value.
        high: largest value.
        above: a constant must lie above `low`; a schedule may begin or end there.

    Raises:
        ConfigurationError: none of these, or out of range.
    """
    if isinstance(value, str):
        found = parse(value, name)
    elif isinstance(value, Schedule):
        found = value
    elif callable(value):
        found = FromProgress(value)
    elif isinstance(value, Sequence) and value and all(isinstance(pair, (list, tuple)) for pair in value):
        found = Piecewise(_points(name, value))
    elif isinstance(value, Sequence):
        raise _no_points(name, value)
    else:
        found = Constant(check_float(name, value, low, high, above=above))
    try:
        reached = found.values()
    except Exception as error:  # whatever a user's function raises
        raise ConfigurationError(
            f"{name}={value!r} is not allowed: give a function of the progress remaining (1 at the start, 0 at the end); "
            f"this one failed: {type(error).__name__}: {error}"
        ) from error
    for number in reached:
        check_float(f"{name}={value!r}, its value", number, low, high, above=above and len(reached) == 1)
    return found


def _no_points(name: str, given: Any) -> ConfigurationError:
    return ConfigurationError(f"{name}={given!r} is not allowed: give (env step, value) pairs, steps rising")


def _points(name: str, pairs: Sequence[Any]) -> tuple[tuple[int, float], ...]:
    """Pairs (env step, value), each number checked."""
    wrong = _no_points(name, pairs)
    if any(len(pair) != 2 for pair in pairs):
        raise wrong
    points = tuple(
        (check_int(f"{name}, its step", step, 0), check_float(f"{name}, its value", value, -math.inf))
        for step, value in pairs
    )
    if any(after[0] <= before[0] for before, after in pairwise(points)):
        raise wrong
    return points


def parse(text: str, name: str = "schedule") -> Schedule:
    """`"0.001"`, `"linear 0.001"` (to 0 over the run), `"linear 0.001 0.0001"`, or the Zoo's `"lin_0.001"`.

    Raises:
        ConfigurationError: anything else.
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
        f"{name}={text!r} is not understood: give '0.001', 'linear 0.001' or 'linear 0.001 0.0001'"
    )
