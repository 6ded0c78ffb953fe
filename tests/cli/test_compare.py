"""`sb-dqn compare` through its entry point, on runs of a few hundred steps."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
import yaml

from sb_dqn.checkpoint import model_info
from sb_dqn.cli.compare.command import _make_setup, _stop_message
from sb_dqn.runs import jobs as job_runner
from sb_dqn.runs import score as module
from sb_dqn.runs.comparison import Setup, read_comparison
from sb_dqn.runs.folder import FinalEvaluation, read_config, read_result, write_result
from sb_dqn.runs.folder import Result as RunResult
from sb_dqn.runs.folder_lock import lock_output
from sb_dqn.runs.jobs import Failure, Job, run_jobs
from sb_dqn.runs.run import Run
from sb_dqn.runs.score import Score
from tests.cli.fork_server import ForkServer
from tests.command import call, run_main
from tests.marks import FULL, SLOW, a_few

ROOT = Path(__file__).parents[2]
SMALL = ["--env", "CartPole-v1", "--seeds", "1", "--steps", "400", "--eval-episodes", "2", "-o", "learning_starts=50",
         "-o", "policy_kwargs={net_arch: [16]}", "-o", "gradient_steps=1", "--device", "cpu"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def forked_workers() -> Iterator[None]:
    """Forks the worker processes; they import the package from the repository root.

    The processes of `test_ctrl_c_saves_and_the_same_command_resumes` are those of a user.
    """
    os.chdir(ROOT)
    with ForkServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_runner, "subprocess", SimpleNamespace(Popen=server, PIPE=None, STDOUT=None))
        yield


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Returns the folder and the output of a finished comparison."""
    out = tmp_path_factory.mktemp("compared") / "out"
    done = call("compare", "dqn", "DoubleDQN", *SMALL, "-o", "DoubleDQN.gamma=0.5", "--out", out, "--jobs", 2)
    assert done.exit_code == 0, done.output
    return out, done.output


def run_of(out: Path, algorithm: str, seed: int = 0) -> Path:
    return out / algorithm / f"seed_{seed}" / f"{algorithm.lower()}_CartPole-v1_1"


@SLOW
def test_compare_trains_draws_and_tabulates(compared: tuple[Path, str]) -> None:
    out, output = compared
    assert "2 of 2 runs to do, 2 at a time" in output
    assert re.search(r"2 runs, 2 at a time, took \d+ s; in total \d+ s of training and \d+ s of final", output)
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    table = (out / "comparison.md").read_text()
    assert table.splitlines()[0] == "| CartPole-v1 | mean | IQM | seeds | env steps | wall-clock |"
    assert table in output
    for algorithm in ("DQN", "DoubleDQN"):
        result = read_result(run_of(out, algorithm))
        assert (result.steps, len(result.returns)) == (400, 20)
        assert result.seconds > 0
        assert f"| {algorithm} | {sum(result.returns) / 20:.1f} |" in table


def test_settings_for_all_algorithms_and_for_one(compared: tuple[Path, str]) -> None:
    configs = [yaml.safe_load((run_of(compared[0], name) / "config.yaml").read_text()) for name in ("DQN", "DoubleDQN")]
    assert [config["settings"]["gamma"] for config in configs] == [0.99, 0.5]
    assert {config["settings"]["learning_starts"] for config in configs} == {50}
    assert {config["preset"]["name"] for config in configs} == {"CartPole-v1"}


@SLOW
def test_finished_runs_are_not_repeated_and_algorithms_can_be_added(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("model.zip")}
    again = call("compare", "NStepDQN", "DQN", *SMALL, "--out", out)
    assert "1 of 2 runs to do" in again.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    table = (out / "comparison.md").read_text()
    assert [line.split()[1] for line in table.splitlines()[2:5]] == ["DQN", "DoubleDQN", "NStepDQN"]


@SLOW
def test_table_does_not_depend_on_other_packages(
    compared: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval of 0, 1 and 11 is drawn by NumPy, although there is a package `rliable` here that cannot be imported."""
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    for seed, score in enumerate([0.0, 1.0, 11.0]):
        if seed:
            shutil.copytree(run_of(out, "DQN"), run_of(out, "DQN", seed))
        write_result(run_of(out, "DQN", seed), RunResult(400, 9.0, (score,)))
    content = read_comparison(out)
    (out / "comparison.yaml").write_text(yaml.safe_dump({**content, "seeds": {"DQN": 3, "DoubleDQN": 0}}))
    (tmp_path / "rliable").mkdir()
    for name in ("__init__", "library", "metrics"):
        (tmp_path / "rliable" / f"{name}.py").write_text("raise TypeError('of another package')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "rliable"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    done = call("compare", out)
    assert done.exit_code == 0, done.output
    assert "| DQN | 4.0 ± 6.1 | 4.0 [0.0, 11.0] | 3 | 400 | 9 s |" in (out / "comparison.md").read_text()


@SLOW
def test_folder_is_drawn_again_without_training(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    write_result(run_of(out, "DQN"), RunResult(400, 9.0, (7.0, 8.0)))
    write_result(run_of(out, "DoubleDQN"), RunResult(200, 9.0))
    (out / "comparison.png").unlink()
    done = call("compare", out)
    assert done.exit_code == 0
    assert "| DQN | 7.5 | 7.5 | 1 | 400 | 9 s |" in done.output
    assert "not finished and left out: DoubleDQN seed 0" in done.output
    assert (out / "comparison.png").is_file()


@SLOW
def test_missing_runs_are_listed_in_the_table_file(
    compared: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    write_result(run_of(out, "DQN"), RunResult(900, 9.0, (7.0,)))
    assert "not finished" not in (out / "comparison.md").read_text()

    def failing(jobs: list[Job], *_: object) -> list[Failure]:
        return [Failure(job, "no more memory") for job in jobs]

    monkeypatch.setattr("sb_dqn.runs.jobs.run_jobs", failing)
    arguments = [word if word != "1" else "2" for word in SMALL]
    done = call("compare", "DoubleDQN", *arguments, "-o", "DoubleDQN.gamma=0.5", "--out", out)
    assert done.exit_code == 1
    notes = (out / "comparison.md").read_text().split("\n\n")[-1].splitlines()
    assert notes[0].startswith("- DQN seed 0 left out: it has 900 env steps")
    assert notes[1:] == ["- DoubleDQN seed 1 failed: no more memory"]
    call("compare", out)
    assert (out / "comparison.md").read_text().endswith("\n- not finished and left out: DoubleDQN seed 1\n")


@FULL
def test_seeds_are_stored_per_algorithm(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    assert read_comparison(out)["seeds"] == {"DQN": 1, "DoubleDQN": 1}
    for seed in (1, 2):  # looks finished
        shutil.copytree(out / "DQN/seed_0", out / f"DQN/seed_{seed}")
    done = call("compare", "DQN", *[word if word != "1" else "3" for word in SMALL], "--out", out)
    assert "3 seeds of 400 steps, 0 of 3 runs to do" in done.output
    assert "left out" not in done.output
    assert "IQM [95 % interval]" in done.output
    assert read_comparison(out)["seeds"] == {"DQN": 3, "DoubleDQN": 1}
    written = (out / "comparison.yaml").read_text()
    (out / "comparison.yaml").write_text(written.replace("seeds: {DQN: 3, DoubleDQN: 1}", "seeds: 2"))
    assert read_comparison(out)["seeds"] == {"DQN": 2, "DoubleDQN": 2}  # as earlier versions wrote it


def test_timesteps_is_an_alias_of_steps(compared: tuple[Path, str]) -> None:
    done = call(
        "compare", "DQN", *[word if word != "--steps" else "--timesteps" for word in SMALL], "--out", compared[0]
    )
    assert done.exit_code == 0, done.output
    assert "0 of 1 runs to do" in done.output  # the runs of 400 steps


def test_run_folder_is_rejected_as_comparison_folder(compared: tuple[Path, str]) -> None:
    before = sorted(run_of(compared[0], "DQN").iterdir())
    rejected = call("compare", "DQN", *SMALL, "--out", run_of(compared[0], "DQN"))
    assert rejected.exit_code == 2
    assert "the folder of a single run" in " ".join(rejected.output.split())
    assert sorted(run_of(compared[0], "DQN").iterdir()) == before


def test_plot_takes_the_folder_of_a_comparison(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    drawn = call("plot", out)
    assert drawn.exit_code == 0, drawn.output
    started = {label: read_config(run_of(out, label))["started"] for label in ("DQN", "DoubleDQN")}  # at the same time
    lines = [rf"{label}: IQM [\d.]+ after 400 env steps\n" for label in sorted(started, key=lambda each: started[each])]
    assert re.match("".join(lines), drawn.output)
    assert (out / "plot_curves.png").is_file()


def test_stop_message_depends_on_saved_runs(compared: tuple[Path, str], tmp_path: Path) -> None:
    waiting = Job("DQN seed 0", tmp_path, ("train",))
    assert _stop_message([waiting]).startswith("stopped before any run was saved")
    assert "the runs are saved" in _stop_message([waiting, Job("DQN seed 0", compared[0] / "DQN/seed_0", ("train",))])


@pytest.mark.parametrize(("seeds", "title"), [(1, "it: one seed, no interval"), (2, "it: mean and 95 % bootstrap")])
def test_plot_title_of_one_seed_has_no_interval(
    compared: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int, title: str
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(module, "save_figure", lambda figure, path: figures.append(figure))
    score = Score("DQN", [Run(run_of(compared[0], "DQN"))] * seeds)
    module.draw_seeds(tmp_path / "a.png", "it", [score], "2 greedy episodes")
    assert figures[0].axes[0].get_title(loc="left").startswith(title)


def test_redraw_rejects_options(compared: tuple[Path, str]) -> None:
    for option, value in {"--seeds": 2, "--jobs": 1, "-n": 100}.items():
        rejected = call("compare", compared[0], option, value)
        assert rejected.exit_code == 2
        message = " ".join(rejected.output.split())
        assert f"{'--steps' if option == '-n' else option} must be used with --env, got no --env. Remove it" in message


def test_resume_of_a_run_without_evaluation_only_evaluates(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    expected = read_result(run_of(out, "DQN")).returns
    write_result(run_of(out, "DQN"), RunResult(400, 9.0))
    done = call("resume", run_of(out, "DQN"))
    assert "was stopped before its evaluation" in done.output
    again = read_result(run_of(out, "DQN"))
    assert (again.steps, again.seconds, again.returns) == (400, 9.0, expected)


@SLOW
def test_unfinished_final_episodes_are_reported(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    write_result(run_of(out, "DQN"), RunResult(400, 9.0, (7.0, 8.0), FinalEvaluation(20, 500, 1.0)))
    write_result(run_of(out, "DoubleDQN"), RunResult(400, 9.0, (), FinalEvaluation(20, 500, 1.0)))
    output = call("compare", out).output
    assert "DQN seed 0: 2 of 20 final episodes finished" in output
    assert "DoubleDQN seed 0 left out: no final episode finished" in output
    assert "| DoubleDQN |" not in output
    assert "2 of 20 final episodes finished" in (out / "comparison.md").read_text()


@SLOW
def test_folder_of_earlier_versions_has_twenty_final_episodes(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    content = read_comparison(out)
    for name in ("final_episodes", "final_steps"):
        content["setup"].pop(name)
    (out / "comparison.yaml").write_text(yaml.safe_dump(content))
    arguments = ["compare", "dqn", "DoubleDQN", *SMALL, "-o", "DoubleDQN.gamma=0.5", "--out", str(out)]
    assert "0 of 2 runs to do" in call(*arguments).output
    rejected = " ".join(call(*arguments, "--final-episodes", 3).output.split())
    assert "final_episodes must be 20 as in the comparison" in rejected
    assert "got 3. Use --final-episodes 20" in rejected


@SLOW
def test_output_reports_times_and_warnings(tmp_path: Path) -> None:
    done = call("compare", "dqn", *SMALL, "-o", "train_freq=4", "--final-episodes", 1, "--out", tmp_path / "out",
                "--set", "dqn.learning_starts=900")  # fmt: skip
    assert "DQN seed 0: UserWarning: learn(total_timesteps=400) will make no update" in done.output
    match = re.search(
        r"1 run took (\d+) s: (\d+) s of training and (\d+) s of final episodes, and (\d+) s to start", done.output
    )
    assert match is not None, done.output
    whole, *parts = (int(number) for number in match.groups())
    assert abs(whole - sum(parts)) <= 2  # rounded


@FULL
def test_ctrl_c_saves_and_the_same_command_resumes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["compare", "DQN", *SMALL, "-o", "train_freq=64", "--eval-freq", "0", "--out", str(out)]
    arguments[arguments.index("400")] = "20000"
    process = subprocess.Popen(
        [sys.executable, "-m", "sb_dqn.cli.main", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        # background jobs of a shell ignore SIGINT, and so would their children
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    episodes = run_of(out, "DQN") / "monitor.csv"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if episodes.is_file() and episodes.stat().st_size > 200:  # a few episodes, so training has started
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "the same command resumes them" in output
    stopped = read_result(run_of(out, "DQN"))
    assert 0 < stopped.steps < 20_000
    assert stopped.returns == ()
    assert (run_of(out, "DQN") / "checkpoints" / f"{stopped.steps}_steps.zip").is_file()

    done = call(*arguments)
    assert done.exit_code == 0, done.output
    assert f"resuming {run_of(out, 'DQN')} at step {stopped.steps:,}" in (out / "DQN/seed_0/log.txt").read_text()
    assert model_info(run_of(out, "DQN") / "model.zip")["state"]["counters"]["num_timesteps"] == 20_000
    assert read_result(run_of(out, "DQN")).seconds > stopped.seconds
    assert [path.name for path in (out / "DQN/seed_0").iterdir() if path.is_dir()] == ["dqn_CartPole-v1_1"]


@SLOW
def test_failed_run_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    good = Setup("CartPole-v1", 60, eval_freq=0).command(
        "DQN", ["policy_kwargs={net_arch: [8]}"], 0, tmp_path / "good", "cpu"
    )
    jobs = [
        Job("bad", tmp_path / "bad", ("train", "DQN", "CartPole-v1", "--set", "gamma=3", "--folder", str(tmp_path))),
        Job("good", tmp_path / "good", good),
    ]
    done: list[str] = []
    polled: set[str] = set()
    (failure,) = run_jobs(
        jobs, 2, lambda job: done.append(job.label), lambda running: polled.update(job.label for job in running)
    )
    assert polled == {"bad", "good"}
    assert failure.job.label == "bad"
    assert "gamma must be a number" in failure.reason
    assert done == ["good"]


@SLOW
@pytest.mark.parametrize("free", [True, False])
def test_next_process_imports_ahead_if_a_core_is_free(
    free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports took five of the eight seconds of a short run."""
    monkeypatch.setattr(job_runner, "available_cores", lambda: 2 if free else 1)
    events: list[str] = []
    original_start, original_send = job_runner._start, job_runner._send_start
    labels: dict[Any, str] = {}

    def start(job: Job, n_parallel: int) -> Any:
        process = original_start(job, n_parallel)
        labels[process] = job.label
        events.append(f"start {job.label}")
        return process

    def send_start(process: Any) -> None:
        if not process.stdin.closed:
            events.append(f"go {labels[process]}")
        original_send(process)

    monkeypatch.setattr(job_runner, "_start", start)
    monkeypatch.setattr(job_runner, "_send_start", send_start)
    settings = ["policy_kwargs={net_arch: [8]}", "learning_starts=8"]
    setup = Setup("CartPole-v1", 60, eval_freq=0, final_episodes=1)
    homes = {name: tmp_path / name for name in ("a", "b")}
    jobs = [Job(name, home, setup.command("DQN", settings, 0, home, "cpu")) for name, home in homes.items()]
    assert run_jobs(jobs, 1, lambda job: events.append(f"done {job.label}")) == []
    ahead = ["start a", "start b", "go a", "done a", "go b", "done b"]
    assert events == (ahead if free else ["start a", "go a", "done a", "start b", "go b", "done b"])


def test_process_without_start_signal_does_nothing(tmp_path: Path) -> None:
    command = Setup("CartPole-v1", 60, eval_freq=0).command("DQN", [], 0, tmp_path, "cpu")
    process = job_runner._start(Job("never", tmp_path, command), 1)
    assert process.stdin is not None
    process.stdin.close()  # as if the comparison was killed
    assert process.wait(timeout=120) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_one_comparison_at_a_time_in_a_folder(tmp_path: Path) -> None:
    with (
        lock_output(tmp_path, "compare"),
        pytest.raises(click.UsageError, match="is using"),
        lock_output(tmp_path, "compare"),
    ):
        pass
    with lock_output(tmp_path, "compare"):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dqnn", "DoubleDQN", "--env", "CartPole-v1"], "Did you mean 'dqn'"),
        (["DQN", "--env", "CartPole-v11"], "Did you mean 'CartPole-v1'"),
        (["DQN", "--env", "CartPole-v1", "-o", "gama=0.9"], "got 'gama'. Use one of them. Did you mean 'gamma'"),
        (["DQN", "--env", "CartPole-v1", "-o", "gamma"], "must have the form name=value"),
        (["DQN", "--env", "CartPole-v1", "-o", "DoubleDQN.gamma=0.9"], "must be one of DQN, got DoubleDQN"),
        (["DQN", "--env", "CartPole-v1", "-o", "DubleDQN.gamma=0.9"], "Did you mean 'doubledqn'"),
        (["DQN", "--env", "CartPole-v1", "-o", "policy_kwargs.net_arch=[8]"], '--set "policy_kwargs={net_arch: [8]}"'),
        (
            ["DQN", "--env", "CartPole-v1", "-o", "DQN.policy_kwargs.net_arch=[8]"],
            'Set net_arch in its dict: --set "DQN.policy_kwargs={net_arch: [8]}"',
        ),
        (
            ["DQN", "--env", "CartPole-v1", "-o", "seed=3"],
            "seed must be the same for all runs, got it for one algorithm. Use --seeds N of `sb-dqn compare`",
        ),
        (["DQN", "--env", "CartPole-v1", "-o", "DQN.device=cpu"], "Use --device NAME of `sb-dqn compare`"),
        (
            ["DQN", "--env", "CartPole-v1", "--env-set", "a.b=3"],
            "Invalid value for --env-set: The name of a setting must not contain a dot, got a.b=3",
        ),
        (["no_such_folder"], "must be the folder of a comparison, got no_such_folder"),
        (
            ["DQN", "DoubleDQN"],
            "--env must be set, got none. Name the environment, for example sb-dqn compare DQN DoubleDQN --env",
        ),
        ([], "Missing argument"),
    ],
)
def test_user_error_is_one_message_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_main("compare", *arguments) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


@SLOW
def test_another_setup_in_the_same_folder_is_rejected(compared: tuple[Path, str]) -> None:
    done = call("compare", "DQN", "--env", "CartPole-v1", "--steps", 500, "--out", compared[0])
    assert done.exit_code == 2
    output = " ".join(done.output.split())
    assert "steps must be 400 as in the comparison in" in output
    assert "got 500. Use --steps 400, or choose another folder with --out" in output


@SLOW
def test_default_steps_are_those_of_the_folder(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    shutil.copytree(out / "DQN", out / "A2C")  # looks finished; the preset of A2C has another length
    small = [word for word in SMALL if word not in ("--steps", "400", "-o", "learning_starts=50", "gradient_steps=1")]
    small[small.index("policy_kwargs={net_arch: [16]}")] = "--set=policy_kwargs={net_arch: [16]}"
    done = call("compare", "A2C", *small, "--out", out)
    assert done.exit_code == 0, done.output
    assert "A2C on CartPole-v1: 1 seed of 400 steps as before, 0 of 1 runs to do" in done.output
    assert [line.split()[1] for line in (out / "comparison.md").read_text().splitlines()[2:5]] == [
        "DQN",
        "DoubleDQN",
        "A2C",
    ]


@SLOW
@pytest.mark.parametrize(("steps", "is_in"), a_few([(399, False), (400, True), (407, True), (408, False)], 407, 408))
def test_run_of_another_length_is_left_out(compared: tuple[Path, str], tmp_path: Path, steps: int, is_in: bool) -> None:
    """With eight lanes the last step of all lanes may exceed the length by up to seven env steps."""
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    config = run_of(out, "DQN") / "config.yaml"
    config.write_text(config.read_text().replace("n_envs: 1\n", "n_envs: 8\n"))
    write_result(run_of(out, "DQN"), RunResult(steps, 9.0, (7.0, 8.0)))
    output = call("compare", out).output
    assert ("| DQN | 7.5" in output) is is_in
    assert "| DoubleDQN |" in output
    left_out = f"DQN seed 0 left out: it has {steps} env steps, the comparison has 400; delete {out / 'DQN/seed_0'} to"
    assert (left_out in output) is not is_in


@FULL
def test_algorithms_with_the_same_settings_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["DQN", "DoubleDQN", "NStepDQN", "MunchausenDQN", "QRDQN"]
    _make_setup(names, "CartPole-v1", 100, [], env_settings=())
    lines = capsys.readouterr().err.splitlines()
    assert (
        lines[0] == "Warning: DQN and DoubleDQN have the same settings on CartPole-v1; the same agent is trained twice"
    )
    assert [line.split(" have")[0] for line in lines[1:]] == [
        "Warning: DQN and NStepDQN",
        "Warning: DoubleDQN and NStepDQN",
    ]
    _make_setup(["DQN", "DoubleDQN"], "CartPole-v1", 100, ["DQN.double_q=False"], env_settings=())
    assert capsys.readouterr().err == ""


def test_a_resumed_run_keeps_its_device(tmp_path: Path) -> None:
    job = Job("DQN", tmp_path, ("train", "DQN", "CartPole-v1", "--device", "cpu", "--seed", "0"))
    assert job.command == job.train
    (tmp_path / "dqn_CartPole-v1_1").mkdir()
    for name in ("config.yaml", "model.zip"):
        (tmp_path / "dqn_CartPole-v1_1" / name).write_bytes(b"")
    assert job.command == ("resume", str(tmp_path / "dqn_CartPole-v1_1"), "--no-progress", "--device", "cpu")
