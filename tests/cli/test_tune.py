"""`sb-dqn tune` through its entry point, on trials of a few hundred steps."""

from __future__ import annotations

import csv
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sb_dqn.algorithms import registry
from sb_dqn.cli.tune import jobs, training
from sb_dqn.cli.tune.folder import StudySetup
from sb_dqn.cli.tune.spaces import default_space, keep_schedules, read_space, sample, start_of, without_fixed
from sb_dqn.cli.tune.study import draw_study, finished_trials, import_optuna, open_study
from sb_dqn.errors import ConfigurationError
from sb_dqn.plotting import picture
from sb_dqn.presets import find_preset
from sb_dqn.runs import jobs as job_runner
from sb_dqn.runs.settings_syntax import constructor_defaults
from tests.cli.fork_server import ForkServer
from tests.command import call, run_main
from tests.marks import SLOW

pytest.importorskip("optuna")
SMALL = ["--timesteps", "300", "--seed", "3", "--evaluations", "3", "--eval-episodes", "1", "--final-episodes", "2",
         "--finalists", "0", "--device", "cpu", "-o", "learning_starts=50", "-o", "gradient_steps=1", "-o", "n_steps=1"]  # fmt: skip
SPACE = """
learning_rate: {low: 1e-4, high: 1e-2, log: true}
batch_size: {low: 8, high: 32}
policy_kwargs: {net_arch: [[8], [16, 16]]}
"""


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "trials.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


def score_by_learning_rate(setup: StudySetup, number: int, sampled: Any, device: Any, report: Any) -> training.Outcome:
    """Stands for a training: the first trial fails, and the score grows with the learning rate."""
    if number == 0:
        return training.Outcome(error="ValueError: no")
    score = -abs(sampled["learning_rate"] - 0.005)
    return training.Outcome(None if any(report(step, score) for step in (1, 2, 3)) else score)


@SLOW
def test_tune_trains_extends_and_writes_a_preset_that_train_takes(space: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    command = ["dqn", "CartPole-v1", *SMALL, "--space", space, "--out", out]
    done = call("tune", *command, "--trials", 1)
    assert done.exit_code == 0, done.output
    assert "1 of 1 trials to do, 300 steps each" in done.output
    done = call("tune", "--resume", out, "--trials", 2)
    assert "1 of 2 trials to do" in done.output
    first, second = rows(out)
    assert (first["state"], second["state"]) == ("complete", "complete")
    assert float(first["learning_rate"]) == 0.001  # begins with the preset, as far as it lies in the space
    assert first["learning_rate"] != second["learning_rate"]
    assert (out / "study.png").read_bytes().startswith(b"\x89PNG")

    best = max((first, second), key=lambda row: float(row["mean_return"]))
    preset = find_preset("DQN", "CartPole-v1", str(out / "best.yaml"))
    assert preset is not None
    assert preset.settings["learning_rate"] == f"linear {float(best['learning_rate'])!r}"
    assert preset.settings["policy_kwargs"]["net_arch"] == yaml.safe_load(best["policy_kwargs.net_arch"])
    assert (preset.n_timesteps, preset.settings["n_steps"]) == (300, 1)
    assert not {"seed", "device"} & preset.settings.keys()
    words = [
        "train",
        "dqn",
        "CartPole-v1",
        "--preset",
        out / "best.yaml",
        "--folder",
        tmp_path / "runs",
        "--no-progress",
    ]
    trained = call(*words, "--final-episodes", 0, "--eval-freq", 0)
    assert trained.exit_code == 0, trained.output
    assert "300 steps" in trained.output

    done = call("tune", *command, "--timesteps", 400)
    assert done.exit_code == 2
    assert "timesteps must be 300 as in the study" in done.output


@SLOW
@pytest.mark.parametrize(("n_trials", "panels"), [(0, 1), (1, 1), (3, 1), (20, 2)])
def test_the_picture_of_a_study_has_no_empty_panel(
    n_trials: int, panels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = import_optuna().create_study(direction="maximize")
    study.optimize(lambda trial: trial.suggest_float("gamma", 0.9, 0.99), n_trials)
    figures: list[Any] = []
    monkeypatch.setattr(picture, "save_figure", lambda figure, path: figures.append(figure))
    draw_study(tmp_path, "DQN on it", study)
    history, *bars = figures[0].axes
    assert 1 + len(bars) == panels
    assert all(axes.patches for axes in bars)
    assert history.has_data() or not n_trials
    figures[0].canvas.draw()
    assert all(tick.get_text().lstrip("−").isdigit() for tick in history.get_xticklabels())


@SLOW
def test_errors_are_kept_and_the_sampler_improves(space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "run_trial", score_by_learning_rate)
    out = tmp_path / "study"
    done = call("tune", "dqn", "CartPole-v1", *SMALL, "--space", space, "--out", out, "--trials", 25)
    assert done.exit_code == 0, done.output
    assert "trial 0 failed: ValueError: no" in done.output
    ended = rows(out)
    assert (len(ended), ended[0]["state"], ended[0]["error"]) == (25, "fail", "ValueError: no")
    assert {row["state"] for row in ended} == {"fail", "complete", "pruned"}
    best = find_preset("DQN", "CartPole-v1", str(out / "best.yaml"))
    assert best is not None
    assert float(best.settings["learning_rate"].split()[1]) == pytest.approx(0.005, abs=0.001)


@SLOW
def test_ctrl_c_and_kill_keep_the_finished_trials(space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def interrupted(setup: StudySetup, number: int, sampled: Any, device: Any, report: Any) -> training.Outcome:
        calls.append(sampled)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return training.Outcome(float(number))

    monkeypatch.setattr(jobs, "run_trial", interrupted)
    command = ["dqn", "CartPole-v1", *SMALL, "--space", space, "--out", tmp_path / "study", "--trials", 4]
    stopped = call("tune", *command)
    assert stopped.exit_code == 130
    assert "2 finished trials are saved" in stopped.output
    done = call("tune", *command)
    assert "2 of 4 trials to do" in done.output
    assert calls[3] == calls[2]  # the interrupted trial is repeated
    assert len({str(sampled) for sampled in calls}) == 4  # and the sampler does not repeat itself
    assert [row["mean_return"] for row in rows(tmp_path / "study")] == ["0.0", "1.0", "3.0", "4.0"]


def lucky_once(setup: StudySetup, number: int, sampled: Any, device: Any, report: Any) -> training.Outcome:
    """Stands for a training: trial 2 is lucky, and the score of the others grows with the learning rate."""
    return training.Outcome(1_000.0 if number == 2 else 100 * sampled["learning_rate"] + number / 1_000)


@SLOW
def test_the_best_settings_are_compared_with_other_seeds(
    space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "run_trial", lucky_once)
    out = tmp_path / "study"
    command = [
        "dqn",
        "CartPole-v1",
        *SMALL,
        "--space",
        space,
        "--out",
        out,
        "--pruner",
        "none",
    ]
    done = call("tune", *command, "--finalists", 3, "--finalist-seeds", 2, "--trials", 6)
    assert done.exit_code == 0, done.output
    found = rows(out)
    assert (len(found), [row["repeats"] for row in found[:6]]) == (12, [""] * 6)
    ranked = sorted(found[:6], key=lambda row: -float(row["mean_return"]))
    assert ranked[0]["number"] == "2"
    assert sorted(row["repeats"] for row in found[6:]) == sorted(2 * [row["number"] for row in ranked[:3]])
    for row in found[6:]:  # the same settings
        assert row["learning_rate"] == found[int(row["repeats"])]["learning_rate"]
    highest = max(ranked[:3], key=lambda row: float(row["learning_rate"]))
    assert f"6 trials, 0 pruned, 0 failed; best: trial {highest['number']}, mean return" in done.output
    best = yaml.safe_load((out / "best.yaml").read_text())["presets"]["CartPole-v1"]
    repeats = [float(row["mean_return"]) for row in found if row["repeats"] == highest["number"]]
    assert f"mean return {sum(repeats) / 2:.2f} of 2 greedy episodes, mean over other seeds (2)" in best["result"]
    again = call("tune", *command, "--finalists", 3, "--finalist-seeds", 2, "--trials", 6)
    assert "0 of 6 trials to do" in again.output
    assert len(rows(out)) == 12


DYING = """
import os

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Dying(CartPoleEnv):
    def step(self, action):
        os._exit(9)


gymnasium.register("Dying-v0", Dying)
"""


@pytest.fixture
def forked_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forks the worker processes from one that has imported the package, and adds a module with an environment."""
    (tmp_path / "dying.py").write_text(DYING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)]))
    monkeypatch.syspath_prepend(tmp_path)
    with ForkServer() as server:
        monkeypatch.setattr(job_runner, "subprocess", SimpleNamespace(Popen=server, PIPE=None, STDOUT=None))
        yield


@SLOW
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.usefixtures("forked_workers")
def test_processes_train_the_trials_of_a_study_and_repeat_the_best(space: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    command = ["dqn", "CartPole-v1", *SMALL, "--space", space, "--out", out, "--jobs", 2, "--pruner", "none"]
    done = call("tune", *command, "--trials", 3, "--finalists", 1, "--finalist-seeds", 2)
    assert done.exit_code == 0, done.output
    found = rows(out)
    assert [row["state"] for row in found] == ["complete"] * 5
    best = max(found[:3], key=lambda row: float(row["mean_return"]))
    assert [row["repeats"] for row in found] == ["", "", "", best["number"], best["number"]]
    assert len({row["learning_rate"] for row in found}) == 3
    assert done.output.count(f", settings of trial {best['number']}") == 2
    assert signal.getsignal(signal.SIGTERM) != signal.default_int_handler
    assert "0 of 3 trials to do" in call("tune", "--resume", out, "--jobs", 2).output
    assert len(rows(out)) == 5


@SLOW
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
@pytest.mark.usefixtures("forked_workers")
def test_a_trial_whose_process_ends_has_failed_and_the_study_goes_on(space: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    done = call("tune", "dqn", "dying:Dying-v0", *SMALL, "--space", space, "--out", out, "--trials", 3, "--jobs", 2)
    assert done.exit_code == 1
    assert "no trial was completed (3 failed)" in done.stderr
    assert [row["state"] for row in rows(out)] == ["fail"] * 3
    assert all("the process of the trial ended: exit status 9 (full log: " in row["error"] for row in rows(out))


@SLOW
@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
def test_storages_samplers_and_pruners(sampler: str, tmp_path: Path) -> None:
    space = {"gamma": {"low": 0.9, "high": 0.99}, "tau": {"low": 0.1, "high": 0.9}}
    pruner = {"tpe": "hyperband", "random": "none", "cmaes": "median"}[sampler]
    setup = StudySetup(
        "s", "DQN", "X", seed=0, sampler=sampler, pruner=pruner, storage=str(tmp_path / "s.log"), space=space
    )
    samples = []
    jobs_done: list[int] = []
    for n_trials in (4, 6):
        study = open_study(tmp_path, setup, [])
        while len(finished_trials(study)) < n_trials:
            trial = study.ask()
            samples.append(sample(trial, space)["gamma"])
            pruned = jobs.report(trial, 1, samples[-1])
            jobs._tell(study, trial, training.Outcome(None if pruned else samples[-1]))
            jobs_done.append(trial.number)
    assert jobs_done == list(range(6))
    assert len(set(samples)) == 6


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_algorithm_has_a_space_of_its_keywords(name: str) -> None:
    space = default_space(name)
    assert {key.partition(".")[0] for key in space} <= constructor_defaults(registry.algorithm_class(name)).keys()
    assert "learning_rate" in space


def test_spaces(tmp_path: Path) -> None:
    path = tmp_path / "space.yaml"
    path.write_text("QRDQN: {like: dqn, gamma: null, n_quantiles: [1, 2]}")
    space = read_space(path, "QRDQN")
    assert space["n_quantiles"] == [1, 2]
    assert "gamma" not in space
    assert space["batch_size"] == default_space("dqn")["batch_size"]
    fixed = without_fixed(space, {"batch_size": 3, "policy_kwargs": {"layer_norm": True}})
    assert set(space) - set(fixed) == {"batch_size"}
    assert "policy_kwargs.net_arch" not in without_fixed(space, {"policy_kwargs": {"net_arch": [4]}})
    start = start_of(
        space, {"learning_rate": "linear 1e-3", "policy_kwargs": {"net_arch": [64, 64]}}, {"batch_size": 7}
    )
    assert start == {"learning_rate": 0.001, "policy_kwargs.net_arch": "[64, 64]"}
    assert keep_schedules({"learning_rate": 0.5, "tau": 0.1}, {"learning_rate": "linear 1"}) == {
        "learning_rate": "linear 0.5",
        "tau": 0.1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gamma: 0.9", "gamma in .* must be a list of choices or a range"),
        ("gamma: {low: 0.9, high: 0.1}", "must be a list of choices or a range"),
        ("gamma: {low: 0, high: 1, log: true}", "must be a list of choices or a range"),
        ("- gamma", "must be a mapping"),
        ("{}", "must have a setting"),
        ("a: [", "must be a readable YAML file"),
        ("a: &a [*a]", "must be a readable YAML file, got .*an alias that contains itself"),
        ("dqn:", "dqn in .*space.yaml must be a mapping of settings to choices and ranges, got None"),
        ("dqn: {like: foo}", "like of dqn in .* must be another algorithm .*, got 'foo'"),
        ("dqn: {like: dqn}", "like of dqn in .* must be another algorithm .*, got 'dqn'"),
        ("DQN: {like: iqn}", "like of iqn in .* must be another algorithm .*, got 'dqn'"),
    ],
)
def test_wrong_spaces_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "space.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        read_space(tmp_path / "space.yaml", "DQN")


def test_wrong_input_is_one_line(
    space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("typo.yaml").write_text("gama: [0.9, 0.99]")
    small = ["--trials", 1, *SMALL, "--space", space]
    for arguments, message in (
        (["dqnn", "CartPole-v1"], "Did you mean 'dqn'"),
        (["dqn", "CartPol-v1", *small], "Did you mean 'CartPole-v1'"),
        (["dqn", "Pendulum-v1", *small], "action"),
        (["dqn", "CartPole-v1", "--space", "missing.yaml"], "No such file"),
        (["dqn", "CartPole-v1", "--space", "typo.yaml"], "Did you mean 'gamma'"),
        (["dqn", "CartPole-v1", *small, "--storage", "nosql://x"], "storage must be a database URL"),
        (["dqn", "CartPole-v1", "--preset", "space.yaml"], "must have `presets:`"),
        (["--resume", "nowhere"], "must be the folder of a study"),
        (["dqn"], "ALGO and ENV must be set"),
    ):
        assert run_main("tune", *arguments) == 2, arguments
        (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")]
        assert message in line
    assert not list(tmp_path.rglob("study.yaml"))  # a wrong storage is not kept
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigurationError, match=r'Run pip install "sb_dqn\[tune\]"'):
        call("tune", "dqn", "CartPole-v1")


SECRET = "GEHEIM"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@localhost:1/db",
        f"postgresql://u:a@{SECRET}:{SECRET}/{SECRET}@localhost/db",
        f"postgresql://localhost:1/db?user=u&password={SECRET}&sslpassword={SECRET}",
        f"nosql://u:{SECRET}@localhost",
    ],
)
def test_password_of_a_storage_is_not_printed(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("tune", "dqn", "CartPole-v1", *SMALL, "--out", tmp_path, "--storage", url) == 2
    printed = capsys.readouterr()
    assert "storage must be a database URL" in printed.err
    assert "***" in printed.err
    assert SECRET not in printed.err + printed.out


@SLOW
def test_password_of_a_storage_is_in_no_file_and_needed_to_continue(
    space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite ignores a password."""
    monkeypatch.setattr(jobs, "run_trial", score_by_learning_rate)
    out, url = tmp_path / "study", f"sqlite:///file:{tmp_path / 'db'}?uri=true&password={SECRET}"
    words = ["dqn", "CartPole-v1", *SMALL, "--space", space, "--out", out]
    assert call("tune", *words, "--trials", 2, "--storage", url).exit_code == 0
    assert yaml.safe_load((out / "study.yaml").read_text())["setup"]["storage"] == url.replace(SECRET, "***")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]

    refused = call("tune", "--resume", out, "--trials", 3)
    assert refused.exit_code == 2
    assert "--storage must be" in refused.output
    assert "SB_DQN_STORAGE" in refused.output
    assert "must be continued with its own" in call("tune", "--resume", out, "--storage", "sqlite:///other.db").output
    assert "1 of 3 trials to do" in call("tune", "--resume", out, "--trials", 3, "--storage", url).output
    assert "1 of 4 trials to do" in call("tune", *words, "--trials", 4, "--storage", url).output
    monkeypatch.setenv("SB_DQN_STORAGE", url)
    assert "1 of 5 trials to do" in call("tune", "--resume", out, "--trials", 5).output
    assert len(rows(out)) == 5


@SLOW
def test_study_of_an_earlier_version_loses_its_password(
    space: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "run_trial", score_by_learning_rate)
    out, url = tmp_path / "study", f"sqlite:///file:{tmp_path / 'db'}?uri=true&password={SECRET}"
    call("tune", "dqn", "CartPole-v1", *SMALL, "--space", space, "--out", out, "--trials", 2, "--storage", url)
    written = (out / "study.yaml").read_text()
    (out / "study.yaml").write_text(written.replace("***", SECRET))
    assert "1 of 3 trials to do" in call("tune", "--resume", out, "--trials", 3).output
    assert SECRET not in (out / "study.yaml").read_text()
