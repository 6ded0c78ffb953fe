"""Callback that sends a run to Weights & Biases."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

from sb_dqn.callbacks.tracking import TrackingCallback
from sb_dqn.errors import ConfigurationError, import_extra, nearest
from sb_dqn.logger.entries import Media
from sb_dqn.logger.sinks import is_array
from sb_dqn.types import Kwargs

STEP = "global_step"
"""Metric with the env steps: the horizontal axis of all charts."""


class WandbCallback(TrackingCallback):
    """Sends metrics, settings, model files and videos of `learn` to Weights & Biases.

    Every entry of a log line is logged together with `global_step`, the env steps, which is the horizontal axis of all charts (so that
    a run which is continued from an earlier step loses nothing). The constructor arguments of the model are the run's config.
    Model files are versions of the artifact `model-{run id}` with the alias `step-{N}`.

    A run that was started with `wandb.init` before `learn` is used and stays open; otherwise `learn` starts a run and ends it, as
    failed if it raises. `learn(..., reset_num_timesteps=False)` with the same callback object, and `resume` from a full
    checkpoint, continue the run. Another process continues it with `id="..."`.

    Args:
        project: name of the project.
        save_model, save_freq, video_folder, verbose: see `TrackingCallback`.
        init: further arguments of `wandb.init`, such as `name`, `entity`, `group`, `tags`, `id`, `mode="offline"`.

    Raises:
        ConfigurationError: the package wandb is not installed, or an argument is unknown or out of range.
    """

    tracker = "wandb"

    def __init__(
        self,
        project: str | None = None,
        *,
        save_model: bool = True,
        save_freq: int | None = None,
        video_folder: object = None,
        verbose: int = 0,
        **init: object,
    ) -> None:
        super().__init__(save_model, save_freq, video_folder, verbose)
        self._wandb = import_extra("wandb", "wandb", "for WandbCallback")
        if getattr(self._wandb, "init", None) is None:
            raise ConfigurationError(
                'wandb must be installed for WandbCallback, got a folder of that name. Run pip install "sb_dqn[wandb]".'
            )
        allowed = inspect.signature(self._wandb.init).parameters
        for name in init:
            if name not in allowed:
                raise ConfigurationError(
                    f"arguments of WandbCallback must be its own or those of wandb.init, got {name!r}. Use one of them."
                    f"{nearest(name, allowed)}"
                )
        self._init = init if project is None else {"project": project, **init}
        self._run: Any = None
        self._owns_run = False

    def _start_run(self, settings: Kwargs, run_id: str | None) -> str:
        run = self._wandb.run
        self._owns_run = run is None
        if run is not None and self._init:
            raise ConfigurationError(
                f"{', '.join(self._init)} must be left out while a run of wandb is active, got run {run.id}. Call wandb.finish() "
                f"before learn, or use WandbCallback() for the active run."
            )
        if run is None:
            run = self._begin(run_id)
        self._run = run
        config = run.config
        config.update(
            {name: value for name, value in settings.items() if name not in config.keys() or config[name] != value},  # noqa: SIM118 - the config is no mapping
            allow_val_change=True,
        )
        run.define_metric(STEP)
        run.define_metric("*", step_metric=STEP, step_sync=True)
        if self.verbose >= 1:
            print(f"Weights & Biases run {run.id}: {run.url or run.dir}")
        return str(run.id)

    def _begin(self, run_id: str | None) -> Any:
        known = {} if run_id is None else {"id": run_id}
        options = {**known, **self._init}
        if "id" in options:
            options.setdefault("resume", "allow")
        try:
            return self._wandb.init(**options)
        except self._wandb.Error as error:
            raise ConfigurationError(
                f"a run of wandb must be able to start, got: {' '.join(str(error).split())}. Run wandb login, or pass "
                f"mode='offline'."
            ) from error

    def _log_values(self, values: Kwargs, step: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = {key: self._value(value, Path(folder)) for key, value in values.items()}
            self._run.log({STEP: step} | {key: value for key, value in found.items() if value is not None})

    def _value(self, value: object, folder: Path) -> Any:
        """Returns a value as an object of wandb; None leaves it out."""
        if isinstance(value, Media):
            path = value.write_file(folder)
            if path is None:  # an HParam: the settings are in the config
                return None
            return self._wandb.Video(str(path)) if path.suffix == ".gif" else self._wandb.Image(str(path))
        return self._wandb.Histogram(value) if is_array(value) else value

    def _log_model(self, path: Path, step: int, last: bool) -> None:
        artifact = self._wandb.Artifact(f"model-{self._run.id}", type="model", metadata={"step": step})
        artifact.add_file(str(path), name=path.name)
        self._run.log_artifact(artifact, aliases=["latest", f"step-{step}", *(["final"] if last else [])])

    def _log_video(self, path: Path, step: int) -> None:
        self._run.log({STEP: step, "video": self._wandb.Video(str(path))})

    def _end_run(self, failed: bool) -> None:
        run, self._run = self._run, None
        if self._owns_run and run is not None:
            run.finish(exit_code=1 if failed else 0)
