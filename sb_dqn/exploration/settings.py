"""The constructor's keyword `exploration`, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sb_dqn.checks import check_choice, check_float, check_int, check_keys
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration.base import Exploration
from sb_dqn.exploration.boltzmann import Boltzmann
from sb_dqn.exploration.epsilon import EpsilonGreedy
from sb_dqn.exploration.ladders import ApexLadder, Ladder, LogLadder
from sb_dqn.schedules import Constant, Schedule, as_schedule
from sb_dqn.spaces import ActionShape

KINDS = ("epsilon", "boltzmann", "none")
KEYS = {
    "epsilon": ("schedule", "ladder", "ladder_alpha", "ladder_min", "off_after"),
    "boltzmann": ("temperature", "off_after"),
    "none": (),
}
"""What a dict may hold beside `kind`."""


@dataclass(frozen=True)
class ExplorationConfig:
    """How actions are chosen while learning, and by `predict(deterministic=False)`.

    Args:
        kind: "epsilon", "boltzmann", or "none" (greedy; noisy layers explore by themselves).
        schedule: epsilon, [0, 1], or temperature, from 0, over env steps.
        ladder: final epsilon of each lane.
        off_after: env step from which epsilon or temperature is 0.
        evaluation_eps: epsilon of `predict`, [0, 1]; None: as while learning.
    """

    kind: str
    schedule: Schedule
    ladder: Ladder | None = None
    off_after: int | None = None
    evaluation_eps: float | None = None

    def build(self, actions: ActionShape, num_lanes: int, rng: np.random.Generator) -> Exploration:
        """The exploration of a model with these actions and lanes."""
        evaluation = (
            None
            if self.evaluation_eps is None
            else EpsilonGreedy(Constant(self.evaluation_eps), actions, num_lanes, rng)
        )
        if self.kind == "boltzmann":
            return Boltzmann(self.schedule, actions, num_lanes, rng, off_after=self.off_after, evaluation=evaluation)
        return EpsilonGreedy(
            self.schedule,
            actions,
            num_lanes,
            rng,
            ladder=self.ladder,
            off_after=self.off_after,
            evaluation=evaluation,
        )


def as_exploration(given: Any, schedule: Schedule, evaluation_eps: float | None = None) -> ExplorationConfig:
    """The settings that a user means.

    Args:
        given: "epsilon", "boltzmann", "none", or a dict of `kind` and what belongs to it: for "epsilon" `schedule`,
            `ladder` ("apex" with `ladder_alpha`, 7; "log" with `ladder_min`), `off_after`; for "boltzmann"
            `temperature`, `off_after`.
        schedule: what `exploration_initial_eps`, `exploration_final_eps` and `exploration_fraction` say; it stands for
            the `schedule` or `temperature` that is not given.
        evaluation_eps: [0, 1], or None.

    Raises:
        ConfigurationError: another kind, a key that does not belong to it, or a number out of range.
    """
    if not isinstance(given, (str, Mapping)):
        raise ConfigurationError(
            f"exploration={given!r} is not allowed: give one of {list(KINDS)}, or a dict such as "
            f"dict(kind='epsilon', ladder='apex')"
        )
    options = dict(given) if isinstance(given, Mapping) else {"kind": given}
    kind = check_choice("exploration", options.get("kind", "epsilon"), KINDS)
    check_keys(f"exploration of kind {kind!r}", options, ("kind", *KEYS[kind]))
    off_after = options.get("off_after")
    if off_after is not None:
        off_after = check_int("exploration['off_after']", off_after, 0)
    if evaluation_eps is not None:
        evaluation_eps = check_float("evaluation_eps", evaluation_eps, 0.0, 1.0)
    ladder: Ladder | None = None
    if kind == "none":
        schedule = Constant(0.0)
    elif kind == "boltzmann":
        schedule = _falling("exploration['temperature']", options.get("temperature"), schedule)
        if schedule.ends()[0] <= 0.0:
            raise ConfigurationError(
                "exploration='boltzmann' begins at temperature 0, which explores nothing; give "
                "exploration=dict(kind='boltzmann', temperature=...) above 0, in units of the values"
            )
    else:
        schedule = _falling("exploration['schedule']", options.get("schedule"), schedule, 1.0)
        ladder = _ladder(options, schedule.ends()[1])
    return ExplorationConfig(kind, schedule, ladder, off_after, evaluation_eps)


def _falling(name: str, given: Any, default: Schedule, high: float = np.inf) -> Schedule:
    """The schedule that was given, or the default.

    Raises:
        ConfigurationError: it is none, out of range, or rises somewhere.
    """
    found = default if given is None else as_schedule(name, given, above=False, high=high)
    if given is not None and found.rises():
        raise ConfigurationError(
            f"{name}={given!r} is not allowed: it rises, and exploration never rises again; give values that fall"
        )
    return found


def _ladder(options: Mapping[str, Any], final: float) -> Ladder | None:
    """The ladder below `final`.

    Raises:
        ConfigurationError: another ladder, a number of the other one, or no room for it.
    """
    kind = options.get("ladder")
    other = {None: ("ladder_alpha", "ladder_min"), "apex": ("ladder_min",), "log": ("ladder_alpha",)}
    if kind is not None:
        check_choice("exploration['ladder']", kind, ("apex", "log"))
    for key in other[kind]:
        if options.get(key) is not None:
            raise ConfigurationError(
                f"exploration[{key!r}]={options[key]!r} does not belong to ladder={kind!r}; ladder_alpha is for 'apex', "
                f"ladder_min for 'log'"
            )
    if kind is None:
        return None
    if final <= 0.0:
        raise ConfigurationError(
            f"exploration['ladder']={kind!r} has no lanes to tell apart where epsilon ends at 0; give a final epsilon "
            f"above 0, for instance exploration_final_eps=0.4"
        )
    if kind == "apex":
        alpha = options.get("ladder_alpha")
        return ApexLadder(7.0 if alpha is None else check_float("exploration['ladder_alpha']", alpha, 0.0, above=True))
    return LogLadder(check_float("exploration['ladder_min']", options.get("ladder_min"), 0.0, final, above=True))
