"""Commands through their entry point, on runs of a few hundred steps."""

from __future__ import annotations

import csv
import html
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from sb_dqn import DQN
from sb_dqn.checkpoint import model_info
from sb_dqn.presets import list_presets
from sb_dqn.runs import evaluation_options
from sb_dqn.runs.episode_log import EpisodeLog
from sb_dqn.runs.training import another_setting
from tests.command import call, run_main
from tests.marks import FULL, SLOW

TRAIN = ["train", "dqn", "CartPole-v1", "--timesteps", "600", "--seed", "1", "--set", "learning_starts=50",
         "--set", "policy_kwargs={net_arch: [16]}", "--set", "train_freq=8", "--set", "gradient_steps=1"]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a finished run."""
    root = tmp_path_factory.mktemp("runs")
    done = call(*TRAIN, "--folder", root, "--no-progress", "--eval-freq", 250, "--eval-episodes", 2)
    assert done.exit_code == 0, done.output
    assert "  evaluations.npz the evaluations during training" in done.output
    return root / "dqn_CartPole-v1_1"


@SLOW
def test_run_folder_has_all_files(run: Path) -> None:
    present = {path.name for path in run.iterdir()}
    assert present >= {
        "config.yaml",
        "model.zip",
        "best_model.zip",
        "curve.png",
        "progress.csv",
        "monitor.csv",
        "evaluations.npz",
    }
    assert model_info(run / "model.zip")["state"]["counters"]["num_timesteps"] == 600


def test_config_has_the_preset_and_the_settings_over_it(run: Path) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["preset"]["name"] == "CartPole-v1"
    assert config["settings"]["learning_rate"] == "linear 0.001"
    assert config["settings"]["policy_kwargs"] == {"net_arch": [16], "layer_norm": True}
    assert (config["settings"]["seed"], config["n_timesteps"]) == (1, 600)


def test_report_of_a_real_run(run: Path) -> None:
    machine = yaml.safe_load((run / "config.yaml").read_text())["machine"]
    assert machine["device"] == "cpu"
    assert machine["cores"] >= 1
    done = call("report", run)
    assert done.exit_code == 0, done.output
    text = (run / "report.html").read_text(encoding="utf-8")
    for expected in ("DQN on CartPole-v1", "TD error", "Q-value", "Exploration rate", "linear 0.001", machine["cpu"]):
        assert html.escape(expected) in text


def test_every_episode_is_logged(run: Path) -> None:
    with (run / "monitor.csv").open() as file:
        assert '"env_id": "CartPole-v1"' in file.readline()
        rows = list(csv.DictReader(file))
    lengths = [int(row["l"]) for row in rows]
    assert 600 - 500 <= sum(lengths) <= 600
    assert [float(row["r"]) for row in rows] == lengths  # CartPole pays a reward of 1 per step
    times = [float(row["t"]) for row in rows]
    assert times == sorted(times)


def test_evaluations_have_the_requested_steps_and_episodes(run: Path) -> None:
    with np.load(run / "evaluations.npz") as saved:
        assert saved["timesteps"].tolist() == [250, 500]
        assert saved["results"].shape == (2, 2)


@SLOW
def test_output_names_the_folder_and_the_next_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sb-dqn", *TRAIN])
    done = call(*TRAIN, "--folder", tmp_path, "--progress", "--eval-freq", 0)
    folder = tmp_path / "dqn_CartPole-v1_1"
    assert "DQN on CartPole-v1: 600 steps, seed 1; preset CartPole-v1 (RL Baselines3 Zoo" in done.output
    assert "over 20 greedy episodes" in done.output
    assert f"files in {folder}" in done.output
    assert f"enjoy {folder}" in done.output
    assert f"sb-dqn {shlex.join(TRAIN)} --set learning_rate=3e-4\n" in done.output
    assert "evaluations.npz" not in done.output
    assert "best_model.zip" not in done.output  # no evaluation during training
    assert not (folder / "evaluations.npz").exists()


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("train dqn lake:Lake-v0 --env-set size=5 --folder lk", "train dqn lake:Lake-v0 --env-set size=5 --folder lk"),
        ("train dqn A --set 'learning_rate=linear 1e-3' --set gamma=0.9", "train dqn A --set gamma=0.9"),
        ("train dqn A --set=learning_rate=0.1 --env-set 'name=two words'", "train dqn A --env-set 'name=two words'"),
        ("compare DQN QRDQN --env lake:Lake-v0", "train DQN lake:Lake-v0"),
    ],
)
def test_another_setting_is_tried_with_the_other_arguments_of_the_run(words: str, again: str) -> None:
    config = {"command": f"sb-dqn {words}", "algorithm": "DQN", "env_id": "lake:Lake-v0"}
    assert another_setting(config) == f"{again} --set learning_rate=3e-4"


@SLOW
def test_the_output_outside_a_terminal_is_short(tmp_path: Path) -> None:
    done = call(*TRAIN, "--folder", tmp_path, "--eval-freq", 0)
    assert "600/600 steps (100%)" in done.output
    assert len(done.output.splitlines()) < 30


@SLOW
def test_out_is_an_alias_of_folder(tmp_path: Path) -> None:
    done = call(*TRAIN, "--out", tmp_path / "mine", "--no-progress", "--eval-freq", 0)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "mine" / "dqn_CartPole-v1_1" / "model.zip").is_file()


@SLOW
def test_the_evaluation_environment_has_keywords_of_its_own(tmp_path: Path) -> None:
    done = call(*TRAIN, "--folder", tmp_path, "--eval-freq", 300, "--eval-env-set", "sutton_barto_reward=true")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "dqn_CartPole-v1_1"
    assert np.load(folder / "evaluations.npz")["results"].max() <= 0  # 0, and -1 where the pole falls
    assert "mean return -1.00" in call("evaluate", folder, "--episodes", 2).output
    with (folder / "monitor.csv").open() as file:
        next(file)
        assert min(float(row["r"]) for row in csv.DictReader(file)) >= 8  # 1 for each step


@SLOW
def test_a_model_file_does_not_say_where_a_further_training_is_sent(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*_: object, **__: object) -> None:
        raise AssertionError("a tracker was made")

    monkeypatch.setattr(evaluation_options, "WandbCallback", unexpected)
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + "track: wandb\n")
    assert call("resume", folder, "--timesteps", 60).exit_code == 0
    with pytest.raises(AssertionError, match="a tracker was made"):
        call("resume", folder, "--timesteps", 60, "--track", "wandb")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # imageio-ffmpeg leaves pipes to be closed
def test_record_training_films_an_episode_at_each_evaluation(tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v2", reason="films need the extra video")
    pytest.importorskip("imageio_ffmpeg", reason="imageio writes mp4 with ffmpeg (extra video)")
    pytest.importorskip("pygame", reason="CartPole is drawn by pygame (extra render)")
    done = call(*TRAIN, "--folder", tmp_path, "--eval-freq", 300, "--record-training")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "dqn_CartPole-v1_1"
    clips = sorted((folder / "film").iterdir())
    assert [clip.name for clip in clips] == [f"step-{step:09d}.mp4" for step in (0, 300, 600)]
    *lengths, whole = [len(imageio.mimread(film)) for film in (*clips, folder / "training.mp4")]
    assert min(lengths) > 8
    assert whole == sum(lengths)


@pytest.mark.parametrize("words", [("--track", "wandb"), ("--record-training",)])
def test_a_full_checkpoint_is_not_resumed_with_another_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", interrupt)
        assert call(*TRAIN, "--folder", tmp_path, "--eval-freq", 0).exit_code == 130
    folder = tmp_path / "dqn_CartPole-v1_1"
    refused = call("resume", folder, *words)
    assert refused.exit_code == 2
    assert f"{words[0]} must be" in refused.output


@SLOW
def test_same_seed_gives_the_same_model(run: Path, tmp_path: Path) -> None:
    call(*TRAIN, "--folder", tmp_path, "--no-progress", "--eval-freq", 0)
    first, second = (model_info(folder / "model.zip")["members"] for folder in (run, tmp_path / "dqn_CartPole-v1_1"))
    assert first["policy"]["sha256"] == second["policy"]["sha256"]


def test_evaluate_is_reproducible_for_folder_and_zip(run: Path) -> None:
    outputs = [call("evaluate", path, "--episodes", 3).output for path in (run, run / "model.zip", run / "model")]
    assert "over 3 episodes" in outputs[0]
    assert outputs[0] == outputs[1] == outputs[2]
    seeds = [call("evaluate", run, "--episodes", 30, "--seed", seed).output for seed in (0, 7)]
    assert seeds[0] != seeds[1]


def test_zip_outside_a_run_folder_needs_the_environment(run: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.zip"
    bare.write_bytes((run / "model.zip").read_bytes())
    rejected = call("evaluate", bare)
    assert rejected.exit_code == 2
    assert "Name the environment with --env" in " ".join(rejected.output.split())
    assert "over 2 episodes" in call("evaluate", bare, "--env", "CartPole-v1", "--episodes", 2).output


def test_info_prints_the_manifest(run: Path) -> None:
    content = yaml.safe_load(call("info", run).output)
    assert content["class"] == "DQN"
    assert content["counters"]["num_timesteps"] == 600
    assert content["preset_env"] == {"env": "CartPole-v1", "preset": "CartPole-v1"}


@SLOW
def test_plot_draws_against_steps_and_time(run: Path, tmp_path: Path) -> None:
    pictures = []
    for against in ("steps", "time"):
        done = call("plot", run, "--output", tmp_path / f"{against}.png", "--against", against)
        assert done.output.strip() == str(tmp_path / f"{against}.png")
        pictures.append((tmp_path / f"{against}.png").read_bytes())
    assert pictures[0].startswith(b"\x89PNG")
    assert pictures[0] != pictures[1]


def test_presets_lists_the_presets_of_an_algorithm() -> None:
    assert "CartPole-v1" in call("presets", "doubledqn").output
    assert "nstepdqn" not in call("presets", "dqn").output
    listed = list_presets()
    for line, preset in zip(call("presets").output.splitlines(), listed, strict=True):
        steps = f"{preset.n_timesteps:,}"
        assert line.split()[:4] == [preset.algorithm, preset.name, steps, "steps"]  # columns are separated
    content = yaml.safe_load(call("presets", "dqn", "--name", "CartPole-v1").output)
    assert content["settings"]["batch_size"] == 64


def test_presets_shows_what_train_uses_for_an_environment() -> None:
    assert call("presets", "DQN", "CartPole-v1").output == call("presets", "dqn", "--name", "CartPole-v1").output
    pattern, of_parent = (
        yaml.safe_load(call("presets", *which).output)
        for which in (("R2D2", "popgym-CountRecallHard-v0"), ("DoubleDQN", "CartPole-v1"))
    )
    assert pattern["name"] == "popgym-CountRecall*"
    assert (of_parent["algorithm"], of_parent["name"]) == ("dqn", "CartPole-v1")


def test_ctrl_c_saves_and_resume_continues(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original_on_step = EpisodeLog._on_step

    def interrupt(log: EpisodeLog) -> bool:
        if log.num_timesteps == 300:
            raise KeyboardInterrupt
        return original_on_step(log)

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeLog, "_on_step", interrupt)
        stopped = call(*TRAIN, "--folder", tmp_path, "--no-progress", "--eval-freq", 0)
    folder = tmp_path / "dqn_CartPole-v1_1"
    assert stopped.exit_code == 130
    assert "interrupted at step 300" in stopped.output
    assert f"resume {folder}" in stopped.output
    assert model_info(folder / "checkpoints" / "300_steps.zip")["full"]["why"] == ""
    early = len((folder / "monitor.csv").read_text().splitlines())

    resumed = call("resume", folder, "--no-progress", "--eval-freq", 0)
    assert "at step 300 for 300 more" in resumed.output
    assert model_info(folder / "model.zip")["state"]["counters"]["num_timesteps"] == 600
    assert not (folder / "checkpoints").exists()
    uninterrupted = model_info(run / "model.zip")["members"]
    assert model_info(folder / "model.zip")["members"] == uninterrupted
    assert len((folder / "monitor.csv").read_text().splitlines()) > early
    done = call("resume", folder)
    assert done.exit_code == 2
    assert "--timesteps N" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "dqnn", "CartPole-v1"], "Did you mean 'dqn'"),
        (["train", "dqn", "CartPole-v11"], "Did you mean 'CartPole-v1'"),
        (["train", "dqn", "CartPole-v1", "--set", "gama=0.9"], "Did you mean 'gamma'"),
        (["train", "dqn", "CartPole-v1", "--set", "gamma=3"], "gamma must be a number >= 0 and <= 1, got 3"),
        (["train", "dqn", "CartPole-v1", "--preset", "CartPole"], "Did you mean 'CartPole-v1'"),
        (["train", "dqn", "CartPole-v1", "--env-set", "wind=3"], "wind"),
        (["train", "dqn", "CartPole-v1", "--track", "mlflow"], "mlflow must be installed for MLflowCallback, got none"),
        (
            ["evaluate", "no_such_run"],
            "must be a run or model file that exists, got no_such_run. Train a model first: runs has none.",
        ),
        (["train"], "ALGO and ENV must be set, got none. Use sb-dqn train ALGO ENV"),
        (["train", "dqn"], "ENV must be set, got none. Use sb-dqn train ALGO ENV"),
        (["presets", "dqn", "--name", "CartPole"], "--name must be one of"),
        (
            ["presets", "dqn", "CartPole-v1", "--env", "Acrobot-v1"],
            "--env must be used without ENV, got Acrobot-v1 and CartPole-v1",
        ),
        (["presets", "dqn", "Own-v0"], "ENV must be an environment with a preset of dqn, got Own-v0: there"),
        (["info", str(Path(__file__))], "test_commands.py"),
        (
            ["enjoy", "run", "--video", "film.xyz"],
            "the name of a video must end in .mp4",
        ),
        (["enjoy", "run", "--video", "film"], "the name of a video must end in"),
        (
            ["enjoy", "run", "--video", "no/such/film.gif"],
            "the folder of a video must exist, got no/such/film.gif, but no/such does not exist",
        ),
        (["plot", ".", "--output", "curve.xyz"], "the name of a picture must end in"),
        (["plot", ".", "--output", "no/such/curve.png"], "the folder of a picture must exist, got no/such/curve.png"),
    ],
)
def test_user_error_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert run_main(*arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "runs").exists()


def test_a_replay_buffer_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    buffer = tmp_path / "replay.zip"
    DQN("MlpPolicy", "CartPole-v1", buffer_size=9, device="cpu").save_replay_buffer(buffer)
    assert run_main("evaluate", buffer, "--env", "CartPole-v1") == 2
    assert f"{buffer} must hold a model, got a 'replay'. Use the file of a model." in capsys.readouterr().err


@pytest.mark.parametrize("command", ["evaluate", "plot", "resume"])
def test_a_damaged_configuration_is_one_line_with_its_path_and_place(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.yaml").write_text("a: [")
    (tmp_path / "model.zip").touch()
    assert run_main(command, tmp_path) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(rf"Error: {re.escape(str(tmp_path))}/config\.yaml must be YAML, .* line 1, column 5.*\n", error)


@FULL
def test_environment_module_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_poles.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Pole-v8', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=9)\n"
    )
    code = f"import sys; sys.path = {[path for path in sys.path if path]}; from sb_dqn.cli.main import main; main()"
    command = [
        "train",
        "dqn",
        "own_poles:Pole-v8",
        "-n",
        "20",
        "--eval-episodes",
        "1",
        "--no-progress",
        "--folder",
        "runs",
    ]
    subprocess.run([sys.executable, "-c", code, *command], cwd=tmp_path, check=True, capture_output=True)
    assert len(list(tmp_path.glob("runs/*/model.zip"))) == 1


@FULL
@pytest.mark.parametrize(("steps", "status"), [(40, 0), (1000, 130)], ids=["to the end", "Ctrl-C"])
def test_an_atari_run_ends_without_messages_of_leaks(steps: int, status: int, tmp_path: Path) -> None:
    code = f"""
import signal, sys
sys.path = {[path for path in sys.path if path]}
from sb_dqn.cli.main import main
from sb_dqn.runs.episode_log import EpisodeLog
EpisodeLog._on_step = lambda log: log.num_timesteps != 60 or signal.raise_signal(signal.SIGINT) or True
main()
"""
    command = ["train", "dqn", "ALE/Pong-v5", "-n", str(steps), "--set", "learning_starts=30", "--set", "buffer_size=2000",
               "--eval-freq", "30", "--eval-episodes", "1", "--final-episodes", "1", "--final-steps", "20"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == status, done.stderr
    assert "nanobind" not in done.stderr


def test_warning_is_one_line_without_source_code() -> None:
    code = "import warnings, sb_dqn.cli.main as m; m.commands = lambda: warnings.warn('mind the gap'); m.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "UserWarning: mind the gap\n"
