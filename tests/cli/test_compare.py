"""`sb-dqn compare` through its entry point, on runs of a few hundred steps."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from sb_dqn.checkpoint import model_info
from sb_dqn.cli import comparison_picture, fleet
from sb_dqn.cli.compare import _planned, _stopped
from sb_dqn.cli.comparison import Estimate
from sb_dqn.cli.comparison_folder import Setup, read
from sb_dqn.cli.fleet import Failure, Job, locked, run_jobs
from sb_dqn.cli.main import commands, main
from sb_dqn.cli.results import FinalEvaluation, read_result, write_result
from sb_dqn.cli.results import Result as Outcome

ROOT = Path(__file__).parents[2]
SMALL = ["--env", "CartPole-v1", "--seeds", "1", "--steps", "400", "--eval-episodes", "2", "-o", "learning_starts=50",
         "-o", "policy_kwargs={net_arch: [16]}", "-o", "gradient_steps=1", "--device", "cpu"]  # fmt: skip


def call(*arguments: str | Path | int) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module", autouse=True)
def where_it_is_found() -> None:
    """The runs are processes of their own, which look for the package here."""
    os.chdir(ROOT)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished comparison, and what was printed."""
    out = tmp_path_factory.mktemp("compared") / "out"
    done = call("compare", "dqn", "DoubleDQN", *SMALL, "-o", "DoubleDQN.gamma=0.5", "--out", out, "--jobs", 2)
    assert done.exit_code == 0, done.output
    return out, done.output


def run_of(out: Path, algorithm: str, seed: int = 0) -> Path:
    return out / algorithm / f"seed_{seed}" / f"{algorithm.lower()}_CartPole-v1_1"


def test_it_trains_draws_and_tabulates(compared: tuple[Path, str]) -> None:
    out, printed = compared
    assert "2 of 2 runs to do, 2 at a time" in printed
    assert re.search(
        r"2 runs, 2 at a time, took \d+ s; together they had \d+ s of training and \d+ s of final", printed
    )
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    table = (out / "comparison.md").read_text()
    assert table.splitlines()[0] == "| CartPole-v1 | mean | IQM | seeds | env steps | wall-clock |"
    assert table in printed
    for algorithm in ("DQN", "DoubleDQN"):
        result = read_result(run_of(out, algorithm))
        assert (result.steps, len(result.returns)) == (400, 20)
        assert result.seconds > 0
        assert f"| {algorithm} | {sum(result.returns) / 20:.1f} |" in table


def test_settings_for_all_and_for_one(compared: tuple[Path, str]) -> None:
    configs = [yaml.safe_load((run_of(compared[0], name) / "config.yaml").read_text()) for name in ("DQN", "DoubleDQN")]
    assert [config["settings"]["gamma"] for config in configs] == [0.99, 0.5]
    assert {config["settings"]["learning_starts"] for config in configs} == {50}
    assert {config["preset"]["name"] for config in configs} == {"CartPole-v1"}


def test_what_is_finished_is_not_repeated_and_more_can_be_added(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("model.zip")}
    again = call("compare", "NStepDQN", "DQN", *SMALL, "--out", out)
    assert "1 of 2 runs to do" in again.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    table = (out / "comparison.md").read_text()
    assert [line.split()[1] for line in table.splitlines()[2:5]] == ["DQN", "DoubleDQN", "NStepDQN"]


def test_a_folder_is_drawn_again_without_training(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    write_result(run_of(out, "DQN"), Outcome(400, 9.0, (7.0, 8.0)))
    write_result(run_of(out, "DoubleDQN"), Outcome(200, 9.0))
    (out / "comparison.png").unlink()
    done = call("compare", out)
    assert done.exit_code == 0
    assert "| DQN | 7.5 | 7.5 | 1 | 400 | 9 s |" in done.output
    assert "not finished and left out: DoubleDQN seed 0" in done.output
    assert (out / "comparison.png").is_file()


def test_what_is_missing_is_told_in_the_table_s_file(
    compared: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    write_result(run_of(out, "DQN"), Outcome(900, 9.0, (7.0,)))
    assert "not finished" not in (out / "comparison.md").read_text()

    def failing(jobs: list[Job], *_: object) -> list[Failure]:
        return [Failure(job, "no more memory") for job in jobs]

    monkeypatch.setattr("sb_dqn.cli.fleet.run_jobs", failing)
    arguments = [word if word != "1" else "2" for word in SMALL]
    done = call("compare", "DoubleDQN", *arguments, "-o", "DoubleDQN.gamma=0.5", "--out", out)
    assert done.exit_code == 1
    notes = (out / "comparison.md").read_text().split("\n\n")[-1].splitlines()
    assert notes[0].startswith("- DQN seed 0 left out: it has 900 env steps")
    assert notes[1:] == ["- DoubleDQN seed 1 failed: no more memory"]
    call("compare", out)
    assert (out / "comparison.md").read_text().endswith("\n- not finished and left out: DoubleDQN seed 1\n")


def test_seeds_are_those_that_each_algorithm_was_given(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    assert read(out)["seeds"] == {"DQN": 1, "DoubleDQN": 1}
    for seed in (1, 2):  # finished, as far as one can see
        shutil.copytree(out / "DQN/seed_0", out / f"DQN/seed_{seed}")
    done = call("compare", "DQN", *[word if word != "1" else "3" for word in SMALL], "--out", out)
    assert "3 seeds of 400 steps, 0 of 3 runs to do" in done.output
    assert "left out" not in done.output
    assert "IQM [95 % interval]" in done.output
    assert read(out)["seeds"] == {"DQN": 3, "DoubleDQN": 1}
    written = (out / "comparison.yaml").read_text()
    (out / "comparison.yaml").write_text(written.replace("seeds: {DQN: 3, DoubleDQN: 1}", "seeds: 2"))
    assert read(out)["seeds"] == {"DQN": 2, "DoubleDQN": 2}  # a folder of an earlier version


def test_steps_are_called_as_train_calls_them_too(compared: tuple[Path, str]) -> None:
    done = call(
        "compare", "DQN", *[word if word != "--steps" else "--timesteps" for word in SMALL], "--out", compared[0]
    )
    assert done.exit_code == 0, done.output
    assert "0 of 1 runs to do" in done.output  # those of 400 steps


def test_the_folder_of_a_run_takes_no_comparison(compared: tuple[Path, str]) -> None:
    before = sorted(run_of(compared[0], "DQN").iterdir())
    refused = call("compare", "DQN", *SMALL, "--out", run_of(compared[0], "DQN"))
    assert refused.exit_code == 2
    assert "is the folder of a single run" in refused.output
    assert sorted(run_of(compared[0], "DQN").iterdir()) == before


def test_plot_names_the_command_for_a_comparison(compared: tuple[Path, str]) -> None:
    refused = call("plot", compared[0])
    assert refused.exit_code == 2
    assert f"draw it with `sb-dqn compare {compared[0]}`" in " ".join(refused.output.split())


def test_nothing_is_said_to_be_saved_before_a_run_has_begun(compared: tuple[Path, str], tmp_path: Path) -> None:
    waiting = Job("DQN seed 0", tmp_path, ("train",))
    assert _stopped([waiting]).startswith("stopped before the first run had learned anything")
    assert "has been saved" in _stopped([waiting, Job("DQN seed 0", compared[0] / "DQN/seed_0", ("train",))])


@pytest.mark.parametrize(("seeds", "title"), [(1, "it: one seed, no interval"), (2, "it: mean and 95 % bootstrap")])
def test_the_picture_promises_no_interval_of_one_seed(
    compared: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int, title: str
) -> None:
    figures: list[Any] = []
    monkeypatch.setattr(comparison_picture, "save_figure", lambda figure, picture: figures.append(figure))
    runs = {"DQN": [run_of(compared[0], "DQN")] * seeds}
    comparison_picture.draw(tmp_path / "a.png", "it", runs, {"DQN": Estimate(1.0, None)}, "2 greedy episodes")
    assert figures[0].axes[0].get_title().startswith(title)


def test_a_folder_that_is_drawn_again_takes_no_options(compared: tuple[Path, str]) -> None:
    for option, value in {"--seeds": 2, "--jobs": 1, "-n": 100}.items():
        refused = call("compare", compared[0], option, value)
        assert refused.exit_code == 2
        said = " ".join(refused.output.split())
        assert f"as it is, {'--steps' if option == '-n' else option} changes nothing: leave that out" in said


def test_a_run_stopped_before_its_evaluation_is_only_evaluated(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    wanted = read_result(run_of(out, "DQN")).returns
    write_result(run_of(out, "DQN"), Outcome(400, 9.0))
    done = call("resume", run_of(out, "DQN"))
    assert "stopped before its evaluation" in done.output
    again = read_result(run_of(out, "DQN"))
    assert (again.steps, again.seconds, again.returns) == (400, 9.0, wanted)


def test_final_episodes_that_did_not_finish_are_told_of(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    write_result(run_of(out, "DQN"), Outcome(400, 9.0, (7.0, 8.0), FinalEvaluation(20, 500, 1.0)))
    write_result(run_of(out, "DoubleDQN"), Outcome(400, 9.0, (), FinalEvaluation(20, 500, 1.0)))
    printed = call("compare", out).output
    assert "DQN seed 0: 2 of 20 final episodes finished" in printed
    assert "DoubleDQN seed 0 left out: none of its final episodes finished" in printed
    assert "| DoubleDQN |" not in printed
    assert "2 of 20 final episodes finished" in (out / "comparison.md").read_text()


def test_a_folder_of_earlier_versions_is_of_twenty_final_episodes(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    content = read(out)
    for name in ("final_episodes", "final_steps"):
        content["setup"].pop(name)
    (out / "comparison.yaml").write_text(yaml.safe_dump(content))
    arguments = ["compare", "dqn", "DoubleDQN", *SMALL, "-o", "DoubleDQN.gamma=0.5", "--out", str(out)]
    assert "0 of 2 runs to do" in call(*arguments).output
    refused = " ".join(call(*arguments, "--final-episodes", 3).output.split())
    assert "final_episodes=20, not 3" in refused
    assert "say --final-episodes 20" in refused


def test_it_says_where_the_time_went_and_what_its_runs_warned_of(tmp_path: Path) -> None:
    done = call("compare", "dqn", *SMALL, "-o", "train_freq=4", "--final-episodes", 1, "--out", tmp_path / "out",
                "--set", "dqn.learning_starts=900")  # fmt: skip
    assert "DQN seed 0: UserWarning: learn(total_timesteps=400) will make no update" in done.output
    said = re.search(
        r"1 run took (\d+) s: (\d+) s of training and (\d+) s of final episodes, and (\d+) s in which", done.output
    )
    assert said is not None, done.output
    whole, *parts = (int(number) for number in said.groups())
    assert abs(whole - sum(parts)) <= 2  # rounded


def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["compare", "DQN", *SMALL, "-o", "train_freq=64", "--eval-freq", "0", "--out", str(out)]
    arguments[arguments.index("400")] = "40000"
    process = subprocess.Popen(
        [sys.executable, "-m", "sb_dqn.cli.main", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        # a shell's background jobs ignore it, and so would their children
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    episodes = run_of(out, "DQN") / "monitor.csv"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if episodes.is_file() and episodes.stat().st_size > 200:  # some episodes, so it learns by now
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 130, printed
    assert "the same command goes on" in printed
    stopped = read_result(run_of(out, "DQN"))
    assert 0 < stopped.steps < 40_000
    assert stopped.returns == ()
    assert (run_of(out, "DQN") / "checkpoints" / f"{stopped.steps}_steps.zip").is_file()

    done = call(*arguments)
    assert done.exit_code == 0, done.output
    assert f"going on in {run_of(out, 'DQN')} at step {stopped.steps:,}" in (out / "DQN/seed_0/log.txt").read_text()
    assert model_info(run_of(out, "DQN") / "model.zip")["state"]["counters"]["num_timesteps"] == 40_000
    assert read_result(run_of(out, "DQN")).seconds > stopped.seconds
    assert [path.name for path in (out / "DQN/seed_0").iterdir() if path.is_dir()] == ["dqn_CartPole-v1_1"]


def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    good = Setup("CartPole-v1", 60, eval_freq=0).command(
        "DQN", ["policy_kwargs={net_arch: [8]}"], 0, tmp_path / "good", "cpu"
    )
    jobs = [
        Job("bad", tmp_path / "bad", ("train", "DQN", "CartPole-v1", "--set", "gamma=3", "--folder", str(tmp_path))),
        Job("good", tmp_path / "good", good),
    ]
    done: list[str] = []
    (failure,) = run_jobs(jobs, 2, lambda job: done.append(job.label))
    assert failure.job.label == "bad"
    assert "gamma=3 is not allowed" in failure.why
    assert done == ["good"]


@pytest.mark.parametrize("free", [True, False])
def test_the_next_process_imports_while_a_run_trains_where_a_core_is_free(
    free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five of eight seconds of a short run were imports, one run after the other."""
    monkeypatch.setattr(fleet, "cores", lambda: 2 if free else 1)
    events: list[str] = []
    start, let_go = fleet._start, fleet._let_go
    numbers: dict[Any, str] = {}

    def started(job: Job, at_once: int) -> Any:
        process = start(job, at_once)
        numbers[process] = job.label
        events.append(f"start {job.label}")
        return process

    def gone(process: Any) -> None:
        if not process.stdin.closed:
            events.append(f"go {numbers[process]}")
        let_go(process)

    monkeypatch.setattr(fleet, "_start", started)
    monkeypatch.setattr(fleet, "_let_go", gone)
    settings = ["policy_kwargs={net_arch: [8]}", "learning_starts=8"]
    setup = Setup("CartPole-v1", 60, eval_freq=0, final_episodes=1)
    homes = {name: tmp_path / name for name in ("a", "b")}
    jobs = [Job(name, home, setup.command("DQN", settings, 0, home, "cpu")) for name, home in homes.items()]
    assert run_jobs(jobs, 1, lambda job: events.append(f"done {job.label}")) == []
    ahead = ["start a", "start b", "go a", "done a", "go b", "done b"]
    assert events == (ahead if free else ["start a", "go a", "done a", "start b", "go b", "done b"])


def test_a_process_whose_turn_never_comes_does_nothing(tmp_path: Path) -> None:
    command = Setup("CartPole-v1", 60, eval_freq=0).command("DQN", [], 0, tmp_path, "cpu")
    process = fleet._start(Job("never", tmp_path, command), 1)
    assert process.stdin is not None
    process.stdin.close()  # as when the comparison is killed
    assert process.wait(timeout=120) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_one_fleet_at_a_time_in_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(click.UsageError, match="is at work in"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dqnn", "DoubleDQN", "--env", "CartPole-v1"], "Did you mean 'dqn'"),
        (["DQN", "--env", "CartPole-v11"], "Did you mean 'CartPole-v1'"),
        (["DQN", "--env", "CartPole-v1", "-o", "gama=0.9"], "DQN takes no 'gama'. Did you mean 'gamma'"),
        (["DQN", "--env", "CartPole-v1", "-o", "gamma"], "not of the form name=value"),
        (["DQN", "--env", "CartPole-v1", "-o", "DoubleDQN.gamma=0.9"], "DoubleDQN is not among DQN"),
        (["DQN", "--env", "CartPole-v1", "-o", "DubleDQN.gamma=0.9"], "Did you mean 'doubledqn'"),
        (["DQN", "--env", "CartPole-v1", "-o", "policy_kwargs.net_arch=[8]"], '--set "policy_kwargs={net_arch: [8]}"'),
        (
            ["DQN", "--env", "CartPole-v1", "-o", "DQN.policy_kwargs.net_arch=[8]"],
            'say net_arch within its dict: --set "DQN.policy_kwargs={net_arch: [8]}"',
        ),
        (["DQN", "--env", "CartPole-v1", "-o", "seed=3"], "seed is no setting; `sb-dqn compare` has --seeds N"),
        (["DQN", "--env", "CartPole-v1", "-o", "DQN.device=cpu"], "`sb-dqn compare` has --device NAME"),
        (["DQN", "--env", "CartPole-v1", "--env-set", "a.b=3"], "Invalid value for --env-set: a.b=3 has a dot"),
        (["no_such_folder"], "no_such_folder is not the folder of a comparison"),
        (["DQN", "DoubleDQN"], "say the environment: sb-dqn compare DQN DoubleDQN --env"),
        ([], "Missing argument"),
    ],
)
def test_a_fault_of_the_user_is_one_message_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sb-dqn", "compare", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    error = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


def test_another_comparison_in_the_same_folder_is_refused(compared: tuple[Path, str]) -> None:
    done = call("compare", "DQN", "--env", "CartPole-v1", "--steps", 500, "--out", compared[0])
    assert done.exit_code == 2
    assert "holds a comparison with steps=400, not 500" in done.output
    assert "say --steps 400 to add to it, or name another folder with --out" in " ".join(done.output.split())


def test_steps_that_are_not_said_are_those_of_the_folder(compared: tuple[Path, str], tmp_path: Path) -> None:
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    shutil.copytree(out / "DQN", out / "A2C")  # finished, as far as one can see; the preset of A2C is of another length
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


@pytest.mark.parametrize(("steps", "is_in"), [(399, False), (400, True), (407, True), (408, False)])
def test_a_run_of_another_length_is_left_out(
    compared: tuple[Path, str], tmp_path: Path, steps: int, is_in: bool
) -> None:
    """DQN's preset has one lane; with eight the last tick may be up to seven steps too long."""
    out = Path(shutil.copytree(compared[0], tmp_path / "out"))
    config = run_of(out, "DQN") / "config.yaml"
    config.write_text(config.read_text().replace("n_envs: 1\n", "n_envs: 8\n"))
    write_result(run_of(out, "DQN"), Outcome(steps, 9.0, (7.0, 8.0)))
    printed = call("compare", out).output
    assert ("| DQN | 7.5" in printed) is is_in
    assert "| DoubleDQN |" in printed
    left_out = (
        f"DQN seed 0 left out: it has {steps} env steps, the comparison is of 400; delete {out / 'DQN/seed_0'} to"
    )
    assert (left_out in printed) is not is_in


def test_one_agent_under_two_names_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["DQN", "DoubleDQN", "NStepDQN", "MunchausenDQN", "QRDQN"]
    _planned(names, "CartPole-v1", 100, [], env_settings=())
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "DQN and DoubleDQN have the same settings on CartPole-v1: one agent, trained twice"
    assert [line.split(" have")[0] for line in said[1:]] == ["DQN and NStepDQN", "DoubleDQN and NStepDQN"]
    _planned(["DQN", "DoubleDQN"], "CartPole-v1", 100, ["DQN.double_q=False"], env_settings=())
    assert capsys.readouterr().err == ""
