"""Environments that break gymnasium's interface: errors with lane and step."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from sb_dqn.envs.make import make_vec_env
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError

GOOD: tuple[Any, ...] = (np.zeros(2, np.float32), 1.0, False, False, {})


class WrongResult(gymnasium.Env[Any, Any]):
    """Environment that returns `result` from step number `at` (0: from `reset`), and correct results otherwise."""

    def __init__(self, at: int = -1, result: Any = None, space: Any = None) -> None:
        self.observation_space = space or spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.at, self.result, self.good = at, result, (self.observation_space.sample(), *GOOD[1:])
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return self.result if self.at == 0 else (self.good[0], {})

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.result if self.t == self.at else self.good


def play(bad: WrongResult, **kwargs: Any) -> None:
    """Plays five steps of two lanes, of which lane 1 is wrong."""
    good = partial(WrongResult, space=bad.observation_space)
    stream = open_stream(Lanes([good, lambda: bad], **kwargs))
    stream.begin()
    for _ in range(5):
        stream.step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, None, r"observation 'obs' in lane 1 at step 3 must have shape \(2,\), got \(\)"),
        (0, np.array(["a", "b"]), r"the observation in lane 1 at step 3 must be in Box.*cannot be stored"),
        (0, np.array([{}, None], object), r"the observation in lane 1 at step 3 must be in Box.*cannot be stored"),
        (0, [1.0, [2.0]], r"the observation in lane 1 at step 3 must be in Box.*cannot be stored"),
        (1, "1", r"lane 1 failed at step 3: the reward must be a number, got '1'"),
        (1, None, r"lane 1 failed at step 3: the reward must be a number, got None"),
        (2, None, r"lane 1 failed at step 3: terminated and truncated must be True or False, got None and False"),
        (3, "no", r"lane 1 failed at step 3: terminated and truncated must be True or False, got False and 'no'"),
        (4, None, r"lane 1 failed at step 3: info must be a dict, got None"),
    ],
)
def test_a_wrong_step_is_named(place: int, value: Any, message: str) -> None:
    result = [*GOOD]
    result[place] = value
    with pytest.raises(EnvironmentFault, match=message):
        play(WrongResult(3, tuple(result)))


def test_a_missing_number_of_a_discrete_observation_is_named() -> None:
    for space in (spaces.Discrete(3), spaces.Dict({"choice": spaces.Discrete(3)})):
        value: Any = None if isinstance(space, spaces.Discrete) else {"choice": None}
        with pytest.raises(SpaceError, match="in lane 1 at step 3 must have the dtype .* int64, got object"):
            play(WrongResult(3, (value, *GOOD[1:]), space))


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        ((GOOD[0], None), EnvironmentFault, "lane 1 failed while resetting: info must be a dict, got None"),
        (
            GOOD[0],
            EnvironmentFault,
            r"lane 1 failed while resetting: info must be a dict, got .*gymnasium's reset\(.*five values",
        ),
        (
            np.zeros(3),
            EnvironmentFault,
            r"failed while resetting: the result must be two values, got ndarray. gymnasium's reset\(",
        ),
        (
            None,
            EnvironmentFault,
            r"failed while resetting: the result must be two values, got NoneType. gymnasium's reset\(",
        ),
        ((None, {}), SpaceError, "observation 'obs' in lane 1 at step 0 must have .* float32, got object"),
        ((np.array([1, 2], object), {}), SpaceError, "observation 'obs' in lane 1 at step 0 must have .*got object"),
    ],
)
def test_a_wrong_reset_is_named(result: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        play(WrongResult(0, result))


def test_a_step_of_gyms_old_interface_is_named() -> None:
    with pytest.raises(
        EnvironmentFault,
        match="at step 3: the result must be five values, got 4. gymnasium's reset",
    ):
        play(WrongResult(3, (*GOOD[:3], {})))


def test_a_reset_without_seed_is_named() -> None:
    class Old(WrongResult):
        def reset(self) -> Any:  # type: ignore[override]  # of gym's old interface
            return GOOD[0]

    with pytest.raises(EnvironmentFault, match=r"unexpected keyword argument 'seed'; gymnasium's reset\(.*five values"):
        open_stream(Old()).begin(0)


def test_errors_of_the_environment_itself_are_not_changed() -> None:
    class Own(WrongResult):
        def step(self, action: Any) -> Any:
            raise ValueError("not enough values to unpack")

    with pytest.raises(
        EnvironmentFault, match="at step 1: ValueError: not enough values to unpack. Fix the environment.$"
    ):
        play(Own())


def test_a_type_error_of_the_first_lane_is_not_explained_as_a_wrong_result() -> None:
    class Own(WrongResult):
        def step(self, action: Any) -> Any:
            raise TypeError("unsupported operand")

    stream = open_stream(Lanes([Own, Own]))
    stream.begin()
    with pytest.raises(EnvironmentFault, match="raised at step 1: TypeError: unsupported operand. Fix") as caught:
        stream.step(np.zeros(2, np.int64))
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.crashed


def test_a_lane_with_wrong_results_may_be_restarted() -> None:
    with pytest.warns(UserWarning, match="lane 1 raised at step 3 and was restarted.*info must be a dict, got None"):
        play(WrongResult(3, (*GOOD[:4], None)), on_env_error="restart")


@pytest.mark.parametrize("number", [1, True, np.float64(1), np.float32(1), np.int64(1), np.array(1.0)])
@pytest.mark.parametrize("flag", [True, np.bool_(True), np.array(True), 1])
def test_numbers_and_flags_of_every_type_are_accepted(number: Any, flag: Any) -> None:
    stream = open_stream(WrongResult(1, (GOOD[0], number, flag, np.bool_(False), {})))
    stream.begin()
    rows = stream.step(np.zeros(1, np.int64))
    assert rows.slots[0].score.tolist() == [1.0]
    assert rows.slots[0].terminal.tolist() == rows.slots[0].last.tolist() == [True]
    assert stream.step(np.zeros(1, np.int64)).steps == 0


class Bare(gymnasium.Env[Any, Any]):
    """Environment without spaces."""


class Half(WrongResult):
    """Environment without an action space."""

    def __init__(self) -> None:
        super().__init__()
        del self.action_space


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Bare, "lane 0 must be a gymnasium.Env, .*got a Bare without observation_space, action_space. Set"),
        (Half, "lane 0 must be .*got a Half without action_space"),
        (lambda: gymnasium.Wrapper(Half()), "lane 0 must be .*got a Wrapper without action_space"),
        (lambda: (WrongResult(), {}), "or a factory that returns one, got a tuple without unwrapped, reset, step"),
        (lambda: None, "got a NoneType without unwrapped"),
    ],
)
def test_objects_that_are_no_environment_raise(make: Any, message: str) -> None:
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


DISCRETE = spaces.Discrete(5, start=1)
BYTES = spaces.Box(0, 255, (8, 8, 3), np.uint8)


@pytest.mark.parametrize("opened", [Lanes, SyncVectorEnv], ids=["lanes", "gymnasium"])
@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (DISCRETE, 7, r"'obs' in lane 1 at step 3 must be in Discrete\(5, start=1\), got 7"),
        (DISCRETE, 0, r"'obs' in lane 1 at step 3 must be in Discrete\(5, start=1\), got 0"),
        (spaces.MultiDiscrete([5, 3]), np.array([4, 3]), r"in lane 1 at step 3 must be in MultiDiscrete\(\[5 3\]\), got \[4, 3\]"),
        (spaces.Dict(a=DISCRETE, b=BYTES), {"a": 6, "b": np.zeros((8, 8, 3), np.uint8)}, r"'a' in lane 1 at step 3 must be in"),
    ],
)  # fmt: skip
def test_a_number_that_a_discrete_space_lacks(opened: Any, space: Any, value: Any, message: str) -> None:
    lanes = [partial(WrongResult, space=space), lambda: WrongResult(3, (value, 1.0, False, False, {}), space)]
    stream = open_stream(opened(lanes))
    stream.begin()
    with pytest.raises(EnvironmentFault, match=message):
        for _ in range(5):
            stream.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("key", [None, "a"])
@pytest.mark.parametrize("at", [0, 3])
@pytest.mark.parametrize("value", [300, -1])
def test_an_integer_that_the_dtype_cannot_hold(key: str | None, at: int, value: int) -> None:
    wrong: Any = np.full((8, 8, 3), value)  # int64; stored as uint8 it would be 44, or 255
    obs, space = (wrong, BYTES) if key is None else ({key: wrong}, spaces.Dict({key: BYTES}))
    result = (obs, {}) if at == 0 else (obs, 1.0, False, False, {})
    with pytest.raises(
        EnvironmentFault, match=rf"lane 1 at step {at} must have the dtype .* uint8, got int64 from {value} to {value}"
    ):
        play(WrongResult(at, result, space))


def test_integers_of_another_dtype_that_fit_are_stored() -> None:
    play(WrongResult(3, (np.full((8, 8, 3), 255), 1.0, False, False, {}), BYTES))


@pytest.mark.parametrize(("actions", "given"), [(1, "1 alone"), (np.array(1), r"array\(1\) alone"), ([1], "1")])
def test_actions_that_are_not_one_per_lane(actions: Any, given: str) -> None:
    env = make_vec_env("CartPole-v1", n_envs=2)
    env.reset()
    with pytest.raises(SpaceError, match=f"actions must be one for each of 2 lanes, got {given}. Pass one per lane."):
        env.step(actions)
