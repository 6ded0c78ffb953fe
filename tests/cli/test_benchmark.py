"""`sb-dqn benchmark` on a suite of runs of a few hundred steps: finished, killed, resumed, and refused."""

from __future__ import annotations

import csv
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib import metadata
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

from sb_dqn import DQN, QRDQN
from sb_dqn.cli.benchmark import command, peer
from sb_dqn.cli.benchmark import runs as suite
from sb_dqn.cli.benchmark.runs import FIRST_SEED, agents_of, make_entries, read_suite, seconds_left, suite_names
from sb_dqn.envs.by_id import open_env
from sb_dqn.errors import ConfigurationError
from sb_dqn.hub import pull_from_hub
from sb_dqn.presets import find_preset, list_presets
from sb_dqn.runs import jobs as job_runner
from sb_dqn.runs.folder import Result, read_result, write_result
from sb_dqn.runs.folder_lock import lock_folder
from sb_dqn.runs.greedy import play
from sb_dqn.runs.plan import make_plan
from scripts.benchmarks import agents
from tests.cli.fork_server import ForkServer
from tests.command import run_main
from tests.full_disk import POSIX, files_limited_to
from tests.marks import FULL, SLOW

ROOT = Path(__file__).parents[2]
SMALL = """
title: Small
protocol: none
algorithms: all
timesteps: 300
eval_episodes: 1
final_episodes: 2
tasks:
  CartPole-v1: {algorithms: [DQN, QRDQN], peers: {sb3: [DQN]}}
  short poles: {env: CartPole-v1, env_kwargs: {sutton_barto_reward: true}, algorithms: [DQN]}
"""
run = partial(run_main, "benchmark")


@pytest.fixture(scope="module", autouse=True)
def small_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Adds the suite `small`, and forks the worker processes."""
    folder = tmp_path_factory.mktemp("suites")
    (folder / "small.yaml").write_text(SMALL)
    os.chdir(ROOT)
    with ForkServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_runner, "subprocess", SimpleNamespace(Popen=server, PIPE=None, STDOUT=None))
        patch.setattr(suite, "FOLDER", folder)
        yield


def rows(out: Path, name: str = "results.csv") -> list[dict[str, str]]:
    with (out / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a benchmark of three runs."""
    out = tmp_path_factory.mktemp("benchmark") / "out"
    assert run("small", "--seeds", 1, "--out", out, "--jobs", 2) == 0
    return out


@SLOW
def test_each_run_has_a_row_with_what_it_was_made_by(done: Path) -> None:
    found = {(row["algorithm"], row["env"]): row for row in rows(done)}
    assert set(found) == {("DQN", "CartPole-v1"), ("QRDQN", "CartPole-v1"), ("DQN", "short poles")}
    row = found["DQN", "CartPole-v1"]
    (folder,) = (done / "runs" / "DQN_CartPole-v1_100").glob("*/")
    result = read_result(folder)
    assert float(row["score"]) == sum(result.returns) / 2
    assert (row["library"], row["seed"], row["episodes"]) == ("sb_dqn", "100", "2")
    assert (row["steps"], float(row["seconds"]) > 0, float(row["cpu_seconds"]) > 0) == ("300", True, True)
    assert row["command"].startswith("sb-dqn train DQN CartPole-v1 --timesteps 300 --seed 100 --device auto")
    assert str(done) not in row["command"]
    assert row["commit"] == yaml.safe_load((folder / "config.yaml").read_text()).get("commit", "")
    assert float(found["DQN", "short poles"]["score"]) == -1.0  # the reward of that environment
    assert all(len(curve["curve"].split()) == 10 for curve in rows(done, "curves.csv"))


@SLOW
@pytest.mark.parametrize(
    ("present", "earlier"),
    [("gamma: 0.99", "gamma: 0.5"), ("redo: false", "redo: true")],
    ids=["a setting of the preset", "a setting that the preset no longer has"],
)
def test_finished_runs_stay_and_runs_of_other_settings_are_made_again(
    present: str, earlier: str, done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(done, tmp_path / "out"))
    (config,) = (out / "runs" / "QRDQN_CartPole-v1_100").glob("*/config.yaml")
    assert present in config.read_text()
    config.write_text(config.read_text().replace(present, earlier))
    before = {path: path.read_bytes() for path in out.glob("runs/*/*/result.yaml")}
    assert run("small", "--resume", "--out", out) == 0
    assert "1 of 3 runs to do" in (said := capsys.readouterr().out)
    assert "made again: QRDQN on CartPole-v1, seed 100" in said
    assert {path: path.read_bytes() for path in before} == before
    assert (config.parents[1] / "qrdqn_CartPole-v1_2" / "result.yaml").is_file()
    assert len(rows(out)) == 3


@SLOW
def test_best_seeds_become_a_folder_of_agents(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sb_dqn.hub.package.plot_curve", lambda folder, picture, title: picture.write_bytes(b"curve"))
    out, collected = Path(shutil.copytree(done, tmp_path / "out")), tmp_path / "agents"
    for name, seed, returns in (("DQN_CartPole-v1", 101, (300.0,)), ("QRDQN_CartPole-v1", 101, (0.0,))):
        (trained,) = (out / "runs" / f"{name}_100").glob("*/")
        other = Path(shutil.copytree(trained, out / "runs" / f"{name}_{seed}" / trained.name))
        config = other / "config.yaml"
        config.write_text(config.read_text().replace("seed: 100", f"seed: {seed}"))
        write_result(other, Result(300, 1.0, returns))
    queue = out / "benchmark.yaml"
    queue.write_text(queue.read_text().replace("[100]", "[100, 101]"))
    assert DQN.from_pretrained(out / "runs" / "DQN_CartPole-v1_101").num_timesteps == 300  # needs no collection
    for _ in range(2):  # the second call replaces what the first made
        agents.main([str(out), str(collected)])
        assert "DQN on CartPole-v1, seed 101: 300.00, " in capsys.readouterr().out
    assert sorted(path.name for path in collected.iterdir()) == [
        "dqn-CartPole-v1",
        "dqn-short-poles",
        "qrdqn-CartPole-v1",
    ]
    assert yaml.safe_load((collected / "qrdqn-CartPole-v1" / "config.yaml").read_text())["settings"]["seed"] == 100
    assert "| Mean return | 300.00 " in (collected / "dqn-CartPole-v1" / "README.md").read_text(encoding="utf-8")
    assert type(QRDQN.from_pretrained(collected, "CartPole-v1")) is QRDQN
    pulled = pull_from_hub(collected / "dqn-CartPole-v1", tmp_path / "pulled")
    assert (pulled.algorithm, pulled.env_id) == ("DQN", "CartPole-v1")
    with pytest.raises(SystemExit, match=r"must be that of sb-dqn benchmark, with a benchmark.yaml"):
        agents.main([str(tmp_path), str(collected)])


@SLOW
def test_resume_does_all_that_was_asked_for_before(done: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done, tmp_path / "out"))
    shutil.rmtree(out / "runs" / "DQN_short-poles_100")
    assert run("small", "--seeds", 102, "--algos", "qrdqn", "--out", out) == 0
    assert [row["algorithm"] for row in rows(out)] == ["DQN", "QRDQN", "QRDQN"]
    assert run("small", "--resume", "--out", out) == 0
    assert sorted((row["algorithm"], row["seed"]) for row in rows(out)) == [
        ("DQN", "100"), ("DQN", "100"), ("QRDQN", "100"), ("QRDQN", "102"),
    ]  # fmt: skip


@SLOW
def test_chosen_environments_alone_are_trained(done: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(done, tmp_path / "out"))
    assert run("small", "--envs", "short poles", "--seeds", 101, "--out", out) == 0
    assert [(row["env"], row["seed"]) for row in rows(out) if row["seed"] != "100"] == [("short poles", "101")]


@SLOW
def test_peers_are_trained_by_their_own_settings_and_have_the_same_row(done: Path, tmp_path: Path) -> None:
    pytest.importorskip("sb3_contrib")
    out = Path(shutil.copytree(done, tmp_path / "out"))
    assert run("small", "--seeds", 1, "--algos", "sb3 DQN", "--out", out) == 0
    (row,) = (row for row in rows(out) if row["library"] == "sb3")
    assert (row["algorithm"], row["env"], row["steps"], row["episodes"]) == (
        "DQN",
        "CartPole-v1",
        "512",
        "2",
    )  # whole rollouts of 256
    assert row["version"] == metadata.version("stable_baselines3")
    assert row["command"] == (
        "sb-dqn peer sb3 DQN CartPole-v1 --timesteps 300 --seed 100 --eval-episodes 1 --final-episodes 2"
    )
    assert [len(curve["curve"].split()) for curve in rows(out, "curves.csv") if curve["library"] == "sb3"] == [
        512 // 30
    ]
    config = yaml.safe_load(next((out / "runs" / "sb3-DQN_CartPole-v1_100").glob("*/config.yaml")).read_text())
    assert config["settings"]["train_freq"] == 256
    assert run("small", "--resume", "--out", out) == 0
    assert len(rows(out)) == 4


@SLOW
def test_settings_of_a_task_are_also_those_of_peers(tmp_path: Path) -> None:
    pytest.importorskip("sb3_contrib")
    task = suite.Task("wide", "CartPole-v1", ["DQN"], {"sb3": ["DQN"]}, 300, settings={"gamma": 0.5})
    queue = {"wide": {agent: [100] for agent in suite.agents_of(task)}}
    ours, theirs = suite.make_entries(suite.Suite("gammas", "", "", [task]), tmp_path, queue)
    assert ours.expected["settings"]["gamma"] == theirs.expected["settings"]["gamma"] == 0.5
    assert ours.published_command[-2:] == theirs.published_command[-2:] == ["--set", "gamma=0.5"]
    peer.peer.main([*theirs.train[1:]], standalone_mode=False)
    assert theirs.finished
    assert theirs.run is not None
    assert theirs.run.settings["gamma"] == 0.5


class Predicts:
    """Stands for a model, of a peer if it has normalized inputs, and records what it predicts from."""

    def __init__(self, normalizes: Any = None) -> None:
        self.num_timesteps, self.inputs, self.normalizes = 0, list[Any](), normalizes

    def learn(self, steps: int, callback: Any) -> None:
        self.num_timesteps = steps

    def get_vec_normalize_env(self) -> Any:
        return self.normalizes

    def predict(self, observation: Any, **inputs: Any) -> Any:
        self.inputs.append(observation)
        return np.zeros((len(observation), 1), np.float32), None


@pytest.mark.parametrize("normalizes", [None, SimpleNamespace(normalize_obs=lambda obs: obs / 10)])
def test_final_episodes_of_peers_begin_in_the_states_of_our_own(normalizes: Any, tmp_path: Path) -> None:
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    test = env_util.make_vec_env("Pendulum-v1", 5, seed=peer.EVAL_SEED)
    config = {"n_timesteps": 20, "n_envs": 1, "env_id": "Pendulum-v1", "env_kwargs": {}}
    theirs, ours = Predicts(normalizes), Predicts()
    result = peer._train(theirs, test, tmp_path, config, 5, 7)
    with closing(open_env("Pendulum-v1", 5, {})) as stream:  # as at the end of `train`
        played = play(ours, stream, 7, bar=False)
    assert list(result.returns) == played.episodes.returns
    np.testing.assert_allclose(theirs.inputs, np.asarray(ours.inputs) / (1 if normalizes is None else 10), rtol=1e-6)
    assert not np.allclose(ours.inputs[0], test.reset())  # the starts of the evaluations during training


def test_settings_of_peers_are_keywords_of_their_classes() -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    sb3_contrib = pytest.importorskip("sb3_contrib")
    for algorithm, environments in peer._read("sb3").items():
        cls = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
        for env_id in environments:
            preset = peer.find_peer_preset("sb3", algorithm, env_id)
            assert preset is not None
            assert preset.settings.keys() <= inspect.signature(cls).parameters.keys(), (algorithm, env_id)


def test_peers_without_settings_of_their_own_have_those_of_our_presets() -> None:
    theirs = {
        "replay_buffer_class": "HerReplayBuffer",
        "replay_buffer_kwargs": {"n_sampled_goal": 4, "goal_selection_strategy": "future"},
    }
    for name, algorithm, env_id, own, other in (
        ("DQN", "DQN", "sb_dqn/BitFlip-v0", {"hindsight": theirs["replay_buffer_kwargs"]}, theirs),
        ("RecurrentPPO", "PPO", "sb_dqn/TMaze-v0", {"sequence_length": 16}, {}),
    ):
        ours, peers = find_preset(algorithm, env_id), peer.find_peer_preset("sb3", name, env_id)
        assert ours is not None
        assert peers is not None
        shared = {**ours.settings, **other}
        assert {**peers.settings, **own} == {**shared, **own}
        assert own.items() <= ours.settings.items()
        for fact in ("n_timesteps", "n_envs", "policy", "env_kwargs"):
            assert getattr(ours, fact) == getattr(peers, fact)


def test_peer_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(peer, "find_spec", lambda name: None)
    for words in (("--peers", "sb3"), ("--algos", "sb3 DQN")):
        assert run("small", *words) == 2
        assert "got none. Run pip install 'sb_dqn[sb3]'." in capsys.readouterr().err


def test_agents_of_peers_are_named_or_added_to_the_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "check_peer", lambda library: None)
    small = suite.read_suite("small")

    def wanted(algos: Sequence[str], peers: Sequence[str]) -> list[str]:
        return sorted(command._wanted(small, algos, ["CartPole-v1"], [100], peers)["CartPole-v1"])

    assert wanted([], []) == ["DQN", "QRDQN"]
    assert wanted([], ["sb3"]) == ["DQN", "QRDQN", "sb3 DQN"]
    assert wanted(["qrdqn"], ["sb3"]) == ["QRDQN"]
    assert wanted(["sb3 DQN"], []) == ["sb3 DQN"]
    assert wanted(["dqn", "sb3 DQN"], []) == ["DQN", "sb3 DQN"]


@FULL
@POSIX
def test_killed_twice_it_goes_on_without_a_run_lost_or_doubled(tmp_path: Path) -> None:
    words = ["benchmark", "small", "--seeds", "2", "--out", str(tmp_path / "out")]
    code = (
        "import sys, pathlib; from sb_dqn.cli.benchmark import runs as suite; from sb_dqn.cli.main import main; "
        f"suite.FOLDER = pathlib.Path({str(suite.FOLDER)!r}); sys.argv = ['sb-dqn', *{words}]; main()"
    )
    for finished in (1, 3, None):
        process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)
        while finished and len(list(tmp_path.rglob("result.yaml"))) < finished:
            time.sleep(0.05)
        if finished:
            process.send_signal(signal.SIGKILL)
        assert process.wait() == (-signal.SIGKILL if finished else 0)
        while finished and locked(tmp_path / "out"):
            time.sleep(0.05)
    found = [(row["algorithm"], row["env"], row["seed"]) for row in rows(tmp_path / "out")]
    assert len(found) == len(set(found)) == 6
    assert len(list(tmp_path.rglob("config.yaml"))) == 6


@FULL
@POSIX
def test_run_is_saved_and_stops_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    words = ["train", "DQN", "CartPole-v1", "-n", "100_000_000", "--no-progress", "--folder", str(tmp_path)]
    code = (
        "from pathlib import Path; from sb_dqn.runs.jobs import Job, run_jobs; "
        f"run_jobs([Job('long', Path({str(tmp_path)!r}), {tuple(words)!r})], 1, print)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    while not list(tmp_path.glob("*/monitor.csv")):
        time.sleep(0.05)
    process.kill()
    process.wait()
    (run,) = tmp_path.glob("*/")
    while locked(run):
        time.sleep(0.05)
    assert len(list(run.glob("checkpoints/*.zip"))) == 1


def locked(folder: Path) -> bool:
    from sb_dqn.runs.folder_lock import is_locked

    return bool(is_locked(folder))


def test_the_time_that_is_left_is_that_of_similar_runs(tmp_path: Path) -> None:
    entries = make_entries(
        read_suite("small"),
        tmp_path,
        {"CartPole-v1": {"DQN": [100, 101], "QRDQN": [100]}, "short poles": {"DQN": [100, 101]}},
    )
    assert seconds_left(entries, 1) is None
    first = entries[0]
    folder = first.home / "dqn_CartPole-v1_1"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(first.expected)))
    write_result(folder, Result(300, 6.0, (1.0,)))
    assert seconds_left(entries, 1) == pytest.approx(4 * 6.0)  # two on short poles, one of seed 101, one of QRDQN
    assert seconds_left(entries, 2) == pytest.approx(2 * 6.0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["smal"], "SUITE must be one of small, got 'smal'. Use one of them. Did you mean 'small'?"),
        (["small", "--algos", "PPO"], "--algos must be some of small: DQN, QRDQN, sb3 DQN; got PPO. Use these."),
        (["small", "--envs", "CartPole"], "got CartPole. Use these. Did you mean 'CartPole-v1'"),
        (["small", "--peers", "sb4"], "--peers must be sb3, got 'sb4'. Use one of them. Did you mean 'sb3'?"),
        (["small", "--seeds", 100, 7], "must be 100 or more, got 7, a seed to tune on. Use 107."),
        (["small", "--resume", "--seeds", 5], "--resume must be used alone, got --algos"),
        (["small", "--resume", "--out", "nowhere"], "got nowhere. Start one there without --resume."),
        (["small", "--algos", "QRDQN", "--envs", "short poles"], "environments (short poles: DQN), got QRDQN. Use one"),
        (["small", "--out", "docs"], "--out must be empty or the folder of a benchmark, got docs. Choose another one."),
    ],
)
def test_bad_input_is_one_line(words: list[object], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("format: 1\nsuite: small\nseeds: {}", "of format 2 and suite small"),
        ("format: 2\nsuite: classic", "of format 2 and suite small"),
        ("- 1", "a YAML mapping"),
    ],
)
def test_folder_of_another_version_or_suite_is_refused(
    tmp_path: Path, content: str, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "benchmark.yaml").write_text(content)
    assert run("small", "--out", tmp_path) == 2
    assert f"benchmark.yaml must be {wanted}, got" in capsys.readouterr().err
    assert (tmp_path / "benchmark.yaml").read_text() == content


@SLOW
@POSIX
def test_two_benchmarks_in_one_folder(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lock_folder(done, "free"):
        assert run("small", "--seeds", 1, "--out", done) == 2
    assert "Another `sb-dqn benchmark`, or one of its runs, is using" in capsys.readouterr().err


@SLOW
@POSIX
def test_full_disk_is_one_line_and_nothing_is_lost(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(done, tmp_path / "out"))
    before = (out / "results.csv").read_bytes()
    with files_limited_to(100):
        assert run("small", "--seeds", 2, "--out", out) == 2
    assert "Error: --out must be a writable folder with free space" in capsys.readouterr().err
    usage: Any = SimpleNamespace(free=command.SPARE - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert run("small", "--seeds", 2, "--out", out) == 2
    assert "MB free, got 255. Free some; --resume goes on." in capsys.readouterr().err
    assert (out / "results.csv").read_bytes() == before


def test_each_task_of_each_suite_can_be_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "FOLDER", ROOT / "sb_dqn" / "presets" / "suites")
    assert {"classic", "continuous", "minatar", "memory", "atari-small"} <= set(suite_names())
    for name in suite_names():
        read = read_suite(name)
        queue = {task.name: {agent: [100] for agent in agents_of(task)} for task in read.tasks}
        entries = make_entries(read, tmp_path, queue)
        assert {entry.task.name for entry in entries} == {task.name for task in read.tasks}
        for task in read.tasks:
            agents = [make_plan(each, task.env, preset=task.preset, seed=0).agent for each in task.algorithms]
            assert all(first != second for first, second in combinations(agents, 2)), task.name
        own = [entry for entry in entries if entry.library == "sb_dqn"]
        assert all(find_preset(entry.algorithm, entry.task.env, entry.task.preset) for entry in own), name
        assert len({entry.home for entry in entries}) == len(entries)


def test_the_same_agent_is_trained_once_under_the_name_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "FOLDER", ROOT / "sb_dqn" / "presets" / "suites")
    trained = {task.name: set(task.algorithms) for task in read_suite("classic").tasks}
    names = {"DQN", "DoubleDQN", "NStepDQN", "Rainbow", "DataEfficientRainbow"}
    assert trained["CartPole-v1"] & names == {"DQN", "Rainbow", "DataEfficientRainbow"}
    assert trained["Acrobot-v1"] & names == names
    assert trained["LunarLander-v3"] & names == {"DQN", "Rainbow"}
    assert {"DoubleDQN": "DQN", "NStepDQN": "DQN"}.items() <= read_suite("classic").tasks[0].twins.items()


def test_settings_of_a_task_are_those_of_its_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(suite, "FOLDER", ROOT / "sb_dqn" / "presets" / "suites")
    (entry,) = make_entries(read_suite("switches"), tmp_path, {"replay ratio 2, resets": {"DQN": [100]}})
    words = list(entry.train)
    assigned = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
    assert assigned == ["train_freq=1", "gradient_steps=2", 'resets={"every": 16000, "until": 32000}']
    assert entry.expected["settings"]["resets"] == {"every": 16_000, "until": 32_000}
    assert entry.expected["settings"]["gradient_steps"] == 2


def test_tasks_without_their_package_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(suite, "FOLDER", ROOT / "sb_dqn" / "presets" / "suites")
    monkeypatch.setitem(sys.modules, "popgym", None)
    registry = {name: spec for name, spec in gymnasium.registry.items() if not name.startswith("popgym-")}
    monkeypatch.setattr(gymnasium, "registry", registry)
    entries = make_entries(
        memory := read_suite("memory"), tmp_path, {task.name: {"R2D2": [100]} for task in memory.tasks}
    )
    left = command._without_missing_packages(entries)
    assert [entry.task.name for entry in left] == ["T-maze 50", "sb_dqn/CartPoleNoVelocity-v0"]
    assert "left out: popgym-CountRecallEasy-v0, since popgym must be installed" in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match=r'pip install "sb_dqn\[popgym\]"'):
        command._without_missing_packages(entries[2:])


@SLOW
def test_seeds_of_tuning_and_of_published_results_are_apart() -> None:
    """Presets name the seeds that they were tuned on; scripts have defaults on one side."""
    assert FIRST_SEED == 100
    for preset in list_presets():
        assert "seed" not in preset.settings
        tuned = re.findall(r"(?:tuned|chosen)[^,;.]*, on seeds (\d+) to (\d+)", preset.source)
        assert all(int(seed) < FIRST_SEED for pair in tuned for seed in pair), preset.name
    defaults = {
        path.name: [int(seed) for seed in re.findall(r"\d+", found[1])]
        for path in (ROOT / "scripts" / "benchmarks").glob("*.py")
        for found in re.finditer(r'"--seeds".*default=\[([\d, ]+)\]', path.read_text(encoding="utf-8"))
    }
    assert "precision.py" in defaults
    for name, seeds in defaults.items():
        assert len({seed < FIRST_SEED for seed in seeds}) == 1, name
