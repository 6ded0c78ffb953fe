"""Callback base class: order of hooks, return values, locals, closing and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sb_dqn.callbacks import BaseCallback, CallbackList, ConvertCallback, EventCallback, as_callback
from sb_dqn.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("eagerly")


class Tape(BaseCallback):
    """Callback that records every hook."""

    def __init__(self, tape: list[str], name: str = "", result: Any = True) -> None:
        super().__init__()
        self.tape = tape
        self.name = name
        self.result = result

    def add(self, hook: str) -> None:
        self.tape.append(f"{self.name}{hook}")

    def _init_callback(self) -> None:
        self.add("init")

    def _on_training_start(self) -> None:
        self.add(f"start {self.num_timesteps}")

    def _on_rollout_start(self) -> None:
        self.add("rollout start")

    def _on_step(self) -> bool:
        self.add(f"step {self.n_calls} at {self.num_timesteps}")
        return self.result

    def _on_rollout_end(self) -> None:
        self.add("rollout end")

    def _on_training_end(self) -> None:
        self.add("end")

    def _close(self) -> None:
        self.add("close")


def test_hooks_are_called_in_stable_baselines_order(make_model: Any, make_loop: Any) -> None:
    tape: list[str] = []
    make_loop(make_model(n_envs=3), Tape(tape)).learn(ticks=2)
    expected = ["init", "start 0", "rollout start", "step 1 at 3", "step 2 at 6", "rollout end", "end", "close"]
    assert tape == expected


def test_a_second_learn_continues_counting(model: Any, make_loop: Any) -> None:
    tape: list[str] = []
    loop = make_loop(model, Tape(tape))
    loop.learn(ticks=1)
    tape.clear()
    loop.learn(ticks=1)
    assert tape[1:4] == ["start 1", "rollout start", "step 2 at 2"]


@pytest.mark.parametrize("result", [False, np.False_, 0])
def test_any_false_value_but_none_stops(model: Any, make_loop: Any, result: Any) -> None:
    tape: list[str] = []
    assert not make_loop(model, Tape(tape, result=result)).learn(ticks=5)
    assert sum(line.startswith("step") for line in tape) == 1


@pytest.mark.parametrize("result", [True, None, np.True_])
def test_true_or_none_continues(model: Any, make_loop: Any, result: Any) -> None:
    assert make_loop(model, Tape([], result=result)).learn(ticks=5)


def test_attributes_come_from_the_model(model: Any, make_loop: Any) -> None:
    callback: Any = Tape([])
    loop = make_loop(model, callback)
    loop.learn(ticks=1)
    assert callback.model is model
    assert callback.logger is model.logger
    model.env.place = 3
    assert callback.training_env.place == 3
    assert callback.locals is loop.locals
    model.env = None
    with pytest.raises(ConfigurationError, match=r"must have an environment, got None.*set_env"):
        _ = callback.training_env


def test_locals_are_neither_copied_nor_read(model: Any) -> None:
    class Untouchable(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise AssertionError(f"{key} was read")

        keys = items = values = __iter__ = None  # type: ignore[assignment]  # a copy raises

    child = Tape([])
    callback = CallbackList([EventCallback(child), CallbackList([Tape([])])])
    callback.init_callback(model)
    untouchable = Untouchable(rewards=1)
    callback.on_training_start(untouchable, {})
    callback.update_locals(untouchable)
    assert callback.on_step()
    assert child.locals is untouchable


def test_locals_set_on_the_root_reach_the_children(model: Any) -> None:
    child = Tape([])
    callback = CallbackList([CallbackList([child])])
    callback.init_callback(model)
    callback.on_training_start({}, {})
    callback.locals = tick = {"rewards": np.ones(1)}
    callback.on_step()
    assert child.locals is tick


def test_all_children_are_closed_if_one_raises(model: Any) -> None:
    class Broken(Tape):
        def _close(self) -> None:
            raise OSError("disk gone")

    tape: list[str] = []
    callback = CallbackList([Tape(tape, "a "), Broken(tape), Tape(tape, "b ")])
    with pytest.raises(OSError, match="disk gone"):
        callback.close()
    assert tape == ["a close", "b close"]


def test_callbacks_are_closed_and_usable_after_an_error(model: Any, make_loop: Any) -> None:
    tape: list[str] = []

    def fail(locals_: Any, globals_: Any) -> bool:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        make_loop(model, as_callback([Tape(tape), fail])).learn(ticks=3)
    assert tape == ["init", "start 0", "rollout start", "step 1 at 1", "close"]
    assert make_loop(model, Tape([])).learn(ticks=3)


def test_state_is_plain_data_and_restored(model: Any, make_loop: Any) -> None:
    inner = Tape([])
    callback = CallbackList([Tape([]), EventCallback(inner)])
    make_loop(model, callback).learn(ticks=4)
    state = callback.state_dict()
    assert state == {
        "n_calls": 4,
        "children": [
            {"n_calls": 4, "children": []},
            {"n_calls": 4, "children": [{"n_calls": 0, "children": []}]},
        ],
    }
    fresh = CallbackList([Tape([]), EventCallback(Tape([]))])
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state
    with pytest.raises(ConfigurationError, match="CallbackList must have 2 child callbacks .* got 1. Pass the same"):
        CallbackList([Tape([])]).load_state_dict(state)


def test_base_is_abstract_and_convert_is_a_callback() -> None:
    with pytest.raises(TypeError):
        BaseCallback()  # type: ignore[abstract]  # that is the test
    assert isinstance(ConvertCallback(None), BaseCallback)
