"""`make_vec_env`: Stable-Baselines3's arguments, backends, seeds and errors."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from sb_dqn.envs.make import make_env, make_vec_env, spec_of
from sb_dqn.envs.monitor import Monitor, load_results
from sb_dqn.envs.reward_units import SCALED_REWARDS
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.envs.vector.sync_env import Lanes
from sb_dqn.errors import ConfigurationError
from tests.tiny import Faulty
from tests.toys import DuckVecEnv, ToyGame


@pytest.mark.parametrize(
    ("backend", "kind"), [(None, Lanes), ("lanes", Lanes), ("sync", SyncVectorEnv), (SyncVectorEnv, SyncVectorEnv)]
)
def test_every_backend_starts_from_the_same_seed(backend: Any, kind: type) -> None:
    frames = []
    for _ in range(2):
        env = make_vec_env("CartPole-v1", 3, seed=4, vec_env_cls=backend)
        assert isinstance(env, kind)
        stream = open_stream(env)
        frames.append(stream.begin().slots[0].obs["obs"].copy())
        stream.close()
    assert np.array_equal(*frames)


def test_processes_return_the_rows_of_lanes() -> None:
    streams = [open_stream(make_vec_env("CartPole-v1", 2, vec_env_cls=cls)) for cls in ("lanes", "async")]
    assert isinstance(streams[1].env, AsyncVectorEnv)
    rows = [stream.begin(3) for stream in streams]
    for tick in range(60):
        for mine, other in zip(rows[0].slots, rows[1].slots, strict=True):
            assert np.array_equal(mine.obs["obs"], other.obs["obs"])
            assert np.array_equal(mine.last, other.last)
            assert np.array_equal(mine.reward, other.reward)
        rows = [stream.step(np.array([tick % 2, 1])) for stream in streams]
    for stream in streams:
        stream.close()


def test_the_vectorized_form_of_an_env() -> None:
    stream = open_stream(make_vec_env("CartPole-v1", 5, seed=1, vec_env_cls="vector"))
    rows = stream.begin()
    ended = 0
    for _ in range(200):
        rows = stream.step(np.ones(5, np.int64))
        ended += int(rows.slots[0].last.sum())
    assert ended > 5
    with pytest.raises(ConfigurationError, match="must have a vectorized form"):
        make_vec_env("MountainCar-v0", vec_env_cls="vector")
    with pytest.raises(ConfigurationError, match="no single lanes to wrap"):
        make_vec_env("CartPole-v1", vec_env_cls="vector", wrapper_class=Monitor)


def test_monitor_wrapper_and_keywords_reach_each_lane(tmp_path: Any) -> None:
    env = make_vec_env(
        ToyGame,
        2,
        start_index=3,
        monitor_dir=tmp_path / "logs",
        wrapper_class=gymnasium.wrappers.TimeLimit,
        env_kwargs={"kind": "vector", "seed": 9},
        monitor_kwargs={"info_keywords": ("lives",)},
        wrapper_kwargs={"max_episode_steps": 30},
    )
    stream = open_stream(env)
    stream.begin()
    episodes = 0
    for _ in range(200):
        rows = stream.step(np.array([0, 1]))
        episodes += int(rows.slots[0].last.sum())
        for lane in np.flatnonzero(rows.slots[0].last):
            assert {"r", "l", "t", "lives"} <= rows.make_infos()[lane]["episode"].keys()
    stream.close()
    assert sorted(file.name for file in (tmp_path / "logs").iterdir()) == ["3.monitor.csv", "4.monitor.csv"]
    results = load_results(tmp_path / "logs")
    assert len(results["r"]) == episodes
    assert set(results) == {"r", "l", "t", "lives"}


def test_a_class_that_takes_factories_is_a_backend() -> None:
    env = make_vec_env(ToyGame, 2, seed=8, vec_env_cls=DuckVecEnv)
    assert env.seeds == [8]
    assert open_stream(env).num_envs == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env_id": "CartPol-v1"}, "got 'CartPol-v1'.*Did you mean 'CartPole-v1'"),
        ({"env_id": "CartPole-v1", "n_envs": 0}, "n_envs must be .* got 0"),
        ({"env_id": "CartPole-v1", "seed": -1}, "seed must be .* got -1"),
        ({"env_id": "CartPole-v1", "n_envs": "2"}, "n_envs must be an integer >= 1.* got '2'"),
        ({"env_id": "CartPole-v1", "n_envs": None}, "n_envs must be .* got None"),
        ({"env_id": "CartPole-v1", "seed": "a"}, "seed must be .* got 'a'"),
        ({"env_id": "CartPole-v1", "start_index": -1}, "start_index must be .* got -1"),
        ({"env_id": "CartPole-v1", "vec_env_cls": 3}, r"vec_env_cls must be a class or one of \['lanes', .*got 3"),
        ({"env_id": "CartPole-v1", "vec_env_cls": ["lanes"]}, r"vec_env_cls must be a class .*got \['lanes'\]"),
        (
            {"env_id": "CartPole-v1", "vec_env_kwargs": {"context": "spawn"}},
            "keys of vec_env_kwargs must be among .*, got 'context'",
        ),
        ({"env_id": "CartPole-v1", "vec_env_kwargs": 3}, "vec_env_kwargs must be a dict.* got 3"),
        (
            {"env_id": "CartPole-v1", "vec_env_cls": "sync", "vec_env_kwargs": {"contxt": 1}},
            "keys of vec_env_kwargs must be .* got 'contxt'",
        ),
        (
            {"env_id": "CartPole-v1", "vec_env_cls": "async", "vec_env_kwargs": {"contxt": 1}},
            "got 'contxt'.*Did you mean 'context'",
        ),
        (
            {"env_id": "CartPole-v1", "monitor_kwargs": {"keywords": ()}},
            "keys of monitor_kwargs must be .* got 'keywords'.*Did you mean",
        ),
        (
            {"env_id": "CartPole-v1", "monitor_kwargs": {"filename": "0"}},
            "keys of monitor_kwargs must be .* got 'filename'",
        ),
        ({"env_id": "CartPole-v1", "wrapper_kwargs": 3}, "wrapper_kwargs must be .* got 3"),
        ({"env_id": "CartPole-v1", "env_kwargs": [3]}, r"env_kwargs must be .* got \[3\]"),
        ({"env_id": 3}, "env_id must be the id of an environment, or a factory, got 3"),
        ({"env_id": "CartPole-v1", "vec_env_cls": "asinc"}, "got 'asinc'.*Did you mean 'async'"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"gravity": 3}}, "env_kwargs must be arguments of .*gravity"),
        (
            {"env_id": "no_such_module:Env-v0"},
            "'no_such_module:Env-v0'.*No module named 'no_such_module'.*Check its spelling.$",
        ),
        ({"env_id": "tests.toys:CartPol-v1"}, "registered with gymnasium.*Did you mean 'CartPole-v1'"),
    ],
)
def test_bad_arguments_name_the_fix(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_vec_env(**arguments)


def test_whole_numbers_may_be_floats() -> None:
    assert make_vec_env(ToyGame, n_envs=2.0).num_envs == 2  # type: ignore[arg-type]  # as 1e0 is read elsewhere


def test_keywords_of_worker_processes_are_passed_on() -> None:
    env = make_vec_env("CartPole-v1", vec_env_cls="async", vec_env_kwargs={"shared_memory": False, "context": "spawn"})
    assert not env.shared_memory
    env.close()


def test_a_module_is_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers_poles.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Pole-v7', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", {**gymnasium.registry})
    rows = open_stream("registers_poles:Pole-v7", num_envs=2).begin(0)
    assert rows.slots[0].obs["obs"].shape == (2, 4)


def test_restarted_lanes_append_to_their_monitor_files(tmp_path: Path) -> None:
    made: list[int] = []

    def lane() -> Faulty:
        made.append(1)
        return Faulty("raise", at=23 if len(made) == 1 else 10**9, length=5)

    for episodes, expectation in ((7, pytest.warns(UserWarning, match="restarted")), (8, nullcontext())):
        stream = open_stream(make_vec_env(lane, monitor_dir=tmp_path, vec_env_kwargs={"on_env_error": "restart"}))
        stream.begin(0)
        with expectation:
            for _ in range(48):
                stream.step(np.zeros(1, np.int64))
        stream.close()
        results = load_results(tmp_path)  # the second call started a new file
        assert results["l"].tolist() == [5] * episodes
        assert (np.diff(results["t"]) >= 0).all()
    with pytest.raises(ConfigurationError, match="registered with gymnasium"):
        make_vec_env("CartPol-v1", monitor_dir=tmp_path)
    assert load_results(tmp_path)["l"].tolist() == [5] * 8  # nothing was begun, so nothing is overwritten


@pytest.mark.parametrize("vec_env_cls", ["lanes", "async"])
def test_monitor_files_stay_if_a_lane_cannot_be_made(tmp_path: Path, vec_env_cls: str) -> None:
    (tmp_path / "0.monitor.csv").write_text("kept")
    with pytest.raises(ConfigurationError, match="env_kwargs must be arguments of"):
        make_vec_env("CartPole-v1", 2, monitor_dir=tmp_path, env_kwargs={"gravity": 1}, vec_env_cls=vec_env_cls)
    assert (tmp_path / "0.monitor.csv").read_text() == "kept"
    make_vec_env("CartPole-v1", 2, monitor_dir=tmp_path).close()
    assert (tmp_path / "0.monitor.csv").read_text().startswith("#{")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.monitor.csv", "1.monitor.csv"]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(
        ConfigurationError,
        match=r"packages of environment 'LunarLander-v3' must be installed.*pip install 'sb_dqn\[box2d\]'",
    ):
        make_env("LunarLander-v3", {})


def test_atari_ids_are_known_without_an_import_by_the_user() -> None:
    assert spec_of("ALE/Pong-v5").kwargs["game"] == "pong"


def test_importing_envs_loads_neither_torch_nor_the_emulator() -> None:
    code = (
        "import sys, sb_dqn.envs as envs; assert 'make' not in dir() and 'gymnasium' not in sys.modules; "
        "[getattr(envs, name) for name in envs.__all__]; "
        "envs.open_stream('CartPole-v1').begin(); "
        "print(sorted({'torch', 'ale_py', 'stable_baselines3', 'envpool'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_scaled_rewards_are_those_of_the_environment_times_the_factor() -> None:
    plain, scaled = make_env("CartPole-v1"), make_env(SCALED_REWARDS, {"env_id": "CartPole-v1", "factor": 1_000})
    for env in (plain, scaled):
        env.reset(seed=3)
    for action in (0, 1, 1):
        expected, given = plain.step(action), scaled.step(action)
        np.testing.assert_array_equal(given[0], expected[0])
        assert (given[1], given[2:4]) == (1_000 * float(expected[1]), expected[2:4])


@pytest.mark.parametrize("kind", [None, "sync", "async"])
def test_the_seed_is_that_of_the_first_reset_of_every_kind(kind: str | None) -> None:
    env = make_vec_env("CartPole-v1", 2, seed=3, vec_env_cls=kind, monitor_kwargs={"allow_early_resets": False})
    alone = [gymnasium.make("CartPole-v1").reset(seed=3 + lane)[0] for lane in range(2)]
    np.testing.assert_array_equal(env.reset()[0], alone)
    env.close()


def test_one_environment_of_all_lanes_has_no_keywords_of_lanes() -> None:
    with pytest.raises(
        ConfigurationError, match=r"got env_id='CartPole-v1' and {'monitor_kwargs': {}, 'start_index': 2}"
    ):
        make_vec_env("CartPole-v1", vec_env_cls="vector", monitor_kwargs={}, start_index=2)
