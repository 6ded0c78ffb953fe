"""Callback that sends a run to MLflow."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import Any

from sb_dqn.callbacks.tracking import TrackingCallback, flatten
from sb_dqn.checks import check_mapping
from sb_dqn.errors import ConfigurationError, import_extra
from sb_dqn.logger.entries import Media
from sb_dqn.types import Kwargs, Settings

BATCH = 100
"""Largest number of parameters in one request."""
NOT_ALLOWED = re.compile(r"[^\w\-./: ]", re.ASCII)
"""Characters that MLflow refuses in names."""


class MLflowCallback(TrackingCallback):
    """Sends metrics, settings, model files and videos of `learn` to MLflow.

    Every number of a log line is a metric at its env step; texts are tags, images and videos artifacts in `media/`. The constructor
    arguments of the model are parameters (`policy_kwargs.net_arch`). Artifacts: `model/model.zip` at the end,
    `checkpoints/model_{N}_steps.zip` at intervals, `videos/`.

    A run that was started with `mlflow.start_run` before `learn` is used and stays open; otherwise `learn` starts a run and ends it,
    as failed if it raises. `learn(..., reset_num_timesteps=False)` with the same callback object, and `resume` from a full
    checkpoint, continue the run. Another process continues it with `run_id="..."`. MLflow does not change parameters: in a run that is
    continued, other values become tags (`resumed.learning_rate`).

    The server is that of `mlflow.set_tracking_uri` or `MLFLOW_TRACKING_URI`.

    Args:
        experiment: name of the experiment, created if missing. If None, it is MLflow's current one.
        run_name: name of a new run. If None, MLflow chooses one.
        run_id: run to continue.
        tags: tags of the run.
        save_model, save_freq, video_folder, verbose: see `TrackingCallback`.

    Raises:
        ConfigurationError: the package mlflow is not installed, or an argument is out of range.
    """

    tracker = "mlflow"

    def __init__(
        self,
        experiment: str | None = None,
        *,
        run_name: str | None = None,
        run_id: str | None = None,
        tags: Settings | None = None,
        save_model: bool = True,
        save_freq: int | None = None,
        video_folder: object = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(save_model, save_freq, video_folder, verbose)
        self._mlflow = import_extra("mlflow", "mlflow", "for MLflowCallback")
        self.experiment = experiment
        self.run_name = run_name
        self.tags = check_mapping("tags", tags)
        self._wanted = run_id
        self._client: Any = None
        self._owns_run = False

    def _start_run(self, settings: Kwargs, run_id: str | None) -> str:
        run_id = self._wanted or run_id
        run = self._mlflow.active_run()
        self._owns_run = run is None
        if run is not None and (self._wanted or self.experiment or self.run_name):
            raise ConfigurationError(
                f"experiment, run_name and run_id must be left out while a run of mlflow is active, got run {run.info.run_id}. Call "
                f"mlflow.end_run() before learn, or use MLflowCallback() for the active run."
            )
        try:
            if run is None:
                run = self._begin(run_id)
            self._client = self._mlflow.MlflowClient()
            self._set_parameters(run.info.run_id, flatten(settings))
        except self._mlflow.MlflowException as error:
            raise ConfigurationError(
                f"a run of mlflow must be able to start, got: {' '.join(str(error).split())}. Check the server "
                f"{self._mlflow.get_tracking_uri()}, the experiment and run_id."
            ) from error
        if self.verbose >= 1:
            print(f"MLflow run {run.info.run_id} at {self._mlflow.get_tracking_uri()}")
        return str(run.info.run_id)

    def _begin(self, run_id: str | None) -> Any:
        if run_id is not None:
            return self._mlflow.start_run(run_id=run_id)
        number = None
        if self.experiment is not None:
            found = self._mlflow.get_experiment_by_name(self.experiment)
            number = self._mlflow.create_experiment(self.experiment) if found is None else found.experiment_id
        return self._mlflow.start_run(experiment_id=number, run_name=self.run_name)

    def _set_parameters(self, run_id: str, settings: Kwargs) -> None:
        entities = self._mlflow.entities
        known = self._client.get_run(run_id).data.params
        texts = {_allowed(name): str(value) for name, value in settings.items()}
        new = [entities.Param(name, text) for name, text in texts.items() if name not in known]
        changed = {f"resumed.{name}": text for name, text in texts.items() if known.get(name, text) != text}
        tags = [entities.RunTag(_allowed(name), str(value)) for name, value in (self.tags | changed).items()]
        for start in range(0, len(new), BATCH):
            self._client.log_batch(run_id, params=new[start : start + BATCH])
        for start in range(0, len(tags), BATCH):
            self._client.log_batch(run_id, tags=tags[start : start + BATCH])

    def _log_values(self, values: Kwargs, step: int) -> None:
        entities, now = self._mlflow.entities, int(time.time() * 1000)
        metrics, tags = [], []
        for key, value in values.items():
            if isinstance(value, (int, float)):
                metrics.append(entities.Metric(_allowed(key), float(value), now, step))
            elif isinstance(value, str):
                tags.append(entities.RunTag(_allowed(key), value))
            elif isinstance(value, Media):
                self._log_media(key, value, step)
        self._client.log_batch(self.run_id, metrics=metrics, tags=tags)

    def _log_media(self, key: str, value: Media, step: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = value.write_file(Path(folder))
            if path is not None:  # an HParam has none: the settings are parameters
                self._log_file(path.rename(path.with_stem(str(step))), f"media/{_allowed(key)}")

    def _log_model(self, path: Path, step: int, last: bool) -> None:
        if last:
            self._log_file(path, "model")
        else:
            self._log_file(path.rename(path.with_stem(f"model_{step}_steps")), "checkpoints")

    def _log_video(self, path: Path, step: int) -> None:
        self._log_file(path, "videos")

    def _log_file(self, path: Path, folder: str) -> None:
        self._client.log_artifact(self.run_id, str(path), folder)

    def _end_run(self, failed: bool) -> None:
        if self._owns_run:
            self._mlflow.end_run("FAILED" if failed else "FINISHED")


def _allowed(name: str) -> str:
    return NOT_ALLOWED.sub("_", name)
