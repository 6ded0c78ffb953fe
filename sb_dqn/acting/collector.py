"""Collectors of rows: what they have in common, what they get from the model, and the one in the thread of the learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from sb_dqn.acting.actor import Actor
from sb_dqn.envs.streams.open import Stream
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.errors import CheckpointError
from sb_dqn.exploration import Exploration
from sb_dqn.normalize import Normalizer
from sb_dqn.rng import Generators
from sb_dqn.types import Rows, State

KIND = "collector"
"""Key of a collector's kind in the state of its stream; absent for the `InlineCollector`."""


@dataclass(frozen=True)
class ActingControl:
    """Control of a model over its actors: how they act from now on, and by which random numbers.

    Args:
        prepare: applies what depends on the number of env steps, before actions are selected; returns True if the actions are
            drawn uniformly.
        policy: networks of the model, whose weights actors in other processes copy.
        normalizer: its normalization, whose statistics they copy.
        rng: its random generators.
        env_seed: seed of the first reset; None: the environments' own.
        exploration: exploration of a Q-policy, over all lanes; None for policies that sample their actions.
        count_updates: returns the number of updates so far.
        observe: returns the observations of the open rows, of all lanes or of an array of them, from a buffer on the networks'
            device; None: actors of frame stacks stack the frames.
    """

    prepare: Callable[[], bool]
    policy: Any
    normalizer: Normalizer
    rng: Generators
    env_seed: int | None
    exploration: Exploration | None = None
    count_updates: Callable[[], int] = int
    observe: Callable[..., object] | None = None


class Collector(ABC):
    """Collects rows from the environments of a model.

    Args:
        stream: what the lanes are.
        control: how to act.
    """

    kind: ClassVar[str | None] = None
    """Name in checkpoints; None: the inline collector."""

    def __init__(self, stream: Stream, control: ActingControl) -> None:
        self.stream = stream
        self.control = control
        self.proceed: Callable[[], None] | None = None
        """To be called when the latest tick has been stored, before its updates; None: the collector needs no such call."""
        self.env_seed = control.env_seed
        """Seed of the next reset; None: the environments' own generators."""
        self._latest: Rows | None = None

    @property
    def latest(self) -> Rows | None:
        """The latest tick; None if there is none to continue from."""
        return self._latest

    @abstractmethod
    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        """Yields one tick after another.

        Args:
            first: what `restore` returned, to continue from there; None resets all lanes.
        """

    @abstractmethod
    def state(self, settled: bool, trust: bool) -> tuple[State | None, State | None, str]:
        """Returns the state between two ticks: the tick to continue from, the environments, and the reason if there is none.

        Args:
            settled: the latest tick has been stored and its updates have run.
            trust: pickle an environment that has no `state_dict()`.
        """

    def restore(self, tick: State | None, stream: State | None, trust: bool) -> Rows | None:
        """Restores a `state`; returns what `rows` continues from, None if the environment must be reset.

        Raises:
            CheckpointError: the state is of another kind of collector, or of another environment.
        """
        if tick is None or stream is None:
            return None
        if stream.get(KIND) != self.kind:
            raise CheckpointError(
                f"actors must be of the kind of the full checkpoint, {stream.get(KIND)!r}, got {self.kind!r}. Load it with the same "
                f"actors, or call learn instead of resume."
            )
        return self.load_state(tick, stream, trust)

    @abstractmethod
    def load_state(self, tick: State, stream: State, trust: bool) -> Rows | None:
        """Restores a `state` of this kind of collector; see `restore`."""

    def saved_parts(self) -> dict[str, Any]:
        """Returns the parts of the actors whose state a full checkpoint holds, by name."""
        return {}

    def take_seed(self) -> int | None:
        """Returns the seed of this reset; later ones use the environments' own generators."""
        seed, self.env_seed = self.env_seed, None
        return seed

    def log_facts(self) -> dict[str, float]:
        """Returns entries for a log line."""
        streams = getattr(self.stream, "streams", (self.stream,))  # of the groups of lanes, if there are any
        restarts = sum(getattr(each.env, "restarts", 0) for each in streams)
        return {"rollout/env_restarts": restarts} if restarts else {}

    def drop_latest(self) -> None:
        """Drops the latest tick, whose open rows are no longer those of the environment."""
        self._latest = None

    def close(self) -> None:  # noqa: B027  # an empty default, on purpose
        """Ends what runs in the background; the environment stays open."""


class InlineCollector(Collector):
    """Lets one actor step all lanes; the actions for a tick are selected when the next one is requested.

    Args:
        actor: the actor.
        control: how to act.
    """

    def __init__(self, actor: Actor, control: ActingControl) -> None:
        super().__init__(actor.stream, control)
        self.actor = actor

    @property
    def latest(self) -> Rows | None:
        return self.actor.rows

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        step, prepare = self.actor.step, self.control.prepare
        if first is None:
            yield self.actor.begin(self.take_seed())
        while True:
            yield step(prepare())

    def state(self, settled: bool, trust: bool) -> tuple[State | None, State | None, str]:
        try:
            if not settled:
                raise NoEnvState("the environment stopped in the middle of a step")
            state = self.actor.state(trust)
        except NoEnvState as why:
            return None, None, str(why)
        return state["tick"], state["stream"], ""

    def load_state(self, tick: State, stream: State, trust: bool) -> Rows:
        return self.actor.load_state({"tick": tick, "stream": stream}, trust)

    def saved_parts(self) -> dict[str, Any]:
        return self.actor.saved_parts()

    def drop_latest(self) -> None:
        self.actor.rows = None
