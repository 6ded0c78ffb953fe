"""Callbacks of Weights & Biases and MLflow, against small modules that record the same calls; the real packages where installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sb_dqn import DQN, PPO, make_vec_env
from sb_dqn.callbacks import BaseCallback, CheckpointCallback, MLflowCallback, WandbCallback
from sb_dqn.callbacks.tracking import env_name, flatten, run_settings
from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import Figure, HParam, Image, Video
from tests.tiny import quick

pytestmark = pytest.mark.usefixtures("eagerly")


class Fails(BaseCallback):
    """Raises at a step."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at:
            raise ValueError("on purpose")
        return True


class LogsMedia(BaseCallback):
    """Logs one value of each kind at step 2."""

    def _on_step(self) -> bool:
        if self.num_timesteps == 2:
            text_sinks = ("stdout", "log", "csv", "json")
            pixels = np.zeros((1, 2, 3, 4, 6), np.uint8)
            figure = SimpleNamespace(savefig=lambda path: path.write_bytes(b"png"))
            self.logger.record("media/video", Video(pixels, 10), exclude=text_sinks)
            self.logger.record("media/image", Image(pixels[0, 0], "CHW"), exclude=text_sinks)
            self.logger.record("media/figure", Figure(figure, close=False), exclude=text_sinks)
            self.logger.record("hparams", HParam({"gamma": 0.9}, {"x": 0.0}), exclude=text_sinks)
            self.logger.record("note (1)", "text")
            self.logger.record("weights", np.array([1.0, 2.0]))
            self.logger.record("hidden", 1, exclude=("wandb", "mlflow"))
            self.logger.dump(self.num_timesteps)
        return True


# -- Weights & Biases


class WandbRun:
    """Run that stores what it is sent."""

    def __init__(self, run_id: str, config: dict[str, Any]) -> None:
        self.id, self.config_values, self.url, self.dir = run_id, config, None, "folder"
        self.config = self
        self.history: list[dict[str, Any]] = []
        self.artifacts: list[tuple[str, dict[str, bytes], list[str]]] = []
        self.axes: list[Any] = []
        self.exit_code: int | None = None

    def keys(self) -> Any:
        return self.config_values.keys()

    def __getitem__(self, name: str) -> Any:
        return self.config_values[name]

    def update(self, values: dict[str, Any], allow_val_change: bool = False) -> None:
        assert allow_val_change or not set(values) & set(self.config_values)
        self.config_values.update(values)

    def define_metric(self, name: str, step_metric: str | None = None, step_sync: bool | None = None) -> None:
        self.axes.append((name, step_metric))

    def log(self, values: dict[str, Any]) -> None:
        self.history.append(values)

    def log_artifact(self, artifact: Any, aliases: list[str]) -> None:
        self.artifacts.append((artifact.name, artifact.files, aliases))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code
        sys.modules["wandb"].run = None  # type: ignore[attr-defined]


class Artifact:
    def __init__(self, name: str, type: str, metadata: dict[str, Any]) -> None:
        self.name, self.files = name, {}  # type: ignore[var-annotated]

    def add_file(self, path: str, name: str) -> None:
        self.files[name] = Path(path).read_bytes()  # a copy: the file is temporary


class Wandb(ModuleType):
    """The calls of wandb that the callback makes."""

    class Error(Exception):
        pass

    Artifact = Artifact

    def __init__(self) -> None:
        super().__init__("wandb")
        self.run: WandbRun | None = None
        self.runs: list[WandbRun] = []
        self.calls: list[dict[str, Any]] = []
        self.logged_in = True
        for kind in ("Video", "Image"):
            setattr(self, kind, lambda path, kind=kind: (kind, Path(path).suffix, Path(path).is_file()))
        self.Histogram = lambda array: ("Histogram", array.tolist())

    def init(
        self, project: str | None = None, name: str | None = None, id: str | None = None, resume: str | None = None
    ) -> WandbRun:
        if not self.logged_in:
            raise self.Error("api_key not configured (no-tty).\n call wandb.login")
        self.calls.append({"project": project, "name": name, "id": id, "resume": resume})
        self.run = WandbRun(id or f"run{len(self.runs)}", {"mine": 1, "gamma": 0.5})
        self.runs.append(self.run)
        return self.run


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    module = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_wandb_has_every_log_line_at_its_step(wandb: Wandb) -> None:
    callback = WandbCallback("project", name="first")
    model = quick(gamma=0.9).learn(30, callback=callback, log_interval=2)
    (run,) = wandb.runs
    assert wandb.calls == [{"project": "project", "name": "first", "id": None, "resume": None}]
    assert run.axes == [("global_step", None), ("*", "global_step")]
    assert [line["global_step"] for line in run.history] == [10, 20, 30]  # two episodes of five steps each
    assert [line["time/episodes"] for line in run.history] == [2, 4, 6]
    assert "rollout/ep_rew_mean" in run.history[0]
    assert "train/loss" in run.history[-1]
    assert run.config_values["gamma"] == 0.9  # of the model, not that of a sweep's default
    assert run.config_values["mine"] == 1
    assert run.config_values["total_timesteps"] == 30
    assert run.exit_code == 0
    assert callback.run_id == "run0"
    assert callback._sink not in model.logger.output_formats


def test_wandb_has_the_log_lines_of_a_logger_of_stable_baselines3(wandb: Wandb) -> None:
    theirs = pytest.importorskip("stable_baselines3.common.logger", reason="the peer, installed by the test extra")
    own: Any = type("OwnLogger", (theirs.Logger,), {})  # a user's class
    for number, kind in enumerate((theirs.Logger, own)):
        model = quick(gamma=0.9)
        model.set_logger(kind(None, []))
        callback = WandbCallback()
        model.learn(30, callback=callback, log_interval=2)
        assert [line["time/episodes"] for line in wandb.runs[number].history] == [2, 4, 6]
        assert callback._sink not in model.logger.output_formats


def test_wandb_has_the_model_files(wandb: Wandb, tmp_path: Path) -> None:
    quick().learn(30, callback=WandbCallback(save_freq=12))
    artifacts = wandb.runs[0].artifacts
    assert [aliases for _, _, aliases in artifacts] == [
        ["latest", "step-12"], ["latest", "step-24"], ["latest", "step-30", "final"],
    ]  # fmt: skip
    assert {name for name, _, _ in artifacts} == {"model-run0"}
    (tmp_path / "m.zip").write_bytes(artifacts[1][1]["model.zip"])
    assert DQN.load(tmp_path / "m.zip").num_timesteps == 24
    quick().learn(10, callback=WandbCallback(save_model=False))
    assert wandb.runs[1].artifacts == []


def test_wandb_converts_media(wandb: Wandb) -> None:
    quick().learn(3, callback=[WandbCallback(), LogsMedia()])
    (line,) = wandb.runs[0].history
    assert line == {
        "global_step": 2, "media/video": ("Video", ".gif", True), "media/image": ("Image", ".png", True),
        "media/figure": ("Image", ".png", True), "note (1)": "text", "weights": ("Histogram", [1.0, 2.0]),
    }  # fmt: skip


def test_wandb_uses_an_active_run_and_leaves_it_open(wandb: Wandb) -> None:
    mine = wandb.init(id="mine")
    quick().learn(10, callback=WandbCallback(), log_interval=1)
    assert wandb.runs == [mine]
    assert len(mine.history) == 2
    assert mine.exit_code is None
    with pytest.raises(
        ConfigurationError, match="project, name must be left out while a run of wandb is active, got run mine"
    ):
        quick().learn(10, callback=WandbCallback("project", name="other"))


def test_a_run_goes_on(wandb: Wandb, tmp_path: Path) -> None:
    callback = WandbCallback(save_model=False)
    model = quick().learn(10, callback=callback)
    model.learn(10, callback=callback, reset_num_timesteps=False)
    assert wandb.calls[1]["id"] == "run0"
    assert wandb.calls[1]["resume"] == "allow"
    model.learn(10, callback=callback)  # counts from 0: another run
    assert wandb.calls[2]["id"] is None
    assert callback.run_id == "run2"


def test_a_full_checkpoint_continues_its_run(wandb: Wandb, tmp_path: Path) -> None:
    callbacks = [WandbCallback(save_model=False), CheckpointCallback(10, tmp_path, full=True), Fails(14)]
    with pytest.raises(ValueError, match="on purpose"):
        DQN("MlpPolicy", "CartPole-v1", seed=0).learn(30, callback=callbacks)
    assert wandb.runs[0].exit_code == 1
    saved = DQN.load(tmp_path / "rl_model_10_steps.zip", env="CartPole-v1")
    saved.resume(callback=[WandbCallback(save_model=False), CheckpointCallback(10, tmp_path, full=True), Fails(99)])
    assert wandb.calls[1]["id"] == "run0"
    assert wandb.runs[1].exit_code == 0
    saved = DQN.load(tmp_path / "rl_model_10_steps.zip", env="CartPole-v1")
    other = WandbCallback(save_model=False, id="other")  # what the user passes wins
    saved.resume(callback=[other, CheckpointCallback(10, tmp_path, full=True), Fails(99)])
    assert wandb.calls[2]["id"] == other.run_id == "other"


def test_a_failed_run_is_marked_and_has_no_final_model(wandb: Wandb) -> None:
    with pytest.raises(ValueError, match="on purpose"):
        quick().learn(30, callback=[WandbCallback(), Fails(7)])
    assert wandb.runs[0].exit_code == 1
    assert wandb.runs[0].artifacts == []
    assert wandb.run is None


def test_wandb_that_cannot_start(wandb: Wandb) -> None:
    wandb.logged_in = False
    with pytest.raises(
        ConfigurationError, match=r"got: api_key not configured \(no-tty\). call wandb.login. Run wandb login"
    ):
        quick().learn(10, callback=WandbCallback())
    with pytest.raises(ConfigurationError, match="got 'nmae'.*'name'"):
        WandbCallback(nmae="x")
    with pytest.raises(ConfigurationError, match="save_freq must be an integer >= 1"):
        WandbCallback(save_freq=0)


def test_a_failure_while_training_is_one_warning(wandb: Wandb, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(WandbRun, "log", fail)
    monkeypatch.setattr(WandbRun, "log_artifact", fail)
    with pytest.warns(UserWarning, match="training continues \\(OSError: no network\\)") as caught:
        model = quick().learn(30, callback=WandbCallback(), log_interval=1)
    assert len(caught) == 1
    assert model.num_timesteps == 30


def test_videos_of_a_folder(wandb: Wandb, tmp_path: Path) -> None:
    (tmp_path / "old.mp4").write_bytes(b"")

    class Records(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 4:
                (tmp_path / "new.mp4").write_bytes(b"")  # just written: may be incomplete until the end
                (tmp_path / "new.txt").write_bytes(b"")
            return True

    quick().learn(12, callback=[WandbCallback(video_folder=tmp_path), Records()], log_interval=1)
    films = [line for line in wandb.runs[0].history if "video" in line]
    assert films == [{"global_step": 12, "video": ("Video", ".mp4", True)}]


# -- MLflow


class Client:
    """Client that stores what it is sent, with the rule that parameters do not change."""

    params: dict[str, str]

    def __init__(self) -> None:
        self.params, self.tags, self.metrics, self.files = {}, {}, [], []  # type: ignore[var-annotated]

    def __call__(self) -> Client:
        return self

    def get_run(self, run_id: str) -> Any:
        return SimpleNamespace(data=SimpleNamespace(params=dict(self.params)))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        assert len(params) <= 100
        assert not {name for name, _ in params} & set(self.params)
        self.params.update(params)
        self.tags.update(tags)
        self.metrics += [(key, value, step) for key, value, _, step in metrics]

    def log_artifact(self, run_id: str, path: str, folder: str) -> None:
        assert Path(path).is_file()
        self.files.append(f"{folder}/{Path(path).name}")


class MLflow(ModuleType):
    """The calls of mlflow that the callback makes."""

    class MlflowException(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.entities = SimpleNamespace(
            Param=lambda *parts: parts, RunTag=lambda *parts: parts, Metric=lambda *parts: parts
        )
        self.MlflowClient = Client()
        self.active: Any = None
        self.started: list[dict[str, Any]] = []
        self.ended: list[str] = []

    def active_run(self) -> Any:
        return self.active

    def start_run(self, **options: Any) -> Any:
        if options.get("run_id") == "missing":
            raise self.MlflowException("Run 'missing'\nnot found")
        self.started.append(options)
        self.active = SimpleNamespace(info=SimpleNamespace(run_id=options.get("run_id") or f"run{len(self.started)}"))
        return self.active

    def end_run(self, status: str) -> None:
        self.active = None
        self.ended.append(status)

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="7") if name == "known" else None

    def create_experiment(self, name: str) -> str:
        return "8"

    def get_tracking_uri(self) -> str:
        return "sqlite:///x.db"


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> MLflow:
    module = MLflow()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def test_mlflow_has_metrics_parameters_and_files(mlflow: MLflow) -> None:
    model = quick(gamma=0.9, policy_kwargs={"net_arch": [8]})
    model.learn(30, callback=MLflowCallback("new", run_name="first", save_freq=20, tags={"a": 1}), log_interval=2)
    client = mlflow.MlflowClient
    assert mlflow.started == [{"experiment_id": "8", "run_name": "first"}]
    assert [(value, step) for key, value, step in client.metrics if key == "time/episodes"] == [
        (2, 10),
        (4, 20),
        (6, 30),
    ]
    assert client.params["gamma"] == "0.9"
    assert client.params["policy_kwargs.net_arch"] == "[8]"
    assert client.tags == {"a": "1"}
    assert client.files == ["checkpoints/model_20_steps.zip", "model/model.zip"]
    assert mlflow.ended == ["FINISHED"]


def test_mlflow_has_media(mlflow: MLflow) -> None:
    quick().learn(3, callback=[MLflowCallback("known", save_model=False), LogsMedia()])
    client = mlflow.MlflowClient
    assert mlflow.started == [{"experiment_id": "7", "run_name": None}]
    assert sorted(client.files) == ["media/media/figure/2.png", "media/media/image/2.png", "media/media/video/2.gif"]
    assert client.tags == {"note _1_": "text"}  # MLflow refuses parentheses
    assert "hidden" not in {key for key, _, _ in client.metrics}


def test_mlflow_keeps_parameters_of_a_run_that_goes_on(mlflow: MLflow) -> None:
    callback = MLflowCallback(save_model=False)
    model = quick().learn(10, callback=callback)
    model.learn(10, callback=callback, reset_num_timesteps=False)
    assert mlflow.started[1] == {"run_id": "run1"}
    assert mlflow.MlflowClient.params["total_timesteps"] == "10"
    assert mlflow.MlflowClient.tags == {"resumed.total_timesteps": "20"}


def test_mlflow_uses_an_active_run(mlflow: MLflow) -> None:
    mlflow.start_run(run_id="mine")
    quick().learn(10, callback=MLflowCallback(save_model=False))
    assert mlflow.ended == []
    with pytest.raises(ConfigurationError, match="while a run of mlflow is active, got run mine"):
        quick().learn(10, callback=MLflowCallback("other"))


def test_mlflow_that_cannot_start(mlflow: MLflow) -> None:
    with pytest.raises(ConfigurationError, match="got: Run 'missing' not found. Check the server sqlite:///x.db"):
        quick().learn(10, callback=MLflowCallback(run_id="missing"))
    with pytest.raises(ValueError, match="on purpose"):
        quick().learn(10, callback=[MLflowCallback(), Fails(3)])
    assert mlflow.ended[-1] == "FAILED"


# -- both


def test_media_as_files(tmp_path: Path) -> None:
    pictures: Any = pytest.importorskip("PIL.Image", reason="comes with tensorboard")
    ramp = np.array([0.0, 0.5, 1.0])[:, None, None] * np.ones((3, 2, 4))  # C, H, W
    pixels = np.asarray(pictures.open(Image(ramp, "CHW").write_file(tmp_path)))
    assert pixels.shape == (2, 4, 3)
    assert pixels[0, 0].tolist() == [0, 128, 255]
    two = np.stack([np.zeros((2, 4, 1), np.uint8), np.full((2, 4, 1), 9, np.uint8)])
    pixels = np.asarray(pictures.open(Image(two, "NHWC").write_file(tmp_path)))
    assert pixels.tolist() == [[0, 0, 0, 0, 9, 9, 9, 9]] * 2
    frames = np.zeros((2, 3, 1, 2, 4), np.uint8)  # N, T, C, H, W
    frames[1, 2] = 255
    frames[0, 1] = 100
    with pictures.open(Video(frames, 10).write_file(tmp_path)) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (3, (8, 2), 100)
        film.seek(2)
        assert np.asarray(film.convert("L"))[0].tolist() == [0] * 4 + [255] * 4
    assert HParam({}, {"x": 0.0}).write_file(tmp_path) is None


@pytest.mark.parametrize(("cls", "package"), [(WandbCallback, "wandb"), (MLflowCallback, "mlflow")])
def test_a_missing_package_names_the_extra(cls: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"{package} must be installed.*pip install \"sb_dqn\[{package}\]\""):
        cls()


def test_a_folder_named_wandb_is_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", ModuleType("wandb"))
    with pytest.raises(ConfigurationError, match="a folder of that name"):
        WandbCallback()


def test_settings_are_plain_data() -> None:
    model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 2), n_steps=8, batch_size=8, policy_kwargs={"net_arch": [4]})
    settings = run_settings(model)
    assert settings["algorithm"] == "PPO"
    assert settings["env"] == "CartPole-v1"
    assert settings["n_envs"] == 2
    assert isinstance(settings["seed"], int)
    assert flatten(settings)["policy_kwargs.net_arch"] == [4]
    assert flatten({"a": {"b": {"c": 1}, "d": {}}}) == {"a.b.c": 1, "a.d": {}}
    lanes = SimpleNamespace(get_attr=lambda name: [SimpleNamespace(id="X-v0")] * 2)
    assert env_name(lanes) == "X-v0"
    assert env_name(3) == "int"


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    return tmp_path


@pytest.mark.filterwarnings("default")  # of the packages
def test_the_real_wandb(offline: Path) -> None:
    pytest.importorskip("wandb", reason="optional, of the extra wandb", exc_type=ImportError)
    callback = WandbCallback("project")
    quick().learn(30, callback=callback)
    (run,) = (offline / "wandb").glob("offline-run-*")
    assert (run / f"run-{callback.run_id}.wandb").is_file()


@pytest.mark.filterwarnings("default")  # of the packages
def test_the_real_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="optional, of the extra mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("here", artifact_location=(tmp_path / "files").as_uri())
    callback = MLflowCallback("here")
    quick().learn(30, callback=callback, log_interval=2)
    history = mlflow.MlflowClient().get_metric_history(callback.run_id, "rollout/ep_rew_mean")
    assert [metric.step for metric in history] == [10, 20, 30]
    assert len(list(tmp_path.rglob("model.zip"))) == 1


def test_environments_that_actors_make_are_named() -> None:
    assert env_name("CartPole-v1") == env_name(["CartPole-v1"] * 2) == "CartPole-v1"
    assert env_name(test_environments_that_actors_make_are_named) == "test_environments_that_actors_make_are_named"
