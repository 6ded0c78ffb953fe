"""Exploration configuration: parsing and validation of the constructor keyword `exploration`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from sb_dqn.checks import check_callable, check_choice, check_float, check_int, check_keys
from sb_dqn.errors import ConfigurationError
from sb_dqn.exploration.base import Exploration
from sb_dqn.exploration.boltzmann import Boltzmann
from sb_dqn.exploration.epsilon import EpsilonGreedy
from sb_dqn.exploration.ladders import ApexLadder, Ladder, LadderPart, LogLadder
from sb_dqn.schedules import Constant, Schedule, as_schedule
from sb_dqn.spaces import ActionShape
from sb_dqn.types import Kwargs, Settings

KINDS = ("epsilon", "boltzmann", "none")
KEYS = {
    "epsilon": ("schedule", "ladder", "ladder_alpha", "ladder_min", "off_after"),
    "boltzmann": ("temperature", "off_after"),
    "none": (),
}
"""Allowed keys next to `kind`, by kind."""


@dataclass(frozen=True)
class ExplorationConfig:
    """Exploration during training and in `predict(deterministic=False)`.

    Args:
        kind: "epsilon", "boltzmann", or "none" (greedy, for noisy layers).
        schedule: epsilon in [0, 1], or temperature >= 0, over env steps.
        ladder: final epsilon of each lane. If None, it is that of `schedule`.
        off_after: env step from which epsilon or temperature is 0. If None, there is no such step.
        evaluation_eps: epsilon of `predict`, [0, 1]. If None, `predict` explores as in training.
        factory: makes an exploration of the user, kind "own".
    """

    kind: str
    schedule: Schedule
    ladder: Ladder | None = None
    off_after: int | None = None
    evaluation_eps: float | None = None
    factory: Callable[[ActionShape, int, np.random.Generator], Exploration] | None = None

    def for_lanes(self, first_lane: int, total_lanes: int, share: tuple[int, int] = (0, 1)) -> ExplorationConfig:
        """Returns the configuration for lanes from `first_lane` of a model with `total_lanes`; `share` as in `EpsilonGreedy`."""
        if self.ladder is None or isinstance(self.ladder, LadderPart):
            return self
        return replace(self, ladder=LadderPart(self.ladder, first_lane, total_lanes, share))

    def build(
        self, actions: ActionShape, num_lanes: int, rng: np.random.Generator, share: tuple[int, int] = (0, 1)
    ) -> Exploration:
        """Creates the exploration of a model with these actions and lanes; `share` as in `EpsilonGreedy`.

        Raises:
            ConfigurationError: an own factory returns something else.
        """
        if self.factory is not None:
            made = self.factory(actions, num_lanes, rng)
            if not isinstance(made, Exploration):
                raise ConfigurationError(
                    f"exploration must return an Exploration from (actions, num_lanes, rng), got {made!r}. Derive its class from "
                    f"sb_dqn.exploration.Exploration."
                )
            return made
        evaluation: Exploration | None = None
        if self.evaluation_eps is not None:
            evaluation = EpsilonGreedy(Constant(self.evaluation_eps), actions, num_lanes, rng)
        further: Kwargs = {"off_after": self.off_after, "evaluation": evaluation}
        if self.kind == "boltzmann":
            return Boltzmann(self.schedule, actions, num_lanes, rng, **further)
        return EpsilonGreedy(self.schedule, actions, num_lanes, rng, ladder=self.ladder, share=share, **further)


def as_exploration(value: object, schedule: Schedule, evaluation_eps: float | None = None) -> ExplorationConfig:
    """Parses and validates the keyword `exploration`.

    Args:
        value: "epsilon", "boltzmann", "none", or a dict of `kind` and its options: `schedule`, `ladder` ("apex" with
            `ladder_alpha`, default 7; "log" with `ladder_min`) and `off_after` for "epsilon"; `temperature` and
            `off_after` for "boltzmann"; or a subclass of `Exploration`, or another function
            `(actions, num_lanes, rng) -> Exploration`.
        schedule: default of `schedule` and `temperature`, built from `exploration_initial_eps`, `exploration_final_eps`
            and `exploration_fraction`.
        evaluation_eps: epsilon of `predict`, [0, 1]. If None, `predict` explores as in training.

    Raises:
        ConfigurationError: an unknown kind, a key of another kind, or a number out of range.
    """
    if callable(value):
        factory = check_callable("exploration", value, "actions", "num_lanes", "rng")
        if evaluation_eps is not None:
            raise ConfigurationError(
                f"evaluation_eps must be None with an exploration of your own, got {evaluation_eps!r}. Pass evaluation= to its "
                f"super().__init__."
            )
        return ExplorationConfig("own", schedule, factory=factory)
    if not isinstance(value, (str, Mapping)):
        raise ConfigurationError(
            f"exploration must be one of {list(KINDS)}, a dict, or a subclass of Exploration, got {value!r}. Use for instance "
            f"exploration=dict(kind='epsilon', ladder='apex')."
        )
    options = dict(value) if isinstance(value, Mapping) else {"kind": value}
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
        if options.get("temperature") is not None:
            schedule = as_schedule("exploration['temperature']", options["temperature"], above=False)
        if schedule.ends()[0] <= 0.0:
            raise ConfigurationError(
                "exploration['temperature'] must start above 0, got 0. Set exploration=dict(kind='boltzmann', "
                "temperature=...) to a positive number, in units of the action values."
            )
    else:
        if options.get("schedule") is not None:
            schedule = as_schedule("exploration['schedule']", options["schedule"], above=False, high=1.0)
        ladder = _ladder(options, schedule.ends()[1])
    return ExplorationConfig(kind, schedule, ladder, off_after, evaluation_eps)


def _ladder(options: Settings, final: float) -> Ladder | None:
    """Returns the ladder of the options, None without one; `final` is the final epsilon of the schedule."""
    kind = options.get("ladder")
    if kind is not None:
        check_choice("exploration['ladder']", kind, ("apex", "log"))
    for key, ladder in (("ladder_alpha", "apex"), ("ladder_min", "log")):
        if kind != ladder and options.get(key) is not None:
            raise ConfigurationError(
                f"exploration[{key!r}] must be unset with ladder={kind!r}, got {options[key]!r}. Remove it, or set "
                f"ladder={ladder!r}."
            )
    if kind is None:
        return None
    if final <= 0.0:
        raise ConfigurationError(
            f"final epsilon must be above 0 with exploration['ladder']={kind!r}, got {final:g}. Set for instance "
            f"exploration_final_eps=0.4."
        )
    if kind == "apex":
        alpha = options.get("ladder_alpha")
        return ApexLadder(7.0 if alpha is None else check_float("exploration['ladder_alpha']", alpha, 0.0, above=True))
    return LogLadder(check_float("exploration['ladder_min']", options.get("ladder_min"), 0.0, final, above=True))
