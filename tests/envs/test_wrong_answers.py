"""Environments that answer something else than gymnasium's interface promises: refused, by lane and step."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn.envs.make import make_vec_env
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError

GOOD: tuple[Any, ...] = (np.zeros(2, np.float32), 1.0, False, False, {})


class Answers(gymnasium.Env[Any, Any]):
    """Answers `answer` at its step `at`, at step 0 to `reset`, and what is right before and after."""

    def __init__(self, at: int = -1, answer: Any = None, space: Any = None) -> None:
        self.observation_space = space or spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.at, self.answer, self.good = at, answer, (self.observation_space.sample(), *GOOD[1:])
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.answer if self.at == 0 else (self.good[0], {})

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.answer if self.t == self.at else self.good


def play(bad: Answers, **kwargs: Any) -> None:
    """Lane 1 of two answers wrongly."""
    good = partial(Answers, space=bad.observation_space)
    stream = open_stream(Lanes([good, lambda: bad], **kwargs))
    stream.begin()
    for _ in range(5):
        stream.step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, None, r"observation 'obs' in lane 1 at step 3 has shape \(\)"),
        (0, np.array(["a", "b"]), r"the observation in lane 1 at step 3 cannot be stored .*space promises Box"),
        (0, np.array([{}, None], object), r"the observation in lane 1 at step 3 cannot be stored .*space promises Box"),
        (0, [1.0, [2.0]], r"the observation in lane 1 at step 3 cannot be stored .*space promises Box"),
        (1, "1", r"lane 1 answered at step 3: the reward is '1'; allowed: a number"),
        (1, None, r"lane 1 answered at step 3: the reward is None; allowed: a number"),
        (2, None, r"lane 1 answered at step 3: terminated is None, truncated is False; allowed: True or False"),
        (3, "no", r"lane 1 answered at step 3: terminated is False, truncated is 'no'; allowed: True or False"),
        (4, None, r"lane 1 answered at step 3: info is None; allowed: a dict"),
    ],
)
def test_a_wrong_step_is_named(place: int, value: Any, message: str) -> None:
    answer = [*GOOD]
    answer[place] = value
    with pytest.raises(EnvironmentFault, match=message):
        play(Answers(3, tuple(answer)))


def test_no_number_for_a_choice_is_named() -> None:
    for space in (spaces.Discrete(3), spaces.Dict({"choice": spaces.Discrete(3)})):
        value: Any = None if isinstance(space, spaces.Discrete) else {"choice": None}
        with pytest.raises(EnvironmentFault, match="the observation in lane 1 at step 3 cannot be stored"):
            play(Answers(3, (value, *GOOD[1:]), space))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ((GOOD[0], None), EnvironmentFault, "lane 1 answered while resetting: info is None; allowed: a dict"),
        (GOOD[0], EnvironmentFault, r"lane 1 answered while resetting: info is .*; gymnasium's reset\(.*five values"),
        (
            np.zeros(3),
            EnvironmentFault,
            r"answered while resetting: ndarray instead of two values; gymnasium's reset\(",
        ),
        (None, EnvironmentFault, r"answered while resetting: NoneType instead of two values; gymnasium's reset\("),
        ((None, {}), SpaceError, "observation 'obs' in lane 1 at step 0 has dtype object, .* promises float32"),
        ((np.array([1, 2], object), {}), SpaceError, "observation 'obs' in lane 1 at step 0 has dtype object"),
    ],
)
def test_a_wrong_reset_is_named(answer: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        play(Answers(0, answer))


def test_a_step_of_gyms_old_interface_is_named() -> None:
    with pytest.raises(EnvironmentFault, match="lane 1 answered at step 3: 4 values; gymnasium's reset.*five values"):
        play(Answers(3, (*GOOD[:3], {})))


def test_a_reset_without_seed_is_named() -> None:
    class Old(Answers):
        def reset(self) -> Any:  # type: ignore[override]  # of gym's old interface
            return GOOD[0]

    with pytest.raises(EnvironmentFault, match=r"unexpected keyword argument 'seed'; gymnasium's reset\(.*five values"):
        open_stream(Old()).begin(0)


def test_errors_of_the_environments_own_are_told_as_they_are() -> None:
    class Own(Answers):
        def step(self, action: Any) -> Any:
            raise ValueError("not enough values to unpack")

    with pytest.raises(EnvironmentFault, match="at step 1: ValueError: not enough values to unpack$"):
        play(Own())


def test_a_lane_of_wrong_answers_may_be_made_anew() -> None:
    with pytest.warns(UserWarning, match="lane 1 raised at step 3 and was made anew.*info is None"):
        play(Answers(3, (*GOOD[:4], None)), on_env_error="restart")


@pytest.mark.parametrize("number", [1, True, np.float64(1), np.float32(1), np.int64(1), np.array(1.0)])
@pytest.mark.parametrize("flag", [True, np.bool_(True), np.array(True), 1])
def test_numbers_and_truths_of_every_kind_are_read(number: Any, flag: Any) -> None:
    stream = open_stream(Answers(1, (GOOD[0], number, flag, np.bool_(False), {})))
    stream.begin()
    rows = stream.step(np.zeros(1, np.int64))
    assert rows.slots[0].score.tolist() == [1.0]
    assert rows.slots[0].terminal.tolist() == rows.slots[0].last.tolist() == [True]
    assert stream.step(np.zeros(1, np.int64)).steps == 0


class Bare(gymnasium.Env[Any, Any]):
    """Has no spaces."""


class Half(Answers):
    """Has one of them."""

    def __init__(self) -> None:
        super().__init__()
        del self.action_space


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Bare, "lane 0 is a Bare without observation_space, action_space; allowed: a gymnasium.Env that has"),
        (Half, "lane 0 is a Half without action_space; allowed"),
        (lambda: gymnasium.Wrapper(Half()), "lane 0 is a Wrapper without action_space"),
        (lambda: (Answers(), {}), "lane 0 is a tuple without unwrapped, reset, step.*or a factory that returns one"),
        (lambda: None, "lane 0 is a NoneType without unwrapped"),
    ],
)
def test_what_is_no_environment_is_named(make: Any, message: str) -> None:
    for opens in (
        lambda: open_stream(make),
        lambda: open_stream([make, make]),
        lambda: make_vec_env(make, 2),
        lambda: make_vec_env(make, 2, seed=3),
        lambda: make_vec_env(make, monitor_kwargs={"info_keywords": ()}),
        lambda: make_vec_env(make, 2, vec_env_cls="sync"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            opens()
    if make in (Bare, Half):
        with pytest.raises(ConfigurationError, match=message):
            open_stream(make())
