"""`check_env` lists all faults of an environment in one error, and gives advice on the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn import check_env, make_vec_env
from sb_dqn.errors import ConfigurationError


class Walk(gymnasium.Env):
    """A random walk that terminates at +-3 or, if `length` is set, after so many steps only."""

    action_space: Any = spaces.Discrete(2)

    def __init__(self, length: int = 0, scale: float = 1.0, reward: float = 1.0) -> None:
        self.observation_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.length, self.scale, self.reward = length, scale, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x, self.t = 0.0, 0
        return self.observe(), {}

    def observe(self) -> Any:
        return np.array([self.scale * self.x], np.float32)

    def step(self, action: Any) -> Any:
        self.x += float(self.np_random.choice([-1, 1]))
        self.t += 1
        over = self.t >= self.length if self.length else abs(self.x) >= 3
        return self.observe(), self.reward, over, False, {}


class Unseeded(Walk):
    def step(self, action: Any) -> Any:
        return (np.random.default_rng().random(1, np.float32), *super().step(action)[1:])


class Forgetful(Walk):
    """Returns to the place where the last episode ended."""

    x = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        ended = self.x
        super().reset(seed=seed)
        self.x = ended
        return self.observe(), {}


class Stays(Walk):
    """Returns the observation of the reset from each step but the last."""

    def step(self, action: Any) -> Any:
        obs, reward, over, *rest = super().step(action)
        return (obs if over else np.zeros(1, np.float32), reward, over, *rest)


class Wide(Walk):
    action_space = spaces.Box(0.0, 5.0, (1,), np.float32)


class Masked(Walk):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0], {"action_mask": np.array([True, False])}

    def step(self, action: Any) -> Any:
        assert action == 0, "it is legal"
        return *super().step(action)[:4], {"action_mask": np.array([True, False])}


def test_a_sound_environment_gets_no_advice_and_no_warning() -> None:
    report = check_env(Walk(), steps=300)
    assert report.advice == []
    assert report.steps_per_second > 0
    assert check_env("CartPole-v1", steps=300).advice == []


ADVICE: dict[str, Callable[[], Any]] = {
    "no episode ended within 300 random actions, and there is no time limit": lambda: Walk(length=10**6, scale=0.1),
    "all episodes terminate after 20 steps, as by a time limit": lambda: Walk(length=20),
    "observation 'obs' has entries of 3,000": lambda: Walk(scale=1e3),
    "rewards go up to 5,000": lambda: Walk(reward=-5e3),
    "no reward other than 0 in 300 steps": lambda: Walk(reward=0.0),
    "the observation stays as reset returned it until the episode ends": Stays,
    "symmetric and within -1 and 1, got Box": Wide,
    "Pass action_mask='info'": Masked,
    "the environment resets itself": lambda: gymnasium.wrappers.Autoreset(Walk()),
}


@pytest.mark.parametrize("text", ADVICE)
@pytest.mark.filterwarnings("ignore")
def test_advice(text: str) -> None:
    report = check_env(ADVICE[text](), steps=300)
    assert text in " ".join(report.advice)
    assert len(report.advice) == 1


def test_advice_is_warned_of_unless_switched_off() -> None:
    with pytest.warns(UserWarning, match="rewards go up to 5,000"):
        check_env(Walk(reward=5e3), steps=50)
    check_env(Walk(reward=5e3), warn=False, steps=50)


@pytest.mark.filterwarnings("ignore")
def test_all_faults_are_in_one_error() -> None:
    env = Walk()
    env.observation_space = spaces.Text(2)
    env.action_space = spaces.Box(0, 3, (2,), np.int64)
    with pytest.raises(
        ConfigurationError, match=r"observation space must be Box.*[(]2[)] .*must be Box\(low, high, shape\) of a float"
    ):
        check_env(env)


@pytest.mark.filterwarnings("ignore")
def test_an_environment_that_ignores_its_seed() -> None:
    with pytest.raises(ConfigurationError, match="deterministic|same seed"):
        check_env(Unseeded())


@pytest.mark.filterwarnings("ignore")
def test_a_state_that_reset_does_not_set_back_is_given_as_a_possible_cause() -> None:
    with pytest.raises(ConfigurationError, match=r"set back in reset all that step changes\. Correct"):
        check_env(Forgetful())


@pytest.mark.filterwarnings("ignore")
def test_masks_without_a_legal_action() -> None:
    class Nothing(Masked):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"action_mask": np.zeros(2, np.bool_)}

    with pytest.raises(ConfigurationError, match=r"info\['action_mask'\] must allow an action"):
        check_env(Nothing())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments_reset_as_they_say(mode: AutoresetMode) -> None:
    sound = SyncVectorEnv([Walk, Walk], autoreset_mode=mode)
    assert check_env(sound, steps=100).advice == []
    other = {AutoresetMode.NEXT_STEP: AutoresetMode.SAME_STEP, AutoresetMode.SAME_STEP: AutoresetMode.NEXT_STEP}[mode]
    sound.metadata = {**sound.metadata, "autoreset_mode": other}
    with pytest.raises(ConfigurationError, match="NEXT_STEP" if other is AutoresetMode.NEXT_STEP else "final_obs"):
        check_env(sound, steps=100)
    sound.metadata = {}
    with pytest.raises(ConfigurationError, match="must be NEXT_STEP or SAME_STEP, got none"):
        check_env(sound)


@pytest.mark.parametrize(("n_envs", "vec_env_cls"), [(1, "lanes"), (2, "lanes"), (2, "sync")])
def test_the_environments_of_make_vec_env_are_sound(n_envs: int, vec_env_cls: Any) -> None:
    env = make_vec_env("CartPole-v1", n_envs, vec_env_cls=vec_env_cls)
    assert check_env(env, steps=100).advice == []


class Wrong(Walk):
    """Returns `result` at step 3 of each episode."""

    def __init__(self, space: Any, good: Any, result: Any) -> None:
        super().__init__(length=6)
        self.observation_space, self.good, self.result = space, good, result

    def observe(self) -> Any:
        return self.good

    def step(self, action: Any) -> Any:
        sound = super().step(action)
        return self.result if self.t == 3 else sound


PAIR, FIVE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(5)
ZEROS, NAN = np.zeros(2, np.float32), np.full(2, np.nan, np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("space", "good", "result", "message"),
    [
        (
            PAIR,
            ZEROS,
            (np.zeros(3, np.float32), 1.0, False, False, {}),
            r"at step 3 must have shape \(2,\), got \(3,\)",
        ),
        (FIVE, 1, (7, 1.0, False, False, {}), r"at step 3 must be in Discrete\(5\), got 7"),
        (PAIR, ZEROS, (NAN, 1.0, False, False, {}), "observation 'obs' in lane 0 at step 3 must be finite, got NaN"),
        (PAIR, ZEROS, (ZEROS, np.nan, False, False, {}), "the reward in lane 0 at step 3 must be finite, got NaN"),
        (PAIR, ZEROS, (ZEROS, None, False, False, {}), "at step 3: the reward must be a number, got None"),
        (PAIR, ZEROS, (ZEROS, 1.0, False, {}), "at step 3: the result must be five values, got 4"),
    ],
)
def test_wrong_results_in_the_middle_of_an_episode_are_faults(space: Any, good: Any, result: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as error:
        check_env(Wrong(space, good, result))
    assert "(2)" not in str(error.value), "one fault is told once"
    assert "the same" not in str(error.value)


def test_actions_that_begin_at_another_number_are_sound() -> None:
    class Starts(Walk):
        action_space = spaces.MultiDiscrete([2, 3], start=[5, -1])

        def step(self, action: Any) -> Any:
            assert self.action_space.contains(action)
            return super().step(action)

    assert check_env(Starts(), steps=100).advice == []


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="env must be a gymnasium.Env or VectorEnv, got int"):
        check_env(3)


def test_ids_of_this_library_and_of_atari_are_known() -> None:
    for env_id in ("sb_dqn/TMaze-v0", "ALE/Pong-v5"):
        assert check_env(env_id, warn=False, steps=5).steps_per_second > 0
    with pytest.raises(ConfigurationError, match="steps must be an integer >= 1, got 0"):
        check_env("CartPole-v1", steps=0)
