"""Push and pull of models: folders, and a server that speaks for the Hugging Face hub."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import shutil
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml

from sb_dqn import DQN
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.hub import load_from_hub, pull_from_hub, push_to_hub
from sb_dqn.hub.card import CardContent, metadata, write_card
from sb_dqn.hub.checks import cluster_of
from sb_dqn.plotting import plot_curve
from sb_dqn.remotes.files import check_names, model_among
from sb_dqn.remotes.open import FolderRemote, new_folder, open_remote
from sb_dqn.runs.folder import FinalEvaluation, Result, write_config, write_result
from sb_dqn.runs.learner_processes import PARENT
from tests.command import run_main
from tests.hub.hub_server import READER, TOKEN, HubState, serve

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings(
    "ignore:Use 'content=:DeprecationWarning"
)  # between huggingface_hub and its HTTP client
REPO = "user/dqn-CartPole-v1"
RUN_FILES = ["README.md", "best_model.zip", "config.yaml", "curve.png", "model.zip", "monitor.csv", "policy.safetensors",
             "result.yaml"]  # fmt: skip
PULLED_FILES = sorted([*RUN_FILES, "origin.yaml"])
OBSERVATIONS = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
Call = Callable[..., tuple[int, str, str]]


def small_dqn(seed: int) -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", buffer_size=100, policy_kwargs={"net_arch": [8]}, seed=seed, device="cpu")


def actions(path: Path) -> list[int]:
    return list(DQN.load(path, device="cpu").predict(OBSERVATIONS, deterministic=True)[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the folder of a run, with files besides that no push may take."""
    folder = tmp_path_factory.mktemp("runs") / "dqn_CartPole-v1_1"
    folder.mkdir()
    model = small_dqn(0).learn(40)
    model.save(folder / "model.zip")
    small_dqn(1).save(folder / "best_model.zip")
    write_config(folder, {"algorithm": "DQN", "env_id": "CartPole-v1", "n_envs": 1, "env_kwargs": {}, "n_timesteps": 40,
                          "settings": {"learning_rate": 0.001, "seed": 0}})  # fmt: skip
    write_result(folder, Result(40, 1.5, (10.0, 14.0), FinalEvaluation(3, 24, 0.1)))
    (folder / "monitor.csv").write_text('#{"t_start": 0.0, "env_id": "CartPole-v1"}\nr,l,t\n20.0,20,0.1\n18.0,18,0.2\n')
    (folder / "vec_normalize.pkl").write_bytes(pickle.dumps([1]))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "full_40.zip").write_bytes(b"experience")
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies the run to `runs/` of a new current folder; learning curves are not drawn, which takes half a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sb_dqn.hub.package.plot_curve", lambda folder, picture, title: picture.write_bytes(b"curve"))
    return Path(shutil.copytree(trained, Path("runs") / trained.name))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubState]:
    with serve() as (address, state):
        use_hub(monkeypatch, address, tmp_path)
        yield state


def use_hub(monkeypatch: pytest.MonkeyPatch, address: str, folder: Path, token: str | None = TOKEN) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    if token is None:
        monkeypatch.delenv("HF_TOKEN", raising=False)
    else:
        monkeypatch.setenv("HF_TOKEN", token)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs `sb-dqn` with arguments; returns exit status, output and error output."""

    def run_command(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()  # progress bars of functions that the test called before
        status = run_main(*arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run_command


def refused(answer: tuple[int, str, str], *parts: str) -> None:
    """Checks that a command ended with status 2 and one line that has all parts."""
    status, _, error = answer
    assert status == 2, error
    lines = [line for line in error.splitlines() if line]
    assert len(lines) == 1, error
    for part in parts:
        assert part in lines[0]


# -- folders and the hub


def test_a_run_goes_to_a_folder_and_back(run: Path, call: Call) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    status, output, error = call("push", run, "./shared/cart", "--no-video")
    assert status == 0, error
    assert sorted(path.name for path in Path("shared/cart").iterdir()) == RUN_FILES
    assert output.splitlines()[-1] == str(Path("shared/cart"))
    status, output, error = call("pull", "./shared/cart")
    assert status == 0, error
    assert "DQN on CartPole-v1: runs/cart" in output.replace("\\", "/")
    for name in ("model.zip", "best_model.zip", "config.yaml", "result.yaml", "monitor.csv"):
        assert (Path("runs/cart") / name).read_bytes() == (run / name).read_bytes()
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in Path("runs").iterdir()) == ["cart", run.name]  # no temporary folder
    status, output, error = call("evaluate", "runs/cart", "--episodes", 2)
    assert status == 0, error
    assert "on CartPole-v1: mean return" in output


def test_a_run_goes_to_the_hub_and_back(run: Path, hub: HubState, call: Call) -> None:
    status, output, error = call("push", run, REPO, "--no-video", "--private", "--message", "First model")
    assert status == 0, error
    assert output.splitlines()[-1].endswith(f"/{REPO}")
    assert sorted(hub.repos[REPO]) == [".gitattributes", *RUN_FILES]
    assert hub.repos[REPO]["model.zip"] == (run / "model.zip").read_bytes()
    assert len(hub.uploaded) == 2  # both zips as large files
    assert (hub.messages, hub.private) == (["First model"], [REPO])
    status, output, error = call("pull", REPO, "--out", "theirs")
    assert status == 0, error
    assert "not downloaded" not in output
    assert sorted(path.name for path in Path("theirs").iterdir()) == PULLED_FILES
    assert actions(Path("theirs/model.zip")) == actions(run / "model.zip") != actions(run / "best_model.zip")
    assert not Path("cache").exists()  # the folder has the only copy


def test_load_from_hub_returns_a_file_to_load(run: Path, hub: HubState) -> None:
    model = DQN.load(run / "model.zip", device="cpu")
    pushed = push_to_hub(model, REPO, video=False)
    assert pushed.notes == ["no result and no film: the environment is not known. Name it (--env, env_id=)."]
    assert sorted(pushed.files) == ["README.md", "model.zip", "policy.safetensors"]
    assert actions(load_from_hub(REPO)) == actions(run / "model.zip")
    push_to_hub(run, Path("shared"), video=False)
    assert actions(load_from_hub(Path("shared"), "best_model.zip")) == actions(run / "best_model.zip")


def test_the_weights_are_safetensors_of_the_policy(run: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    push_to_hub(run, "./shared", video=False)
    weights = safetensors.load_file("shared/policy.safetensors")
    expected = DQN.load(run / "model.zip", device="cpu").policy.state_dict()
    assert weights.keys() == expected.keys()
    assert all((weights[name] == tensor).all() for name, tensor in expected.items())


def test_the_card_has_the_metadata_of_the_hub(run: Path, hub: HubState) -> None:
    from huggingface_hub import ModelCard

    push_to_hub(run, REPO, video=False)
    card: Any = ModelCard(hub.repos[REPO]["README.md"].decode())
    assert card.data.library_name == "sb_dqn"
    assert card.data.pipeline_tag == "reinforcement-learning"
    assert card.data.tags == ["CartPole-v1", "DQN", "deep-reinforcement-learning", "reinforcement-learning", "sb_dqn"]
    (result,) = card.data.eval_results
    assert (result.task_type, result.dataset_name) == ("reinforcement-learning", "CartPole-v1")
    assert (result.metric_type, result.metric_value) == ("mean_reward", "12.00 +/- 2.00")  # 10 and 14
    assert "the 2 of 3 greedy episodes that finished" in card.text
    assert "![Learning curve](curve.png)" in card.text
    assert "(replay.mp4)" not in card.text
    assert f"sb-dqn pull {REPO}\nsb-dqn evaluate runs/dqn-CartPole-v1\n" in card.text
    assert "learning_rate: 0.001" in card.text
    assert f'from sb_dqn import DQN\n\nmodel = DQN.from_pretrained("{REPO}")\n' in card.text
    assert DQN.from_pretrained(REPO).num_timesteps == 40


def test_a_zip_alone_is_evaluated_on_a_named_environment(run: Path, tmp_path: Path, call: Call) -> None:
    shutil.copy(run / "model.zip", tmp_path / "mine.zip")
    status, _, error = call("push", "mine", "./shared", "--env", "CartPole-v1", "--episodes", 2, "--no-video")
    assert status == 0, error
    assert sorted(path.name for path in Path("shared").iterdir()) == ["README.md", "model.zip", "policy.safetensors"]
    text = Path("shared/README.md").read_text(encoding="utf-8")
    value = yaml.safe_load(text.split("---\n")[1])["model-index"][0]["results"][0]["metrics"][0]["value"]
    mean, _, std = value.partition(" +/- ")
    assert 1 <= float(mean) <= 500
    assert float(std) >= 0
    assert "over 2 greedy episodes" in text
    status, output, _ = call("pull", "./shared", "--out", "theirs")
    assert "evaluate theirs --env CartPole-v1" in output
    assert call("evaluate", "theirs", "--env", "CartPole-v1", "--episodes", 1)[0] == 0


def test_a_best_model_is_pushed_without_the_result_of_the_last(run: Path) -> None:
    pushed = push_to_hub(run / "best_model.zip", "./shared", n_eval_episodes=0, video=False)
    assert pushed.files == ["README.md", "config.yaml", "curve.png", "model.zip", "monitor.csv", "policy.safetensors"]
    assert Path("shared/model.zip").read_bytes() == (run / "best_model.zip").read_bytes()
    assert "mean_reward" not in Path("shared/README.md").read_text(encoding="utf-8")


def test_a_learning_curve_and_a_film(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pygame", "imageio_ffmpeg"):
        pytest.importorskip(package, reason="films need the extra video")
    monkeypatch.setattr("sb_dqn.hub.package.plot_curve", plot_curve)
    pushed = push_to_hub(run, "./shared")
    assert pushed.notes == []
    assert Path("shared/curve.png").read_bytes().startswith(b"\x89PNG")
    assert Path("shared/replay.mp4").read_bytes()[4:8] == b"ftyp"
    assert "(replay.mp4)" in Path("shared/README.md").read_text(encoding="utf-8")


def test_a_picture_and_a_film_that_cannot_be_made_are_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ConfigurationError("no screen\nat all")

    monkeypatch.setattr("sb_dqn.hub.package.play_rendered", fail)
    monkeypatch.setattr("sb_dqn.hub.package.plot_curve", fail)
    pushed = push_to_hub(run, "./shared")
    assert pushed.notes == ["no film: no screen", "no learning curve: no screen"]
    assert pushed.files == [name for name in RUN_FILES if name != "curve.png"]


# -- nothing is lost


@pytest.mark.parametrize("repo", [REPO, "./shared"])
def test_a_second_push_needs_overwrite(repo: str, run: Path, hub: HubState, call: Call) -> None:
    assert call("push", run, repo, "--no-video")[0] == 0
    shutil.copy(run / "best_model.zip", "other.zip")
    again = ("push", "other.zip", repo, "--episodes", 0, "--no-video")
    refused(call(*again), "must be new or empty", "with 8 files", "--overwrite")
    assert call("pull", repo, "--out", "one")[0] == 0
    assert actions(Path("one/model.zip")) == actions(run / "model.zip")
    status, _, error = call(*again, "--overwrite")
    assert status == 0, error
    assert call("pull", repo, "--out", "two")[0] == 0
    assert actions(Path("two/model.zip")) == actions(run / "best_model.zip")
    pulled = ["README.md", "model.zip", "origin.yaml", "policy.safetensors"]
    assert sorted(path.name for path in Path("two").iterdir()) == pulled


@pytest.mark.parametrize("kept", ["runs/dqn_CartPole-v1_1", "notes"])
def test_a_push_never_replaces_other_folders(kept: str, run: Path, call: Call) -> None:
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("mine")
    before = sorted(path.name for path in Path(kept).iterdir())
    cardless = "which has no model.zip with a README.md of this library"
    message = "must not be the folder of the run" if kept.startswith("runs") else cardless
    refused(call("push", run / "best_model.zip", f"./{kept}", "--no-video", "--overwrite"), message)
    assert sorted(path.name for path in Path(kept).iterdir()) == before


def test_a_pull_needs_a_new_folder(run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    Path("theirs").mkdir()
    assert call("pull", "./shared", "--out", "theirs")[0] == 0  # an empty one is as good
    Path("theirs/model.zip").write_text("mine")
    refused(call("pull", "./shared", "--out", "theirs"), "must be new or empty, got theirs", "--out")
    refused(call("pull", "./shared", "--out", "theirs/model.zip"), "must be new or empty")
    assert Path("theirs/model.zip").read_text() == "mine"


def test_a_stopped_pull_leaves_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push_to_hub(run, "./shared", video=False)
    copied: list[str] = []

    def stop_at_third(self: FolderRemote, name: str, target: Path) -> None:
        target.write_text("copied")
        copied.append(name)
        if len(copied) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(FolderRemote, "download", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        pull_from_hub("./shared", "new")
    assert len(copied) == 3
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "shared"]


def test_an_error_leaves_no_half_folder(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        with new_folder(folder) as temporary:
            (temporary / "file").write_text("half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fill(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


# -- what cannot be used


def test_the_extra_is_named(run: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    refused(call("push", run, REPO), 'Run pip install "sb_dqn[hub]"')
    refused(call("pull", REPO), 'Run pip install "sb_dqn[hub]"')
    assert call("push", run, "./shared", "--no-video")[0] == 0  # a folder needs no extra
    assert call("pull", "./shared")[0] == 0


def test_no_network(run: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    use_hub(monkeypatch, address, tmp_path)
    refused(
        call("push", run, REPO, "--no-video"),
        f"{address} must be reachable and answer as the Hugging Face hub does, got ConnectError",
        "./dqn-CartPole-v1",
    )
    refused(
        call("pull", REPO), f"{address} must be reachable and answer as the Hugging Face hub does, got ConnectError"
    )
    assert not Path("runs/dqn-CartPole-v1").exists()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "a token must be set to push to user/dqn-CartPole-v1, got none. Log in with `hf auth login`, or set HF_TOKEN"),
        ("hf_wrong", "the token must be valid, got one that http://127.0.0.1"),
        (READER, "the token must have write access to user/dqn-CartPole-v1, got one that may not do this (403)"),
    ],
)  # fmt: skip
def test_wrong_tokens(
    token: str | None,
    message: str,
    run: Path,
    call: Call,
    hub: HubState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from huggingface_hub import constants

    use_hub(monkeypatch, constants.ENDPOINT, tmp_path, token)
    refused(call("push", run, REPO, "--no-video"), message)
    assert hub.repos == {}
    if token == "hf_wrong":
        refused(call("pull", REPO), message)


@pytest.mark.parametrize(
    ("repo", "message"),
    [
        ("user/none", "user/none must be a repository that exists and that you may read, got none at http://127.0.0.1"),
        ("none", "repo must be USER/NAME on the Hugging Face hub, or a folder that begins with ./ or /, got 'none'"),
        ("./none", "must be a folder that exists, got none"),
        ("user/a--b", "repo must be a valid repository id, got 'user/a--b'"),
    ],
)
def test_repositories_that_do_not_exist(repo: str, message: str, hub: HubState, call: Call, tmp_path: Path) -> None:
    refused(call("pull", repo, "--out", tmp_path / "new"), message)
    assert not (tmp_path / "new").exists()


def test_a_gated_repository_and_a_broken_server(run: Path, hub: HubState, call: Call) -> None:
    push_to_hub(run, REPO, video=False)
    hub.gated.append(REPO)
    refused(call("pull", REPO), "must be open to you, got a gated repository. Accept its terms at http://127.0.0.1")
    hub.broken = True
    refused(call("pull", REPO), "must accept the request, got status 503", "Try again later")


def test_a_folder_has_no_other_folders(run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    Path("shared/deep/er").mkdir(parents=True)
    Path("shared/deep/er/model.zip").write_text("other")
    Path("shared/notes.txt").write_text("mine")
    status, output, _ = call("pull", "./shared")
    assert status == 0
    assert "not downloaded: notes.txt\n" in output


def test_many_other_files_are_counted(run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    for number in range(13):
        Path(f"shared/{number:02}.txt").touch()
    output = call("pull", "./shared")[1]
    assert "not downloaded: 00.txt, 01.txt, " in output
    assert ", 09.txt and 3 more\n" in output


def test_a_class_of_the_user_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model can be pushed, but not played."""
    import sb_dqn.runs.run

    def unknown(name: str) -> Any:
        raise click.UsageError("ALGO must be one of ..., got 'Mine'.")

    monkeypatch.setattr(sb_dqn.runs.run, "algorithm_class", unknown)
    with pytest.raises(
        ConfigurationError, match=r"the model must be loadable to be evaluated, got an error .ALGO .* n_eval_episodes=0"
    ):
        push_to_hub(run / "best_model.zip", "./shared")
    pushed = push_to_hub(run / "best_model.zip", "./shared", n_eval_episodes=0)
    assert pushed.notes == ["no film: ALGO must be one of ..., got 'Mine'."]


def test_an_unknown_revision(run: Path, hub: HubState, call: Call) -> None:
    push_to_hub(run, REPO, video=False)
    refused(call("pull", REPO, "--revision", "v9"), "revision must be a branch, tag or commit of", "got 'v9'")
    refused(call("pull", "./shared", "--revision", "v9"), "revision must not be set for a folder")


@pytest.mark.parametrize(
    ("kind", "file", "message"),
    [
        ("damaged", "model.zip", "user/dqn-CartPole-v1: model.zip"),
        ("damaged", "best_model.zip", "user/dqn-CartPole-v1: best_model.zip"),
        ("cut", "model.zip", "peer closed connection without sending complete message"),
    ],
)
def test_damaged_downloads(
    kind: str, file: str, message: str, run: Path, hub: HubState, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # huggingface_hub waits before it tries again
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "disabled", True)
    monkeypatch.setattr(logging.getLogger("huggingface_hub.file_download"), "disabled", True)  # and reports each try
    push_to_hub(run, REPO, video=False)
    assert call("pull", REPO, "--out", "whole")[0] == 0
    getattr(hub, kind).add(file)
    refused(call("pull", REPO, "--out", "new"), message)
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "whole"]


@pytest.mark.parametrize(
    "text",
    [
        "- a list",
        "env_id: CartPole-v1\nenv_kwargs: {}",
        "!!python/object/apply:os.mkdir [hacked]",
        "env_id: [",
        {"env_id": 7},
        {"env_id": "CartPole-v1; touch hacked"},
        {"env_id": "\x1b[2J"},
        {"env_kwargs": None},
        {"settings": "none"},
    ],
    ids=str,
)
def test_settings_with_another_content(text: str | dict[str, Any], run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    config = yaml.safe_load(Path("shared/config.yaml").read_text())
    Path("shared/config.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(config | text))
    refused(call("pull", "./shared", "--out", "new"), "config.yaml of shared must be that of a run of sb-dqn")
    assert sorted(path.name for path in Path().iterdir()) == ["runs", "shared"]


@pytest.mark.parametrize(
    ("actors", "address"),
    [
        ("ray:8@evil:6379", "evil:6379"),
        ({"processes": 2, "address": "evil:6379"}, "evil:6379"),
        ({"~": "object", "name": "RayActors", "fields": {"processes": 2, "address": "evil:6379"}}, "evil:6379"),
        ("ray:8@auto", None),
        ({"~": "object", "name": "RayActors", "fields": {"processes": 2, "address": None}}, None),
        ("process:8x2", None),
        (None, None),
    ],
)
def test_the_ray_cluster_of_a_training(actors: Any, address: str | None) -> None:
    assert cluster_of({"actors": actors}) == address


def test_settings_with_a_ray_cluster_are_neither_pushed_nor_pulled(run: Path, call: Call) -> None:
    """A cluster runs code of its own, and a further training would connect to it."""
    push_to_hub(run, "./shared", video=False)
    for folder in (run, Path("shared")):
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["settings"]["actors"] = "ray:8@evil:6379"
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    refused(
        call("pull", "./shared", "--out", "new"), "must name no Ray cluster, got actors at 'evil:6379'", "actors=None"
    )
    refused(call("push", run, "./other"), "must name no Ray cluster")
    assert not Path("new").exists()


def test_paths_of_a_further_training_are_named(run: Path, call: Call) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=100, tensorboard_log="logs", device="cpu")
    push_to_hub(model, "./shared", video=False)
    assert "a further training would write to tensorboard_log='logs'. Change it" in call("pull", "./shared")[1]


@pytest.mark.parametrize("where", ["file/new", "file"])
def test_folders_that_cannot_be_made(where: str, run: Path, call: Call) -> None:
    Path("file").write_text("mine")
    push_to_hub(run, "./shared", video=False)
    refused(call("push", run, f"./{where}", "--no-video"), "must be")
    refused(call("pull", "./shared", "--out", where), "must be")
    assert Path("file").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["../model.zip", "/etc/model.zip", "a/../../b", "C:\\model.zip", "..\\model.zip", "", "a\x1b[2J"]
)
def test_files_outside_the_repository(name: str) -> None:
    check_names(["model.zip", "logs/..model.zip", "a/b/c.zip"], REPO)
    with pytest.raises(CheckpointError, match="must lie inside its folder"):
        check_names(["model.zip", name], REPO)


def test_a_server_cannot_write_outside(run: Path, hub: HubState, call: Call) -> None:
    push_to_hub(run, REPO, video=False)
    hub.repos[REPO]["../../evil.zip"] = b"evil"
    refused(call("pull", REPO), "must lie inside its folder, got '../../evil.zip'")
    assert not any("evil" in request for request in hub.requests)
    assert not Path("runs/dqn-CartPole-v1").exists()


def test_other_files_are_not_downloaded(run: Path, hub: HubState, call: Call) -> None:
    push_to_hub(run, REPO, video=False)
    hub.repos[REPO] |= {"vec_normalize.pkl": b"", "code/model.py": b"", "model.zip.py": b""}
    status, output, _ = call("pull", REPO)
    assert status == 0
    assert "not downloaded: code/model.py, model.zip.py, vec_normalize.pkl" in output
    assert sorted(path.name for path in Path("runs/dqn-CartPole-v1").iterdir()) == PULLED_FILES


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "got no files"),
        (["pytorch_model.bin", "README.md"], "got README.md, pytorch_model.bin"),
        (["train_eval_metrics.zip"], "must have a model.zip or another zip"),
        (["a.zip", "b.zip"], "or only one other zip, got a.zip, b.zip"),
    ],
)
def test_repositories_without_a_model(names: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        model_among(names, REPO)


def test_the_model_of_a_repository() -> None:
    assert model_among(["best_model.zip", "model.zip"], REPO) == "model.zip"
    assert model_among(["dqn-CartPole-v1.zip", "train_eval_metrics.zip", "logs/old.zip"], REPO) == "dqn-CartPole-v1.zip"
    assert model_among(["a.zip", "b.zip"], REPO, "b.zip") == "b.zip"
    with pytest.raises(ConfigurationError, match="must be a file of user/.*, got 'c.zip'.* Did you mean"):
        model_among(["a.zip", "b.zip"], REPO, "c.zip")


def test_a_model_of_stable_baselines3(
    hub: HubState, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    theirs = sb3.DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
    theirs.save("dqn-CartPole-v1.zip")
    card = "---\nmodel-index:\n- name: DQN\n  results:\n  - dataset: {name: CartPole-v1}\n---\n# DQN\n"
    hub.repos["sb3/dqn"] = {
        "dqn-CartPole-v1.zip": Path("dqn-CartPole-v1.zip").read_bytes(),
        "README.md": card.encode(),
        "config.yml": b"not ours",
        "train_eval_metrics.zip": b"not a model",
    }
    status, output, error = call("pull", "sb3/dqn")
    assert status == 0, error
    assert "not downloaded: config.yml, train_eval_metrics.zip" in output
    assert "evaluate runs/dqn --env CartPole-v1" in output.replace("\\", "/")
    assert actions(Path("runs/dqn/model.zip")) == list(theirs.predict(OBSERVATIONS, deterministic=True)[0])
    status, output, error = call("evaluate", "runs/dqn", "--env", "CartPole-v1", "--episodes", 1)
    assert status == 0, error
    refused(call("push", "dqn-CartPole-v1.zip", "./shared"), "which Stable-Baselines3 wrote")


def zip_of(**members: bytes) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return raw.getvalue()


class Bomb:
    def __reduce__(self) -> Any:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "model.zip is empty"),
        (b"no zip at all", "model.zip is not a model file of sb_dqn"),
        (pickle.dumps(Bomb()), "it is a pickle"),
        (zip_of(data=b"{}", policy__pth=pickle.dumps(Bomb())), "must hold tensors only"),
        (zip_of(data__pkl=b""), "it has no 'manifest.json'"),
    ],
    ids=["empty", "text", "pickle", "pickle in a zip of Stable-Baselines3", "other zip"],
)
def test_models_of_others_run_no_code(
    content: bytes, message: str, hub: HubState, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hub.repos["other/model"] = {"other.zip": content}
    refused(call("pull", "other/model"), "other/model: model.zip", message.removeprefix("model.zip "))
    assert list(Path().rglob("*")) in ([], [Path("runs")])


def test_what_cannot_be_pushed(run: Path, call: Call) -> None:
    refused(call("push", "nothing", "./shared"), "must be the folder of a run, or a model file, got nothing")
    refused(call("push", "runs", "./shared"), "must be a folder with model.zip, got runs")
    model = small_dqn(0).learn(10)
    model.save("full.zip", full=True)
    refused(call("push", "full.zip", "./shared"), "a full checkpoint")
    model.save_replay_buffer("replay.zip")
    refused(call("push", "replay.zip", "./shared"), "must hold a model, got a 'replay'")
    damaged = bytearray((run / "model.zip").read_bytes())
    damaged[len(damaged) // 2] ^= 255
    (run / "model.zip").write_bytes(damaged)
    refused(call("push", run, "./shared"), "model.zip", "Load another copy")
    refused(call("push", run / "best_model.zip", "./shared", "--env", "NoSuch-v0"), "NoSuch-v0")
    refused(call("push", run / "best_model.zip", "shared"), "For a folder write ./shared")
    assert not Path("shared").exists()


# -- doors


@pytest.mark.parametrize("name", ["model.zip", "README.md", "progress.csv", "config.yaml"])
def test_a_pull_follows_no_link_out_of_the_folder(name: str, run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    Path("secret").write_bytes((run / "model.zip").read_bytes() if name == "model.zip" else b"a secret")
    (Path("shared") / name).unlink(missing_ok=True)
    (Path("shared") / name).symlink_to(Path("secret").resolve())
    refused(call("pull", "./shared"), f"shared/{name} must lie inside its folder, got a link to ", "remove the link")
    assert not Path("runs/shared").exists()
    if name == "model.zip":
        with pytest.raises(CheckpointError, match="must lie inside its folder"):
            load_from_hub("./shared")


def test_a_link_inside_the_folder_is_read(run: Path) -> None:
    push_to_hub(run, "./shared", video=False)
    Path("shared/curve.png").rename("shared/picture.png")
    Path("shared/curve.png").symlink_to("picture.png")
    assert (pull_from_hub("./shared").folder / "curve.png").read_bytes() == b"curve"


@pytest.mark.parametrize("name", ["model.zip", "progress.csv", "config.yaml", "other.monitor.csv"])
def test_a_push_follows_no_link_out_of_the_run(name: str, run: Path, call: Call) -> None:
    (run / name).rename("secret") if (run / name).exists() else Path("secret").write_text("secret")
    (run / name).symlink_to(Path("secret").resolve())
    refused(call("push", run, "./shared", "--no-video"), f"{name} must lie inside its folder, got a link to ")
    assert not Path("shared").exists()
    Path("mine.zip").symlink_to(run / "best_model.zip")
    push_to_hub("mine.zip", "./shared", n_eval_episodes=0, video=False)  # the user names this one


def test_a_push_writes_through_no_link(run: Path) -> None:
    push_to_hub(run, "./shared", video=False)
    Path("mine").write_text("mine")
    for name in (".README.md.new", "progress.csv"):
        Path("shared", name).unlink(missing_ok=True)
        Path("shared", name).symlink_to(Path("mine").resolve())
    push_to_hub(run, "./shared", video=False, overwrite=True)
    assert Path("mine").read_text() == "mine"
    assert "DQN on CartPole-v1" in Path("shared/README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("repo", [REPO, "./shared"])
def test_a_pull_has_a_limit_of_size(repo: str, run: Path, hub: HubState, call: Call) -> None:
    push_to_hub(run, repo, video=False)
    film = bytes(3 << 20)
    if repo == REPO:
        hub.repos[REPO]["replay.mp4"] = film
    else:
        Path("shared/replay.mp4").write_bytes(film)
    hub.requests.clear()
    refused(call("pull", repo, "--max-size", 2), f"{repo.removeprefix('./')} must have at most 2,097,152 bytes, got 3,")
    assert not any("resolve" in request for request in hub.requests)
    assert call("pull", repo, "--max-size", 4, "--out", "new")[0] == 0
    with pytest.raises(ConfigurationError, match="must have at most 10 bytes"):
        load_from_hub(repo, max_size=10)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.yaml", "a: &a [1]\nb: *a\n", "it has an alias"),
        ("config.yaml", "# " + "x" * (1 << 18), "it has more than 262144 bytes"),
        ("result.yaml", "a: &a [1]\nb: *a\n", "it has an alias"),
    ],
)
def test_settings_that_grow_are_refused(name: str, content: str, message: str, run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    Path("shared", name).write_text(content)
    refused(call("pull", "./shared"), f"{name} of shared must be that of a run of sb-dqn", message)


def test_compressed_evaluations_are_refused(run: Path, call: Call) -> None:
    push_to_hub(run, "./shared", video=False)
    np.savez_compressed("shared/evaluations.npz", results=np.zeros(1 << 20))
    refused(call("pull", "./shared"), "evaluations.npz of shared must be an uncompressed zip of arrays")
    np.savez("shared/evaluations.npz", results=np.zeros(3))
    assert call("pull", "./shared")[0] == 0


MODULE = """from pathlib import Path
Path("ran").touch()
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
gymnasium.register("Foreign-v0", CartPoleEnv, max_episode_steps=9)
"""


@pytest.fixture
def foreign(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pulls a run whose environment imports a module of this folder."""
    import gymnasium

    Path("foreign_module.py").write_text(MODULE)
    monkeypatch.syspath_prepend(".")
    push_to_hub(run, "./shared", video=False)
    config = yaml.safe_load(Path("shared/config.yaml").read_text())
    Path("shared/config.yaml").write_text(yaml.safe_dump({**config, "env_id": "foreign_module:Foreign-v0"}))
    pulled = pull_from_hub("./shared")
    assert pulled.notes == [
        "its environment imports the module 'foreign_module', whose code is run: see who wrote it first."
    ]
    yield pulled.folder
    sys.modules.pop("foreign_module", None)
    gymnasium.registry.pop("Foreign-v0", None)


COMMANDS = (("evaluate",), ("enjoy", "--video", "film.gif"), ("resume", "--timesteps", "9"), ("report", "--film"))


def test_a_pulled_run_imports_no_module_without_consent(foreign: Path, call: Call) -> None:
    for command, *options in COMMANDS:
        status, _, error = call(command, foreign, *options)
        assert status == 2, error
        assert "--trust must be set" in " ".join(error.split())
        assert "imports and so runs foreign_module" in " ".join(error.split())
    refused(call("push", foreign, "./again", "--no-video", "--episodes", 1), "env_id must be set", "foreign_module")
    assert not Path("ran").exists()


def test_a_pulled_run_may_be_trusted(foreign: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sb_dqn.runs.trust.sys.stdin", io.StringIO("n\n"))
    monkeypatch.setattr("sb_dqn.runs.trust.sys.stdin.isatty", lambda: True)
    status, output, _ = call("evaluate", foreign)
    assert status == 1
    assert "Go on? [y/N]" in output
    assert not Path("ran").exists()
    status, output, error = call("evaluate", foreign, "--trust", "--episodes", 1)
    assert status == 0, error
    assert Path("ran").exists()
    assert "on foreign_module:Foreign-v0: mean return" in output


def test_the_learners_of_a_run_do_not_ask_again(foreign: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their questions would be invisible, as their output is."""
    for name in (PARENT, "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    command = ("train", "--resume", foreign, "--timesteps", 9, "--final-episodes", 0)
    assert "--trust must be set" in " ".join(call(*command)[2].split())
    assert not Path("ran").exists()
    monkeypatch.setenv(PARENT, str(os.getppid()))
    assert call(*command)[0] == 0
    assert Path("ran").exists()


def test_an_environment_that_is_named_needs_no_trust(foreign: Path, call: Call) -> None:
    assert call("evaluate", foreign, "--env", "foreign_module:Foreign-v0", "--episodes", 1)[0] == 0
    config = yaml.safe_load((foreign / "config.yaml").read_text())
    inner = {"env_id": "CartPole-v1", "env_kwargs": {"wrapped": ["foreign_module:Foreign-v0"]}}
    (foreign / "config.yaml").write_text(yaml.safe_dump({**config, **inner}))
    assert "--trust must be set" in " ".join(call("evaluate", foreign)[2].split())
    (foreign / "origin.yaml").unlink()  # a run of this machine
    (foreign / "config.yaml").write_text(yaml.safe_dump(config))
    assert call("evaluate", foreign, "--episodes", 1)[0] == 0


@pytest.mark.parametrize(
    "asked",
    [
        {"settings": {"actors": "process:20000"}},
        {"settings": {"actors": "process:1x300000"}},
        {"n_envs": 300_000},
        {"learners": 1000},
    ],
)
def test_a_resumed_run_asks_before_it_starts_very_many(asked: dict[str, Any], run: Path, call: Call) -> None:
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump({**config, **asked}))
    started = time.monotonic()
    for command in (("resume", run, "--timesteps", 9), ("train", "--resume", run)):
        status, _, error = call(*command)
        assert status == 2, error
        assert "--trust must be set" in " ".join(error.split())
    assert time.monotonic() - started < 20


def test_markup_of_settings_ends_no_block_of_the_card() -> None:
    settings = {"a": "```\n<script>alert(1)</script>\n````", "b\n```\n# c": 1}
    text = write_card(CardContent("./a'; rm -rf `b`", "DQN", None, Result(10, 0.0), settings=settings))
    markdown = pytest.importorskip("markdown_it", reason="reads Markdown")
    tokens = markdown.MarkdownIt().parse(text.split("---\n", 2)[2])
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2", "h2"]
    assert not any(token.type.startswith("html") for token in tokens)
    (bash,) = [token.content for token in tokens if token.type == "fence" and token.info == "bash"]
    assert "pull './a'\"'\"'; rm -rf `b`'\n" in bash


@pytest.mark.parametrize("env", ["<script>-v0", "a](x)-v0", "a\nb-v0"])
def test_an_id_with_markup_is_refused(env: str, run: Path) -> None:
    with pytest.raises(ConfigurationError, match="env_id must have letters, digits"):
        push_to_hub(run / "best_model.zip", "./shared", env_id=env, n_eval_episodes=0, video=False)


def test_a_class_with_markup_or_control_characters_is_refused(run: Path, call: Call) -> None:
    from scripts.benchmarks.fuzz_reader import members, zipped

    push_to_hub(run / "best_model.zip", "./shared", n_eval_episodes=0, video=False)
    parts = members(Path("shared/model.zip").read_bytes())
    manifest = json.loads(parts.pop("manifest.json"))
    Path("shared/model.zip").write_bytes(zipped(parts, {**manifest, "class": "DQN](x)\x1b[2J"}))
    refused(call("pull", "./shared"), "has a manifest without class")
    shutil.copy("shared/model.zip", "mine.zip")
    error = call("evaluate", "mine.zip", "--env", "CartPole-v1")[2]
    assert error
    assert "\x1b" not in error


# -- parts


@pytest.mark.parametrize("repo", ["./a", "../a", "/a/b", "~/a", ".\\a", Path("user/name")])
def test_folders_are_recognized(repo: str | Path) -> None:
    assert isinstance(open_remote(repo), FolderRemote)


@pytest.mark.parametrize("repo", ["a", "a/b/c", "-a/b", "https://huggingface.co/a/b", "a/b c", ""])
def test_what_is_neither_folder_nor_repository(repo: str) -> None:
    with pytest.raises(ConfigurationError, match="repo must be USER/NAME"):
        open_remote(repo)


def test_settings_are_listed_one_by_line() -> None:
    linear = {"~": "object", "name": "Linear", "fields": {"start": 0.4, "end": 1.0, "steps": None}}
    settings = {
        "policy": "MlpPolicy",
        "tau": 1,
        "net_arch": [8, 8],
        "beta": linear,
        "noisy": {"kind": "a: b", "x": linear},
    }
    text = write_card(CardContent("user/name", "DQN", None, Result(10, 0.0, (3.0,)), settings=settings))
    assert text.split("## Settings\n\n```yaml\n")[1].split("\n```")[0].splitlines() == [
        "policy: MlpPolicy",
        "tau: 1",
        "net_arch: [8, 8]",
        "beta: Linear(start=0.4, end=1.0, steps=null)",
        "noisy: {kind: 'a: b', x: Linear(start=0.4, end=1.0, steps=null)}",
    ]
    assert "| Mean return | 3.00 ± 0.00 over 1 greedy episode |" in text


def test_a_card_without_a_score_has_no_result() -> None:
    content = CardContent("user/name", "DQN", "CartPole-v1", Result(10, 0.0))
    assert "model-index" not in metadata(content)
    scored = CardContent("user/name", "DQN", None, Result(10, 0.0, (1.0,)))  # of an unknown environment
    assert "model-index" not in metadata(scored)
    assert metadata(scored)["tags"][0] == "DQN"


def test_a_push_does_not_take_a_project_for_a_pushed_model(run: Path, call: Call) -> None:
    Path("project").mkdir()
    files = {"README.md": "# My project\n", "config.yaml": "mine", "model.zip": "mine"}
    for name, text in files.items():
        Path("project", name).write_text(text)
    refused(
        call("push", run, "./project", "--no-video", "--overwrite"), "no model.zip with a README.md of this library"
    )
    assert {path.name: path.read_text() for path in Path("project").iterdir()} == files
