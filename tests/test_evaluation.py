from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from sb_dqn.algorithms import PPO
from sb_dqn.callbacks import EvalCallback
from sb_dqn.checkpoint import model_info
from sb_dqn.envs.streams.open import StreamOptions, open_stream
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.evaluation import derive_seed, evaluate_policy, play_episodes
from tests.tiny import SMALL_CNN, Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")


class Game(gymnasium.Env[Any, Any]):
    """Environment with episodes of `length` steps, reward 10 * t at step t, and observation (episode number, t)."""

    render_mode = "rgb_array"

    def __init__(self, length: float, space: spaces.Discrete | None = None) -> None:
        self.length, self.episode = length, 0
        self.observation_space = spaces.Box(0, np.inf, (2,), np.float32)
        self.action_space = space or spaces.Discrete(3)
        self.actions: list[int] = []
        self.draws: list[float] = []
        self.rendered, self.closed = 0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.episode = 0, self.episode + 1
        self.draws.append(float(self.np_random.random()))
        return self.observe(), {"lives": 3}

    def observe(self) -> Any:
        return np.array([self.episode, self.t], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(int(action))
        self.t += 1
        return self.observe(), 10.0 * self.t, self.t == self.length, False, {"lives": 3 - self.t % 3, "t": self.t}

    def render(self) -> Any:
        self.rendered += 1
        return np.zeros((2, 2, 3), np.uint8)

    def close(self) -> None:
        self.closed = True


class Model:
    """Model that always takes `action` and records its inputs."""

    def __init__(self, action: int = 0, env: Any = None) -> None:
        self.action, self.env, self.learning = action, env, False
        self.seen: list[Any] = []
        self.starts: list[list[bool]] = []
        self.states: list[Any] = []
        self.deterministic: set[bool] = set()

    def get_env(self) -> Any:
        return self.env

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        self.seen.append(copy.deepcopy(observation))  # a stream may write into its arrays again
        self.starts.append(episode_start.tolist())
        self.states.append(state)
        self.deterministic.add(deterministic)
        return np.full(len(episode_start), self.action), (0 if state is None else state) + 1


def score(length: int) -> float:
    return sum(10.0 * t for t in range(1, length + 1))


def lanes(*lengths: float) -> list[Callable[[], Game]]:
    return [lambda length=length: Game(length) for length in lengths]  # type: ignore[misc]  # bound by default


def sb3(factories: list[Callable[[], Game]]) -> Any:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="Stable-Baselines3 is an extra")
    return vec_env.DummyVecEnv(factories)


KINDS: dict[str, Callable[[list[Callable[[], Game]]], Any]] = {
    "factories": lambda factories: factories,
    "next_step": lambda factories: SyncVectorEnv(factories, autoreset_mode=AutoresetMode.NEXT_STEP),
    "same_step": lambda factories: SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP),
    "sb3": sb3,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_lane_plays_its_share_in_any_kind_of_env(kind: str) -> None:
    env = KINDS[kind](lanes(1, 4, 9))
    returns, lengths = evaluate_policy(Model(), env, n_eval_episodes=7, return_episode_rewards=True)
    assert isinstance(lengths, list)
    assert sorted(lengths) == [1, 1, 4, 4, 9, 9, 9]  # the first seven to end would have been 1 1 1 4 1 1 1 or so
    assert returns == [score(length) for length in lengths]


def test_fewer_episodes_than_lanes() -> None:
    _, lengths = evaluate_policy(Model(), lanes(2, 3, 4, 5), n_eval_episodes=2, return_episode_rewards=True)
    assert lengths == [4, 5]


def test_mean_and_spread() -> None:
    mean, spread = evaluate_policy(Model(), lanes(1, 2), n_eval_episodes=2)
    assert (mean, spread) == (20.0, 10.0)  # of 10 and 30


def test_matches_stable_baselines() -> None:
    reference = pytest.importorskip("stable_baselines3.common.evaluation", reason="Stable-Baselines3 is an extra")
    ours = evaluate_policy(Model(), sb3(lanes(3, 5, 2)), n_eval_episodes=8, return_episode_rewards=True)
    theirs = reference.evaluate_policy(Model(), sb3(lanes(3, 5, 2)), 8, return_episode_rewards=True, warn=False)
    assert ours == theirs


@pytest.mark.parametrize("kind", ["factories", "same_step"])
def test_lost_lives_end_no_episode_and_rewards_are_raw(kind: str) -> None:
    stream = open_stream(KINDS[kind](lanes(8)), options=StreamOptions(clip_reward=True, terminal_on_life_loss=True))
    assert play_episodes(Model(), stream, 2).returns == [score(8)] * 2


def test_a_bound_on_all_steps_ends_it_with_the_episodes_that_are_finished() -> None:
    def played(bound: int | None, watch: Any = None) -> Any:
        return play_episodes(Model(), open_stream(lanes(3, 30)), 4, max_total_steps=bound, watch=watch)

    whole = played(None)
    assert (sorted(whole.lengths), whole.returns.count(score(30))) == ([3, 3, 30, 30], 2)
    seen: list[tuple[int, int]] = []
    short = played(20, lambda episodes: seen.append((episodes.steps, len(episodes.returns))))
    assert short.lengths == [3, 3]  # the episode of 30 had 10 steps, so what is left is not a fair mean
    assert 20 <= short.steps <= 21
    assert seen[-1] == (short.steps, 2)
    assert [steps for steps, _ in seen] == sorted(steps for steps, _ in seen)
    assert played(2).returns == []
    with pytest.raises(ConfigurationError, match="max_total_steps"):
        played(0)


def test_episode_start_is_told_at_reset_rows_and_state_is_carried() -> None:
    model = Model()
    evaluate_policy(model, lanes(2, 3), n_eval_episodes=4)
    #                       reset          end of 0       end of 1 reset 0
    assert model.starts[:6] == [[True, True], [False] * 2, [False] * 2, [True, False], [False, True], [False] * 2]
    assert [row[0].tolist() for row in model.seen[:4]] == [[1, 0], [1, 1], [1, 2], [2, 0]]
    assert model.states == [None, *range(1, len(model.states))]
    same = Model()
    evaluate_policy(same, KINDS["same_step"](lanes(2, 3)), n_eval_episodes=4)
    assert same.starts[:4] == [[True, True], [False] * 2, [True, False], [False, True]]


def test_actions_of_a_space_with_a_start_arrive_as_predicted() -> None:
    env = Game(4, spaces.Discrete(3, start=5))
    evaluate_policy(Model(action=7), env, n_eval_episodes=1)
    assert env.actions == [7] * 4


def test_single_frames_are_stacked_with_zeros_before_the_first() -> None:
    class Frames(Game):
        stream_options = StreamOptions(frame_stack=3)

        def __init__(self, length: float) -> None:
            super().__init__(length)
            self.observation_space = spaces.Box(0, 255, (1, 2, 2), np.uint8)

        def observe(self) -> Any:
            return np.full((1, 2, 2), 10 * self.episode + self.t, np.uint8)

    model = Model()
    evaluate_policy(model, [lambda: Frames(3), lambda: Frames(2)], n_eval_episodes=4)
    assert model.seen[0].shape == (2, 3, 2, 2)
    shown = [seen[:, :, 0, 0].tolist() for seen in model.seen[:5]]
    assert [lane0 for lane0, _ in shown] == [[0, 0, 10], [0, 10, 11], [10, 11, 12], [11, 12, 13], [0, 0, 20]]
    assert [lane1 for _, lane1 in shown] == [[0, 0, 10], [0, 10, 11], [10, 11, 12], [0, 0, 20], [0, 20, 21]]


def test_dict_observations_arrive_as_a_dict() -> None:
    class Keys(Game):
        def __init__(self) -> None:
            super().__init__(2)
            self.observation_space = spaces.Dict({"obs": spaces.Discrete(9), "b": spaces.Box(0, 9, (2,), np.float32)})

        def observe(self) -> Any:
            return {"obs": self.t, "b": np.full(2, self.t, np.float32)}

    model = Model()
    evaluate_policy(model, Keys(), n_eval_episodes=1)
    assert {key: value.tolist() for key, value in model.seen[1].items()} == {"obs": [1], "b": [[1.0, 1.0]]}


def test_deterministic_is_passed_on() -> None:
    model = Model()
    evaluate_policy(model, Game(2), 1)
    evaluate_policy(model, Game(2), 1, deterministic=False)
    assert model.deterministic == {True, False}


def global_states() -> tuple[Any, ...]:
    numpy_state: Any = np.random.get_state()  # noqa: NPY002 - that nobody touches it is the test
    return random.getstate(), numpy_state[1].tolist(), torch.get_rng_state().tolist()


def test_only_its_own_random_stream_is_used() -> None:
    before = global_states()
    evaluate_policy(Model(), Game(5), n_eval_episodes=3)
    evaluate_policy(Model(), "CartPole-v1", n_eval_episodes=2)
    assert global_states() == before


def test_the_same_seed_gives_the_same_episodes() -> None:
    def draws(seed: int | None, env: Game) -> list[float]:
        env.draws.clear()
        evaluate_policy(Model(), env, n_eval_episodes=3, seed=seed)
        return list(env.draws)

    env = Game(2)
    first = draws(4, env)
    assert draws(4, env) == first == draws(4, Game(2))
    assert draws(5, env) != first
    goes_on = draws(None, env)
    assert draws(None, env) != goes_on  # the env's own generator, which is not reset


def test_derived_seeds_differ_and_leave_room_for_lanes() -> None:
    seeds = [derive_seed(seed, number) for seed in (-1, 0, 1, 2**40) for number in range(50)]
    assert len(set(seeds)) == 200
    assert all(type(seed) is int and 0 <= seed < 2**31 - 10_000 for seed in seeds)


def test_callback_sees_each_counting_lane() -> None:
    seen: list[tuple[Any, ...]] = []

    def callback(names: dict[str, Any], globals_: dict[str, Any]) -> None:
        lane = names["i"]
        seen.append((lane, names["reward"], names["done"], names["info"].get("t"), names["current_lengths"][lane]))
        assert names["episode_counts"].sum() == len(names["episode_rewards"])

    evaluate_policy(Model(), lanes(2, 3), n_eval_episodes=2, callback=callback)
    assert seen == [
        (0, 10.0, False, 1, 1),
        (1, 10.0, False, 1, 1),
        (0, 20.0, True, 2, 2),
        (1, 20.0, False, 2, 2),
        (1, 30.0, True, 3, 3),
    ]


def test_arguments_of_a_callback_are_not_overwritten() -> None:
    shown: list[tuple[Any, Any]] = []

    def see(names: dict[str, Any], globals_: dict[str, Any]) -> None:
        shown.append((names["observations"], names["new_observations"]))

    evaluate_policy(quick(Tiny(length=6)), Tiny(length=6), 1, callback=see)
    assert len({before.tobytes() for before, _ in shown}) == 6
    assert all(np.array_equal(after, before) for (_, after), (before, _) in pairwise(shown))


def test_reset_rows_are_not_steps_and_not_passed_to_callbacks() -> None:
    steps: list[int] = []
    evaluate_policy(Model(), Game(2), 3, callback=lambda names, _: steps.append(int(names["current_lengths"][0])))
    assert steps == [1, 2, 1, 2, 1, 2]


def test_render_after_every_step() -> None:
    env = Game(4)
    evaluate_policy(Model(), env, n_eval_episodes=1, render=True)
    assert env.rendered == 4


def test_an_endless_episode_is_cut_without_effect_on_others() -> None:
    made: list[Game] = []

    def make(length: float) -> Callable[[], Game]:
        def factory() -> Game:
            made.append(Game(length))
            return made[-1]

        return factory

    with pytest.warns(UserWarning, match="2 of 5 episodes did not end within max_steps=6 and were cut"):
        returns, lengths = evaluate_policy(
            Model(), [make(np.inf), make(4)], n_eval_episodes=5, max_steps=6, return_episode_rewards=True
        )
    assert sorted(zip(lengths, returns, strict=True)) == [(4, score(4))] * 3 + [(6, score(6))] * 2  # type: ignore[arg-type]
    assert len(made[0].draws) == 2  # each cut episode began at a reset
    assert made[0].draws[0] != made[0].draws[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_policy(Model(), Game(np.inf), 1, max_steps=3, warn=False)
        evaluate_policy(Model(), Game(6), 2, max_steps=6)  # exactly as long as allowed is not cut


def test_threshold() -> None:
    evaluate_policy(Model(), Game(2), 1, reward_threshold=29.9)
    with pytest.raises(AssertionError, match=r"mean return must be above reward_threshold=30.00, got 30.00"):
        evaluate_policy(Model(), Game(2), 1, reward_threshold=30.0)


def test_its_own_env_is_closed_even_after_an_error() -> None:
    made: list[Game] = []

    def make() -> Game:
        made.append(Game(3))
        return made[-1]

    own = Game(3)
    evaluate_policy(Model(), own, 1)
    evaluate_policy(Model(), [make], 1)
    evaluate_policy(Model(), make, 1)

    def fail(*_: Any) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        evaluate_policy(Model(), [make], 1, callback=fail)
    assert [env.closed for env in made] == [True] * 3
    assert not own.closed
    stream = open_stream(own)
    evaluate_policy(Model(), stream, 1)
    assert not own.closed


def test_the_training_env_is_refused_during_training_and_warned_of_otherwise() -> None:
    env = Game(2)
    vector = SyncVectorEnv([lambda: env])
    for training in (env, open_stream(env), vector, gymnasium.Wrapper(env)):
        model = Model(env=training)
        for given in (env, vector, open_stream(env)):
            model.learning = True
            with pytest.raises(ConfigurationError, match=r"the one that the model is learning on.*its id"):
                evaluate_policy(model, given, 1)
            model.learning = False
            with pytest.warns(UserWarning, match="evaluating on the env that the model was trained on"):
                evaluate_policy(model, given, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_policy(model, env, 1, warn=False)
        evaluate_policy(Model(env=Game(2)), env, 1)


class Else(Tiny):
    """Tiny with other spaces."""

    def __init__(self, bound: float = np.inf, places: int = 2, actions: int = 3) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-bound, bound, (places,), np.float32)
        self.action_space, self.closed = spaces.Discrete(actions), False

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"bound": 5},
            r"observation_space .* must be Box\(-inf.*, as of the model, got Box\(-5.*an environment with the same spaces",
        ),
        ({"places": 3}, r"observation_space of the environment must be .*, got Box.*\(3,\)"),
        ({"actions": 7}, r"action_space of the environment must be Discrete\(3\), as of the model, got Discrete\(7\)"),
    ],
)
def test_an_env_with_other_spaces_is_refused_before_any_step(other: dict[str, Any], message: str) -> None:
    model, made = quick(), []
    evaluate_policy(model, Else(), 1)

    def make() -> Else:
        made.append(Else(**other))
        return made[-1]

    for given in (make, [make, make], Else(**other)):
        with pytest.raises(SpaceError, match=message):
            evaluate_policy(model, given, 1)
    assert [env.closed for env in made] == [True] * 3
    with pytest.raises(SpaceError, match=message):
        model.learn(20, EvalCallback(make, eval_freq=10))
    assert model.num_timesteps == 0
    assert made[-1].closed
    model.learn(20, EvalCallback(make, eval_freq=0))  # which never plays there
    assert len(made) == 4


class Frames(gymnasium.Env[Any, Any]):
    """Environment with stacks of `count` noisy frames as observations."""

    action_space = spaces.Discrete(2)

    def __init__(self, count: int) -> None:
        self.observation_space = spaces.Box(0, 255, (count, 12, 12), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t == 3, False, {}


def test_the_id_of_a_preset_has_its_keywords() -> None:
    maze = "sb_dqn/TMaze-v0"
    model = PPO.from_preset(maze, env_kwargs={"corridor": 3}, seed=0, device="cpu")
    callback = EvalCallback(maze, n_eval_episodes=2, eval_freq=512, verbose=0)
    model.learn(512, callback=callback)

    def lengths(env: Any) -> Any:
        return evaluate_policy(model, env, 2, return_episode_rewards=True)[1]

    assert max(lengths(maze)) <= 16, "its time limit is four times the way"
    assert max(callback.evaluations_length[0]) <= 16
    assert min(lengths(gymnasium.make(maze, corridor=20))) > 20  # an environment is used as it is


def test_a_loaded_model_has_the_keywords_of_its_preset(tmp_path: Path) -> None:
    maze, saved = "sb_dqn/TMaze-v0", tmp_path / "maze.zip"
    PPO.from_preset(maze, preset="tmaze-50", seed=0, device="cpu").save(saved)
    model = PPO.load(saved, env=maze)
    assert [env.unwrapped.corridor for env in model.get_env().envs] == [50] * 8
    assert PPO.load(saved).preset_env == model.preset_env
    lengths: Any = evaluate_policy(model, maze, 2, return_episode_rewards=True)[1]
    assert min(lengths) > 84, "a corridor of 20, the default, ends after 84 steps"
    model.set_env(maze)
    model.save(saved)
    assert model_info(saved)["preset_env"] == {"env": maze, "preset": "tmaze-50"}


def test_a_file_names_no_keywords_of_an_environment(tmp_path: Path) -> None:
    """Those that a user passed, or that a preset of the user's own has, are not read back."""
    maze, saved = "sb_dqn/TMaze-v0", tmp_path / "maze.zip"
    PPO.from_preset(maze, env_kwargs={"corridor": 3}, seed=0, device="cpu").save(saved)
    assert "preset_env" not in model_info(saved)
    assert PPO.load(saved).preset_env is None


def test_results_do_not_depend_on_who_stacks_the_frames() -> None:
    stacking = quick(
        open_stream(Frames(1), frame_stack=2), "CnnPolicy", policy_kwargs={"features_extractor_kwargs": SMALL_CNN}
    )
    stacked = quick(Frames(2), "CnnPolicy", policy_kwargs={"features_extractor_kwargs": SMALL_CNN})
    for model in (stacking, stacked):
        for env in (Frames(2), open_stream(Frames(1), frame_stack=2)):
            assert evaluate_policy(model, env, 2) == (3.0, 0.0)
    assert evaluate_policy(stacking, Frames(1), 2) == (3.0, 0.0)
    others: list[tuple[Any, Any]] = [(stacked, Frames(1)), (stacking, Frames(4)), (stacking, Tiny())]
    for model, other in others:
        with pytest.raises(SpaceError, match="observation_space of the environment must be"):
            evaluate_policy(model, other, 2)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"env": None}, "env must be an environment or its id, got None"),
        ({"n_eval_episodes": 0}, "n_eval_episodes must be .* got 0"),
        ({"n_eval_episodes": 1.5}, "n_eval_episodes must be .* got 1.5"),
        ({"max_steps": 0}, "max_steps must be .* got 0"),
        ({"seed": "a"}, "seed must be an integer,.* got 'a'"),
        ({"callback": 3}, r"callback must be a function \(locals, globals\).* got 3"),
        ({"callback": lambda: None}, r"must be a function \(locals, globals\), got .* signature \(\)"),
    ],
)
def test_bad_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        evaluate_policy(Model(), **{"env": Game(2), **kwargs})
