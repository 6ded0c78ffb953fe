"""Composed callbacks: lists, events and functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from sb_dqn.callbacks import (
    BaseCallback,
    CallbackList,
    ConvertCallback,
    EventCallback,
    EveryNTimesteps,
    LogEveryNTimesteps,
    as_callback,
)
from sb_dqn.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("eagerly")


class Steps(BaseCallback):
    """Callback that records its calls and stops at `stop_at`."""

    def __init__(self, stop_at: float = float("inf")) -> None:
        super().__init__()
        self.steps: list[int] = []
        self.hooks: list[str] = []
        self.stop_at = stop_at

    def _on_rollout_start(self) -> None:
        self.hooks.append("rollout start")

    def _on_rollout_end(self) -> None:
        self.hooks.append("rollout end")

    def _on_step(self) -> bool:
        self.steps.append(self.num_timesteps)
        return self.num_timesteps < self.stop_at


def test_list_calls_all_callbacks_even_if_one_stops(model: Any, make_loop: Any) -> None:
    first, second = Steps(stop_at=2), Steps()
    assert not make_loop(model, CallbackList([first, second])).learn(ticks=5)
    assert first.steps == second.steps == [1, 2]
    assert first.hooks == second.hooks == ["rollout start", "rollout end"]


def test_children_of_a_list_have_the_parent_of_the_list(model: Any) -> None:
    inner = Steps()
    event = EventCallback(CallbackList([inner]))
    event.init_callback(model)
    assert inner.parent is event


@pytest.mark.parametrize(
    ("n_envs", "ticks", "expected"),
    [(1, 30, [10, 20, 30]), (3, 10, [12, 21, 30]), (8, 3, [16, 24]), (25, 3, [25, 50, 75])],
)
def test_every_n_timesteps_counts_all_lanes(
    make_model: Any, make_loop: Any, n_envs: int, ticks: int, expected: list[int]
) -> None:
    inner = Steps()
    make_loop(make_model(n_envs), EveryNTimesteps(10, inner)).learn(ticks)
    assert inner.steps == expected  # once per tick, even if 25 lanes cross two multiples at a time


def test_every_n_timesteps_fires_at_multiples_over_two_learns(model: Any, make_loop: Any) -> None:
    inner = Steps()
    event = EveryNTimesteps(10, inner)
    make_loop(model, event).learn(ticks=15)
    make_loop(model, event).learn(ticks=15)
    assert inner.steps == [10, 20, 30]
    model.num_timesteps = 0  # learn(reset_num_timesteps=True)
    make_loop(model, event).learn(ticks=12)
    assert inner.steps == [10, 20, 30, 10]
    assert event.last_time_trigger == 10


def test_a_child_of_every_n_timesteps_stops_the_training(model: Any, make_loop: Any) -> None:
    assert not make_loop(model, EveryNTimesteps(5, Steps(stop_at=10))).learn(ticks=50)
    assert model.num_timesteps == 10


def test_log_every_n_timesteps(make_model: Any, make_loop: Any) -> None:
    model = make_model(4)
    make_loop(model, LogEveryNTimesteps(10)).learn(ticks=6)
    assert model.tape == ["dump_logs 12", "dump_logs 20"]


class NoSignature:
    """Callable without an inspectable signature."""

    __signature__ = 3

    def __call__(self, *args: Any) -> None: ...


def test_function_gets_locals_and_globals_and_may_return_nothing(model: Any, make_loop: Any) -> None:
    calls: list[Any] = []
    loop = make_loop(model, as_callback(lambda locals_, globals_: calls.append((locals_, globals_))))
    assert loop.learn(ticks=3)
    assert calls == [(loop.locals, {})] * 3


def test_function_stops_by_false(model: Any, make_loop: Any) -> None:
    assert not make_loop(model, as_callback(lambda locals_, globals_: locals_["self"].num_timesteps < 4)).learn(ticks=9)
    assert model.num_timesteps == 4


FUNCTIONS = [lambda *both: None, lambda a, b, c=3: None, partial(lambda a, b, c: None, 1), max, print, [].insert]


@pytest.mark.parametrize("function", [*FUNCTIONS, NoSignature()])
def test_functions_that_accept_two_arguments_are_converted(function: Any) -> None:
    assert isinstance(as_callback(function), ConvertCallback)


def test_as_callback_converts_every_type_that_learn_accepts() -> None:
    callback = Steps()
    assert as_callback(callback) is callback
    assert as_callback(None).children() == []
    mixed = as_callback([callback, lambda locals_, globals_: None, [Steps()]])
    assert [type(child) for child in mixed.children()] == [Steps, ConvertCallback, CallbackList]


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        (Steps, r"callback must be an object, got the class Steps. Pass Steps\(\.\.\.\)"),
        ("progress", "callback must be None, a function .* or a list of these, got 'progress'"),
        (3, "got 3"),
        ([3], "got 3"),
        ({"a": 1}, "got {'a': 1}"),
        (lambda: None, r"callback.*\(locals, globals\).*\(\)"),
        ([lambda a, b, c: None], r"callback.*\(a, b, c\)"),
    ],
)
def test_as_callback_refuses_other_types(callback: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        as_callback(callback)
