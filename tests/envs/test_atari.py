"""Atari: protocols, lives, FIRE, single frames, raw scores, and checks of actions before the emulators."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import VectorWrapper

from sb_dqn.envs.atari import default_threads, make_atari_env, protocol_of
from sb_dqn.envs.make import spec_of
from sb_dqn.envs.monitor import load_results
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.atari_env import AtariLanes
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from tests.marks import FULL, SLOW


@pytest.mark.parametrize(
    ("env_id", "protocol"),
    [("PongNoFrameskip-v4", "classic"), ("ALE/Pong-v5", "sticky"), ("Pong-v4", ""), ("Pong-v0", "")],
)
def test_the_id_selects_the_protocol(env_id: str, protocol: str) -> None:
    assert protocol_of(spec_of(env_id)) == protocol


@SLOW
def test_settings_of_the_protocols() -> None:
    classic = make_atari_env("BreakoutNoFrameskip-v4", 2, seed=1)
    sticky = make_atari_env("ALE/Breakout-v5", frame_stack=2)
    freeway = make_atari_env("FreewayNoFrameskip-v4")  # a game without FIRE, whose action 1 is UP
    assert classic.stream_options == StreamOptions(True, True, True, 4, "classic")
    assert sticky.stream_options == StreamOptions(True, False, False, 2, "sticky")
    assert freeway.stream_options == StreamOptions(True, True, False, 4, "classic")
    assert isinstance(classic, AtariLanes)
    assert classic.get_action_meanings()[1] == "FIRE"
    stream = open_stream(classic)
    assert stream.observation_space.shape == (1, 84, 84)
    assert stream.blueprint.observation_space.shape == (4, 84, 84)
    assert stream.blueprint.frame_stack == 4
    assert open_stream("ALE/Breakout-v5", num_envs=3).blueprint.num_envs == 3
    assert make_atari_env("ALE/Pong-v5", protocol="classic").stream_options.protocol == "classic"
    raw = make_atari_env("BreakoutNoFrameskip-v4", clip_reward=False).stream_options
    assert raw == replace(make_atari_env("BreakoutNoFrameskip-v4").stream_options, clip_reward=False)
    full = make_atari_env("ALE/Pong-v5", env_kwargs={"full_action_space": True})
    assert full.single_action_space.n == 18  # type: ignore[attr-defined,unused-ignore]


def play(stream: Any, ticks: int, actions: Any) -> tuple[list[Any], EpisodeStatistics]:
    statistics = EpisodeStatistics(stream.num_envs)
    history: list[Any] = []
    rows = stream.begin(7)
    for tick in range(ticks):
        statistics.update(rows)
        slot = rows.slots[0]
        history.append((slot.obs["obs"].copy(), slot.score, slot.reward, slot.terminal, slot.last, rows.action))
        rows = stream.step(actions[tick])
    return history, statistics


@SLOW
def test_a_lost_life_is_terminal_but_not_last_and_is_followed_by_fire() -> None:
    actions = np.random.default_rng(0).integers(2, 4, (400, 2))  # never FIRE by itself
    history, statistics = play(open_stream("BreakoutNoFrameskip-v4", num_envs=2), 400, actions)
    raw = AtariVectorEnv("breakout", 2, stack_num=1, reward_clipping=False)
    obs, info = raw.reset(seed=7)
    no, lives = np.zeros(2, bool), info["lives"]
    score, terminated, truncated, lost_lives, games, sent = np.zeros(2), no, no, 0, 0, None
    ended = no
    for tick, row in enumerate(history):
        lost = (info["lives"] < lives) & (info["lives"] > 0) & ~ended
        ended, lives = terminated | truncated, info["lives"]
        for found, wanted in zip(row[:5], (obs, score, np.sign(score), terminated | lost, ended), strict=True):
            assert np.array_equal(found, wanted)
        assert row[5] is None if sent is None else row[5].tolist() == sent.tolist()
        sent = np.where(lost & ~ended, 1, actions[tick])
        lost_lives, games = lost_lives + int(lost.sum()), games + int(ended.sum())
        obs, score, terminated, truncated, info = raw.step(sent)
    assert lost_lives > 5
    assert games == statistics.num_episodes > 0
    assert statistics.mean_return > 0


def test_a_game_over_after_max_frames_is_a_truncation() -> None:
    stream = open_stream(make_atari_env("ALE/Pong-v5", max_frames=80))
    rows = stream.begin(0)
    for _ in range(30):
        rows = stream.step(np.array([0]))
        if rows.slots[0].last[0]:
            break
    assert rows.slots[0].last.tolist() == [True]
    assert rows.slots[0].terminal.tolist() == [False]
    info = rows.make_infos()[0]
    assert info["TimeLimit.truncated"] is True
    assert info["terminal_observation"].shape == (1, 84, 84)


@FULL
def test_the_stream_depends_on_the_seed_and_not_on_the_threads() -> None:
    actions = np.random.default_rng(0).integers(0, 6, (60, 3))
    one, _ = play(open_stream(make_atari_env("ALE/Pong-v5", 3, num_threads=1)), 60, actions)
    two, _ = play(open_stream(make_atari_env("ALE/Pong-v5", 3, num_threads=2)), 60, actions)
    assert all(np.array_equal(left[0], right[0]) for left, right in zip(one, two, strict=True))
    env = make_atari_env("PongNoFrameskip-v4", 2, seed=5)
    first = env.reset()[0].copy()
    assert np.array_equal(env.reset(seed=np.int64(5))[0], first)
    assert 1 <= default_threads(4) <= 4


@SLOW
def test_an_illegal_action_never_reaches_the_emulator() -> None:
    env = make_atari_env("ALE/Pong-v5", 2)
    assert isinstance(env, AtariLanes)
    env.reset(seed=0)
    for bad, message in (
        (np.array([0, 6]), "action in lane 1 must be from 0 to 5, got 6"),
        (np.array([-1, 0]), "action in lane 0 must be from 0 to 5, got -1"),
        (np.array([0.0, 1.0]), "got float64"),
        (np.array([0]), r"must have shape \(2,\), one per lane, got \(1,\)"),
    ):
        with pytest.raises(SpaceError, match=message):
            env.step(bad)
    with pytest.raises(EnvironmentFault, match=r"recv\(\) must follow send\(\)"):
        env.recv()
    env.send(np.array([0, 1], np.int32))
    with pytest.raises(EnvironmentFault, match=r"got send\(\) twice"):
        env.send(np.array([0, 1]))
    env.reset(seed=0)  # receives the pending results
    assert env.step(np.array([0, 1]))[0].shape == (2, 1, 84, 84)


@SLOW
def test_monitor_files_hold_raw_scores(tmp_path: Any) -> None:
    env = make_atari_env("BreakoutNoFrameskip-v4", 2, start_index=4, monitor_dir=tmp_path)
    history, statistics = play(open_stream(env), 700, np.random.default_rng(1).integers(0, 4, (700, 2)))
    env.close()
    results = load_results(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["4.monitor.csv", "5.monitor.csv"]
    assert sorted(results["r"]) == sorted(info["r"] for info in statistics.ep_info_buffer)
    assert sorted(results["l"]) == sorted(info["l"] for info in statistics.ep_info_buffer)
    assert len(history) == 700


def stack(frames: list[Any], resets: list[bool], at: int, count: int) -> Any:
    """Returns the last frames of a lane, with zeros before the start of the episode."""
    seen = [frames[at]]
    while len(seen) < count and at > 0 and not resets[at]:
        at -= 1
        seen.insert(0, frames[at])
    return np.concatenate([np.zeros_like(frames[0])] * (count - len(seen)) + seen)


@SLOW
def test_single_frames_of_a_users_own_stack_rebuild_the_stack() -> None:
    settings: dict[str, Any] = {"reward_clipping": False, "max_num_frames_per_episode": 120}
    stream = open_stream(AtariVectorEnv("breakout", 1, stack_num=4, **settings))
    whole = AtariVectorEnv("breakout", 1, stack_num=4, **settings)
    assert (stream.options.frame_stack, stream.observation_space.shape) == (4, (1, 84, 84))
    rows, (stacked, _) = stream.begin(3), whole.reset(seed=3)
    frames, resets = [], []
    was_last = True
    for tick in range(100):
        frames.append(rows.slots[0].obs["obs"][0].copy())
        resets.append(was_last)
        assert np.array_equal(stack(frames, resets, tick, 4), stacked[0])
        was_last = bool(rows.slots[0].last[0])
        action = np.array([tick % 4])
        rows, (stacked, *_) = stream.step(action), whole.step(action)
    assert sum(resets) > 2
    kept = open_stream(AtariVectorEnv("breakout", 1, stack_num=4), frame_stack=1)
    assert (kept.options.frame_stack, kept.observation_space.shape) == (1, (4, 84, 84))


@SLOW
def test_same_step_autoreset_returns_the_final_and_the_reset_frame() -> None:
    settings: dict[str, Any] = {"stack_num": 4, "reward_clipping": False, "max_num_frames_per_episode": 120}
    next_step = open_stream(AtariVectorEnv("breakout", 2, **settings))
    same_step = open_stream(AtariVectorEnv("breakout", 2, autoreset_mode="SameStep", **settings))
    tapes: list[list[tuple[bytes, float, bool, bool]]] = []
    for stream in (next_step, same_step):
        rows, written = stream.begin(3), []
        for tick in range(120):
            for slot in rows.slots:
                if slot.valid[0]:
                    row = slot.obs["obs"][0].tobytes(), float(slot.score[0]), bool(slot.terminal[0]), bool(slot.last[0])
                    written.append(row)
            rows = stream.step(np.full(2, 2 + tick // 1000))
        tapes.append(written)
    length = min(map(len, tapes))
    assert tapes[0][:length] == tapes[1][:length]
    assert sum(row[3] for row in tapes[0][:length]) > 2


def test_same_step_autoreset_without_final_lives_warns_once() -> None:
    env = AtariVectorEnv("breakout", 2, autoreset_mode="SameStep", max_num_frames_per_episode=60)
    stream = open_stream(env, options=StreamOptions(terminal_on_life_loss=True))
    stream.begin(0)
    with pytest.warns(UserWarning, match="Use NEXT_STEP to detect it") as caught:
        ends = [stream.step(np.array([0, 1])).slots[0].last.any() for _ in range(40)]
    assert sum(ends) > len(caught) == 1


@pytest.mark.parametrize("flag", ["episodic_life", "life_loss_info"])
def test_flags_that_hide_the_end_of_a_game_raise(flag: str) -> None:
    settings: dict[str, Any] = {flag: True}
    stream = open_stream(AtariVectorEnv("breakout", 1, **settings))
    stream.begin(0)
    with pytest.raises(ConfigurationError, match=r"lives remaining.*episodic_life=False.*make_atari_env"):
        for tick in range(300):
            stream.step(np.array([1 + tick % 2]))


def test_a_batch_smaller_than_the_lanes_raises() -> None:
    with pytest.raises(ConfigurationError, match="batch_size of AtariVectorEnv must be .* 4, got 2"):
        open_stream(AtariVectorEnv("pong", 4, batch_size=2))


def test_options_are_found_through_a_wrapper() -> None:
    stream = open_stream(VectorWrapper(make_atari_env("PongNoFrameskip-v4")))
    assert stream.options.protocol == "classic"
    assert stream.blueprint.frame_stack == 4


def test_ids_and_keywords_of_gymnasium_make_become_lanes() -> None:
    for env in (make_atari_env("Pong-v4"), make_atari_env("ALE/Pong-v5", env_kwargs={"obs_type": "ram", "mode": 1})):
        assert isinstance(env, Lanes)
    assert env.single_observation_space.shape == (128,)
    stream = open_stream("Pong-v0")
    assert stream.blueprint.observation_space.shape == (210, 160, 3)
    assert stream.begin().slots[0].obs["obs"].shape == (1, 210, 160, 3)


@pytest.mark.parametrize("key", [{"render_mode": "rgb_array"}, {"sound_obs": False}, {"mode": 1}, {"difficulty": 1}])
def test_keywords_without_preprocessing_warn(key: dict[str, Any]) -> None:
    lost = rf"ALE/Pong-v5 with {next(iter(key))}=.*neither scaled to 84 x 84 nor stacked.*Leave {next(iter(key))} out"
    with pytest.warns(UserWarning, match=lost):
        env = make_atari_env("ALE/Pong-v5", env_kwargs=key)
    assert env.single_observation_space.shape == (210, 160, 3)


def test_explicit_raw_frames_do_not_warn() -> None:
    for arguments in ({"env_kwargs": {"mode": 1, "obs_type": "rgb"}}, {"env_kwargs": {"mode": 1}, "frame_stack": 1}):
        stream = open_stream(make_atari_env("ALE/Pong-v5", clip_reward=False, **arguments))  # warnings are errors here
        assert (stream.options.frame_stack, stream.options.clip_reward) == (1, False)


def test_frame_stack_of_raw_frames_raises() -> None:
    with pytest.raises(ConfigurationError, match="frame_stack must not be set for Pong-v4.*Use the id ALE/Pong-v5"):
        open_stream("Pong-v4", frame_stack=4)
    assert open_stream("Pong-v4", frame_stack=1).options.frame_stack == 1


def test_whole_numbers_may_be_floats() -> None:
    env = make_atari_env("ALE/Pong-v5", n_envs=1.0, frame_stack=2.0)  # type: ignore[arg-type]  # as 1e0 is read elsewhere
    assert (env.num_envs, env.stream_options.frame_stack) == (1, 2)
    assert isinstance(env.num_envs, int)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_id": "CartPole-v1"}, "must be an Atari game.*make_vec_env"),
        ({"env_id": "ALE/Pog-v5"}, "registered with gymnasium.*Did you mean 'ALE/Pong-v5'"),
        ({"env_id": "ALE/Pong-v5", "protocol": "stiky"}, "Did you mean 'sticky'"),
        (
            {"env_id": "Pong-v4", "protocol": "classic"},
            "protocol must not be set for Pong-v4.*got protocol='classic'. Use the id ALE/Pong-v5, or leave protocol out",
        ),
        (
            {"env_id": "ALE/Pong-v5", "exact_resume": True, "env_kwargs": {"mode": 1, "sound_obs": False}},
            "for ALE/Pong-v5 with mode, sound_obs, .*exact_resume=True. Leave mode, sound_obs out of env_kwargs, or leave exact",
        ),
        (
            {"env_id": "Pong-v4", "frame_stack": 4, "clip_reward": True},
            "frame_stack=4, clip_reward=True. Use the id ALE/Pong-v5, or leave frame_stack, clip_reward out",
        ),
        (
            {"env_id": "SpaceInvaders-v0", "clip_reward": True, "env_kwargs": {"mode": 1}},
            "mode out.*use the id ALE/SpaceInvaders-v5",
        ),
        (
            {"env_id": "ALE/Pong-v5", "frame_stack": 4, "env_kwargs": {"render_mode": "rgb_array"}},
            "with render_mode, .*frame_stack=4. Leave render_mode out of env_kwargs",
        ),
        ({"env_id": "Pong-v4", "num_threads": 2}, "got num_threads=2. "),
        ({"env_id": "Pong-v4", "clip_reward": 3}, "clip_reward must be .* got 3"),
        ({"env_id": "ALE/Pong-v5", "n_envs": 0}, "n_envs must be .* got 0"),
        ({"env_id": "ALE/Pong-v5", "frame_stack": 0}, "frame_stack must be .* got 0"),
        ({"env_id": "ALE/Pong-v5", "n_envs": "2"}, "n_envs must be an integer >= 1.* got '2'"),
        ({"env_id": "ALE/Pong-v5", "frame_stack": "4"}, "frame_stack must be .* got '4'"),
        ({"env_id": "ALE/Pong-v5", "seed": "a"}, "seed must be .* got 'a'"),
        ({"env_id": "ALE/Pong-v5", "max_frames": -1}, "max_frames must be .* got -1"),
        ({"env_id": "ALE/Pong-v5", "num_threads": -1}, "num_threads must be .* got -1"),
        ({"env_id": "ALE/Pong-v5", "protocol": 3}, r"protocol must be one of \['classic', 'sticky'\].* got 3"),
        (
            {"env_id": "ALE/Pong-v5", "wrapper_kwargs": {}},
            "wrapper_kwargs must be unset for make_atari_env, .* Use protocol=",
        ),
        (
            {"env_id": "ALE/Pong-v5", "vec_env_cls": None},
            "vec_env_cls must be unset for make_atari_env, .* Use num_threads=",
        ),
        (
            {"env_id": "ALE/Pong-v5", "frame_stak": 4},
            "must be among .*got 'frame_stak'. Use one of them. Did you mean 'frame_stack'",
        ),
        ({"env_id": "ALE/Pong-v5", "env_kwargs": 3}, "env_kwargs must be .* got 3"),
        ({"env_id": "ALE/Pong-v5", "env_kwargs": {"stack_num": 4}}, r"must not contain .*got \['stack_num'\]"),
        ({"env_id": "ALE/Pong-v5", "env_kwargs": {"speed": 4}}, "must be arguments of AtariVectorEnv.*speed"),
    ],
)
def test_bad_arguments_name_the_fix(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_atari_env(**arguments)


@pytest.mark.parametrize("env_kwargs", [{}, {"obs_type": "ram"}], ids=["vectorized", "plain"])
def test_close_ends_the_emulators(env_kwargs: dict[str, Any]) -> None:
    env: Any = make_atari_env("ALE/Pong-v5", env_kwargs=env_kwargs)
    emulator = env.envs[0].unwrapped.ale if env_kwargs else env.env.ale
    env.close()
    assert sys.getrefcount(emulator) == 2  # the variable of this test and the argument


def test_the_longest_game_is_set_once() -> None:
    with pytest.raises(ConfigurationError, match=r"max_frames must be None with env_kwargs"):
        make_atari_env("ALE/Pong-v5", max_frames=400, env_kwargs={"max_num_frames_per_episode": 100_000})
