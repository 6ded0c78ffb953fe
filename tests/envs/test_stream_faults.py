"""Streams: errors for unsupported environments, illegal actions and faults, with lane and step."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.open import has_lanes, open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from tests.toys import KINDS, DuckVecEnv, ToyGame, VecEnv, toy_policy, toy_stream


def itself(game: ToyGame) -> ToyGame:
    return game


MADE_HERE = [kind for kind in KINDS if kind != "sb3"]


class Faulty(ToyGame):
    """Raises or returns a wrong value at its fifth step; its episodes never end."""

    what = "raise"

    def step(self, action: Any) -> Any:
        self.t += 1
        observation, reward = self.observe((1, 1, 1)), 0.5
        if self.t == 5:
            if self.what == "raise":
                raise ZeroDivisionError("the pole broke")
            if self.what == "reward":
                reward = float("nan")
            elif self.what == "shape":
                observation = np.zeros(4, np.float32)
            elif self.what == "inf":
                observation = np.array([0, np.inf, 0], np.float32)
        return observation, reward, False, False, {"lives": 3}


class Endless(ToyGame):
    """Toy game whose episodes never end."""

    def step(self, action: Any) -> Any:
        return self.observe((1, 1, 1)), 0.0, False, False, {"lives": 3}


def faulty_stream(kind: str, what: str) -> Any:
    faulty = Faulty(1)
    faulty.what = what
    games: list[ToyGame] = [Endless(0), faulty, Endless(2)]
    return open_stream(KINDS[kind]([partial(itself, game) for game in games]))


@pytest.mark.parametrize("kind", MADE_HERE)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("raise", "ZeroDivisionError: the pole broke"),
        ("reward", "reward in lane 1 at step 5 must be finite"),
        ("inf", "observation 'obs' in lane 1 at step 5 must be finite"),
    ],
)
def test_a_fault_names_step_and_lane_and_the_stream_can_be_reset(kind: str, what: str, message: str) -> None:
    stream = faulty_stream(kind, what)
    rows = stream.begin()
    with pytest.raises(EnvironmentFault, match=message) as caught:
        for _ in range(10):
            rows = stream.step(toy_policy(rows))
    assert "step 5" in str(caught.value)
    if what == "raise":
        assert kind != "lanes" or "lane 1" in str(caught.value)
        cause: BaseException | None = caught.value
        while cause is not None and not isinstance(cause, ZeroDivisionError):
            cause = cause.__cause__
        assert cause is not None  # the original is kept, with its traceback
    with pytest.raises(ConfigurationError, match="Call begin"):
        stream.step(toy_policy(rows))
    assert stream.begin().action is None


def test_an_observation_of_the_wrong_shape_is_named() -> None:
    stream = faulty_stream("lanes", "shape")
    rows = stream.begin()
    with pytest.raises(EnvironmentFault, match=r"'obs' in lane 1 at step 5 must have shape \(3,\), got \(4,\)"):
        for _ in range(10):
            rows = stream.step(toy_policy(rows))


def test_a_fault_while_resetting_names_the_lane() -> None:
    class Unborn(ToyGame):
        def reset(self, **_: Any) -> Any:
            raise OSError("no disk")

    with pytest.raises(EnvironmentFault, match=r"lane 1 raised while resetting: OSError: no disk"):
        open_stream(Lanes([ToyGame, Unborn])).begin()


@pytest.mark.parametrize("kind", MADE_HERE)
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.array([0, 4, 1]), "action in lane 1 must be from 0 to 3, got 4"),
        (np.array([0, 1, -1]), "action in lane 2 must be from 0 to 3, got -1"),
        (np.array([0, 1]), r"shape \(3,\), one per lane, got \(2,\)"),
        (np.array([0.0, 1.0, 2.0]), "integer dtype, got float64"),
        (np.array([True, False, True]), "integer dtype, got bool"),
    ],
)
def test_an_illegal_action_raises_before_it_is_sent(kind: str, action: Any, message: str) -> None:
    games, stream = toy_stream(kind, 3)
    rows = stream.begin()
    with pytest.raises(SpaceError, match=message):
        stream.step(action)
    assert all(game.log[-1].actions == [] for game in games)
    stream.step(toy_policy(rows))  # nothing was lost
    assert [len(game.log[-1].actions) for game in games] == [1, 1, 1] or kind in ("same_step", "duck")


def test_actions_of_many_lanes_are_checked() -> None:
    _, stream = toy_stream("lanes", 40)
    stream.begin()
    for bad in (-1, 4):
        with pytest.raises(SpaceError, match=f"action in lane 33 must be from 0 to 3, got {bad}"):
            stream.step(np.where(np.arange(40) == 33, bad, 0))
    assert stream.step(np.zeros(40, np.int32)).steps == 40  # other integers are converted


class NoMode(SyncVectorEnv):
    """Vector env with another or no autoreset mode in its metadata."""

    def __init__(self, mode: Any = None) -> None:
        super().__init__([ToyGame])
        self.metadata = {} if mode is None else {"autoreset_mode": mode}


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (lambda: NoMode(), "must be NEXT_STEP or SAME_STEP, got none"),
        (lambda: NoMode(AutoresetMode.DISABLED), "got DISABLED.*NEXT_STEP"),
        (lambda: NoMode("Sometimes"), "must be NEXT_STEP or SAME_STEP, got 'Sometimes'"),
        (lambda: 7, "env must be an id, .*got int"),
        (lambda: SimpleNamespace(ac_space="Discrete", ob_space="Box"), "Procgen is in EnvPool: envpool.make"),
        (list, "at least one factory, got none"),
        (lambda: [partial(itself, ToyGame())] * 2, "each factory must make its own environment"),
    ],
)
def test_unsupported_environments_raise_with_the_fix(env: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_stream(env())


def test_lanes_of_different_spaces_raise() -> None:
    with pytest.raises(SpaceError, match="observation space of lane 1 must be that of lane 0"):
        Lanes([ToyGame, lambda: ToyGame(kind="frames")])


def test_floats_for_an_integer_space_raise() -> None:
    class Liar(ToyGame):
        def observe(self, frame: Any) -> Any:
            return np.zeros((1, 3, 1), np.float32)

    for make in (Lanes, SyncVectorEnv):
        stream = open_stream(make([lambda: Liar(kind="frames")]))
        if make is Lanes:
            with pytest.raises(SpaceError, match="dtype of the observation space, uint8, got float32"):
                stream.begin()


def test_missing_lives_raise() -> None:
    stream = open_stream("CartPole-v1", options=StreamOptions(terminal_on_life_loss=True))
    stream.begin()
    with pytest.raises(ConfigurationError, match="info must contain 'lives'"):
        stream.step(np.array([0]))


def test_numbers_out_of_range_raise() -> None:
    with pytest.raises(ConfigurationError, match="num_envs must be .* 2, got 3"):
        open_stream(Lanes([ToyGame, ToyGame]), num_envs=3)
    with pytest.raises(ConfigurationError, match="seed must be .*got -1"):
        open_stream("CartPole-v1").begin(-1)
    with pytest.raises(ConfigurationError, match=r"single frames .*with frame_stack=4.*stored whole"):
        open_stream("CartPole-v1", frame_stack=4)
    with pytest.raises(ConfigurationError, match="frame_stack must be an integer >= 1, got 0"):
        open_stream("CartPole-v1", frame_stack=0)


class NoFinal(DuckVecEnv):
    """Returns no final observation, with or without the flag of a time limit."""

    flags_time_limit = False

    def step(self, actions: Any) -> Any:
        observations, rewards, dones, infos = super().step(actions)
        for info in infos:
            info.pop("terminal_observation", None)
            if not self.flags_time_limit:
                info.pop("TimeLimit.truncated")
        return observations, rewards, dones, infos


def run_until_last(env: VecEnv) -> Any:
    stream = open_stream(env)
    rows = stream.begin()
    while len(rows.slots) == 1:
        rows = stream.step(toy_policy(rows))
    return rows


def test_a_done_without_final_observation_is_a_termination_and_warns_once() -> None:
    with pytest.warns(UserWarning, match="returned no infos.*terminal_observation") as caught:
        rows = run_until_last(NoFinal([ToyGame]))
    assert len(caught) == 1
    assert rows.slots[0].terminal.tolist() == rows.slots[0].last.tolist() == [True]


def test_a_truncation_without_final_observation_raises() -> None:
    class Truncates(ToyGame):
        def step(self, action: Any) -> Any:
            observation, reward, _, _, info = super().step(action)
            return observation, reward, False, True, info

    NoFinal.flags_time_limit = True
    try:
        with pytest.raises(
            EnvironmentFault, match="infos\\[0\\] at step 1 must contain 'terminal_observation'.*DummyVecEnv"
        ):
            run_until_last(NoFinal([Truncates]))
    finally:
        NoFinal.flags_time_limit = False


def test_a_same_step_env_without_final_observation_raises() -> None:
    class Forgets(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            *rest, info = super().step(actions)
            info.pop("final_obs", None)
            return *rest, info

    stream = open_stream(Forgets([ToyGame], autoreset_mode=AutoresetMode.SAME_STEP))
    rows = stream.begin()
    with pytest.raises(EnvironmentFault, match="must contain 'final_obs'.*NEXT_STEP"):
        for _ in range(100):
            rows = stream.step(toy_policy(rows))


def test_actions_are_zero_based_for_the_learner_in_any_space() -> None:
    games, stream = toy_stream("lanes", 1)
    assert isinstance(stream.action_space, spaces.Discrete)
    rows = stream.begin()
    rows = stream.step(np.array([3]))
    assert rows.action is not None
    assert rows.action.tolist() == [3]
    assert games[0].log[0].actions == [3]


def test_single_environments_factories_and_lists_become_lanes() -> None:
    assert open_stream(gymnasium.make("CartPole-v1")).num_envs == 1
    assert open_stream(lambda: gymnasium.make("CartPole-v1"), num_envs=3).num_envs == 3
    assert open_stream([lambda: gymnasium.make("CartPole-v1")] * 2).num_envs == 2
    stream = open_stream("CartPole-v1", num_envs=2)
    assert open_stream(stream) is stream
    with pytest.raises(ConfigurationError, match="must be those of its StreamOptions.*got frame_stack=4"):
        open_stream(stream, frame_stack=4)


def test_which_environments_have_lanes_of_their_own() -> None:
    of_envpool = type("CartPole", (), {"__module__": "envpool.classic_control"})()
    assert all(has_lanes(env) for env in (of_envpool, gymnasium.make_vec("CartPole-v1", num_envs=2)))
    assert not any(has_lanes(env) for env in ("CartPole-v1", gymnasium.make("CartPole-v1"), [ToyGame]))


def test_step_timeout_needs_an_environment_that_waits() -> None:
    env = gymnasium.wrappers.vector.TransformReward(
        SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")]), lambda reward: reward
    )
    with pytest.raises(ConfigurationError, match=r"step_timeout must be None .* got 1.0 for a TransformReward"):
        open_stream(env, options=StreamOptions(step_timeout=1.0))


def test_options_of_an_atari_id_are_those_of_its_protocol() -> None:
    with pytest.raises(ConfigurationError, match=r"options must be None for the id of an Atari game"):
        open_stream("ALE/Pong-v5", options=StreamOptions(clip_reward=True))


class Byte(gymnasium.Env[Any, Any]):
    """Episodes of one step whose final observation is no byte, or whose reward is no float32."""

    observation_space = spaces.Box(0, 255, (1,), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, final: int = 3, reward: float = 1.0) -> None:
        self.final, self.reward = final, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.full(1, self.final), self.reward, False, True, {}


def test_final_observations_are_checked_like_others() -> None:
    stream = open_stream(SyncVectorEnv([lambda: Byte(300)], autoreset_mode=AutoresetMode.SAME_STEP))
    stream.begin(0)
    with pytest.raises(
        EnvironmentFault, match=r"'final obs' in lane 0 at step 1 must have the dtype .* uint8, got int64 from 300"
    ):
        stream.step(np.zeros(1, np.int64))


def test_a_reward_beyond_float32_is_not_finite() -> None:
    stream = open_stream([Byte, lambda: Byte(reward=1e39), lambda: Byte(reward=-1e39)])
    stream.begin(0)
    with pytest.raises(EnvironmentFault, match="the reward in lane 1 at step 1 must be finite"):
        stream.step(np.zeros(3, np.int64))
