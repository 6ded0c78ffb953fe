"""The actor that does everything in turn."""

from __future__ import annotations

from sb_dqn.acting.collector import InlineCollector
from sb_dqn.types import Rows
from tests.toy_actors import toy_actor, toy_control
from tests.toys import toy_policy, toy_stream


def test_actions_are_chosen_when_the_next_tick_is_asked_for() -> None:
    _, stream = toy_stream("lanes", 2)
    asked: list[Rows] = []
    ticks = InlineCollector(toy_actor(stream, asked.append), toy_control(3)).rows()
    first = next(ticks)
    assert first.action is None
    assert asked == []
    second = next(ticks)
    assert asked == [first]
    assert second.action is not None
    assert second.action.tolist() == toy_policy(first).tolist()


def test_the_seed_is_for_the_first_stream_alone() -> None:
    _, stream = toy_stream("lanes", 1)
    seeds: list[int | None] = []
    begin = stream.begin

    def noted(seed: int | None = None) -> Rows:
        seeds.append(seed)
        return begin(seed)

    stream.begin = noted  # type: ignore[method-assign]
    collector = InlineCollector(toy_actor(stream), toy_control(3))
    next(collector.rows())
    next(collector.rows())
    assert seeds == [3, None]
