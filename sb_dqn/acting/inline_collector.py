"""Collector that steps the environments in the thread of the learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sb_dqn.acting.actor import Actor
from sb_dqn.acting.collector import Collector, Orders
from sb_dqn.envs.vector.env_state import NoEnvState
from sb_dqn.types import Rows


class InlineCollector(Collector):
    """Lets one actor step all lanes; the actions for a tick are selected when the next one is requested.

    Args:
        actor: the actor.
        orders: how to act.
    """

    def __init__(self, actor: Actor, orders: Orders) -> None:
        super().__init__(actor.stream, orders)
        self.actor = actor

    @property
    def latest(self) -> Rows | None:
        return self.actor.rows

    def rows(self, first: Rows | None = None) -> Iterator[Rows]:
        step, prepare = self.actor.step, self.orders.prepare
        if first is None:
            yield self.actor.begin(self.take_seed())
        while True:
            yield step(prepare())

    def state(self, settled: bool, trust: bool) -> tuple[dict[str, Any] | None, dict[str, Any] | None, str]:
        try:
            if not settled:
                raise NoEnvState("the environment stopped in the middle of a step")
            state = self.actor.state(trust)
        except NoEnvState as why:
            return None, None, str(why)
        return state["tick"], state["stream"], ""

    def load_state(self, tick: Mapping[str, Any], stream: Mapping[str, Any], trust: bool) -> Rows:
        return self.actor.load_state({"tick": tick, "stream": stream}, trust)

    def parts(self) -> dict[str, Any]:
        return self.actor.parts()

    def forget(self) -> None:
        self.actor.rows = None
