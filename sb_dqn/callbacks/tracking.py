"""Base class of callbacks that send metrics, settings, model files and videos to an experiment tracker."""

from __future__ import annotations

import sys
import tempfile
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from sb_dqn.callbacks.base import BaseCallback, Every, Trainer
from sb_dqn.checks import check_bool, check_path
from sb_dqn.logger.entries import plain
from sb_dqn.logger.sinks import KVWriter
from sb_dqn.types import EnvLike, Kwargs, Settings, State
from sb_dqn.version import __version__

VIDEO_SUFFIXES = (".mp4", ".gif", ".webm")
UNTOUCHED = 2.0
"""Seconds since the last write after which a video counts as complete."""


class TrackingCallback(BaseCallback):
    """Sends a run to an experiment tracker; a subclass implements the calls of its client.

    The run starts with `learn` and ends with it. A failure of the tracker after the start does not end the training: it warns
    once.

    Args:
        save_model: True sends the model file at the end of `learn`.
        save_freq: environment steps over all lanes between two model files, >= 1. If None, no file is sent before the end.
        video_folder: folder whose videos (.mp4, .gif, .webm) are sent when they are complete, such as that of gymnasium's
            `RecordVideo`; videos that exist before `learn` are left out.
        verbose: 1 prints where the run is.

    Raises:
        ConfigurationError: an argument is out of range.
    """

    tracker: ClassVar[str]
    """The name that `exclude` of `logger.record` refers to."""

    def __init__(
        self, save_model: bool = True, save_freq: int | None = None, video_folder: object = None, verbose: int = 0
    ) -> None:
        super().__init__(verbose)
        self.save_model = check_bool("save_model", save_model)
        self.save_freq = save_freq
        self._every = None if save_freq is None else Every(save_freq, "save_freq")
        self.video_folder = check_path("video_folder", video_folder)
        self.run_id: str | None = None
        """Identifier of the latest run; None before the first one."""
        self._running = False
        self._complete = False
        self._warned = False
        self._known_videos: set[Path] = set()
        self._sink = TrackerSink(self.tracker, self._log)

    # -- hooks of the training loop

    def _on_training_start(self) -> None:
        if self.num_timesteps == 0:  # a new run; otherwise that of an earlier `learn` goes on
            self.run_id = None
        self._complete = self._warned = False
        if self._every is not None:
            self._every.begin(self.num_timesteps)
        self._known_videos = set(self._videos())

    def _on_rollout_start(self) -> None:
        self._start()

    def _on_step(self) -> bool:
        self._start()
        if self._running and self._every is not None and self._every.crossed(self.num_timesteps):
            self._try(self._send_model, False)
        return True

    def _on_training_end(self) -> None:
        self.num_timesteps = self.model.num_timesteps
        if self._running:
            self._try(self._send_videos, 0.0)
            if self.save_model:
                self._try(self._send_model, True)
        self._complete = True

    def _close(self) -> None:
        if not self._running:
            return
        self._running = False
        sinks = self.model.logger.output_formats
        if self._sink in sinks:
            sinks.remove(self._sink)
        self._try(self._end_run, not self._complete)

    def _start(self) -> None:
        """Starts the run, after the state of a checkpoint (with the identifier of its run) was loaded."""
        if self._running or self.model.rank:
            return
        try:
            self.run_id = self._start_run(run_settings(self.model), self.run_id)
        except BaseException:
            self._try(self._end_run, True)
            raise
        self._running = True
        if not isinstance(self._sink, writer := writer_of(self.model.logger)):
            self._sink = type("TrackerSink", (TrackerSink, writer), {})(self.tracker, self._log)
        self.model.logger.output_formats.append(self._sink)

    def state_dict(self) -> State:
        return {**super().state_dict(), "run_id": self.run_id}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        if state["run_id"] is not None:
            self.run_id = str(state["run_id"])

    # -- what is sent

    def _log(self, values: Kwargs, step: int) -> None:
        self._try(self._log_values, values, step)
        self._try(self._send_videos, UNTOUCHED)

    def _send_model(self, last: bool) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.zip"
            self.model.save(str(path))
            self._log_model(path, self.num_timesteps, last)

    def _videos(self) -> list[Path]:
        if self.video_folder is None:
            return []
        return sorted(path for path in Path(self.video_folder).glob("*") if path.suffix.lower() in VIDEO_SUFFIXES)

    def _send_videos(self, untouched: float) -> None:
        """Sends new videos that were last written `untouched` seconds ago or earlier."""
        for path in self._videos():
            if path not in self._known_videos and time.time() - path.stat().st_mtime >= untouched:
                self._known_videos.add(path)
                self._log_video(path, self.model.num_timesteps)

    def _try(self, send: Callable[..., None], *args: object) -> None:
        """Calls a function of the tracker; its errors become one warning."""
        try:
            send(*args)
        except Exception as error:  # clients of trackers raise many kinds, and none may end a training run
            if not self._warned:
                warnings.warn(
                    f"{type(self).__name__} could not send everything, training continues ({type(error).__name__}: {error})",
                    stacklevel=2,
                )
            self._warned = True

    @abstractmethod
    def _start_run(self, settings: Kwargs, run_id: str | None) -> str:
        """Starts a run, or continues `run_id`, with these settings; returns its identifier."""

    @abstractmethod
    def _log_values(self, values: Kwargs, step: int) -> None:
        """Sends the entries of a log line: numbers, texts, arrays and media."""

    @abstractmethod
    def _log_model(self, path: Path, step: int, last: bool) -> None:
        """Sends a model file, which is deleted afterwards."""

    @abstractmethod
    def _log_video(self, path: Path, step: int) -> None:
        """Sends a video."""

    @abstractmethod
    def _end_run(self, failed: bool) -> None:
        """Ends the run."""


class TrackerSink(KVWriter):
    """Sink of the logger that passes the entries of each log line on, with converted values.

    Args:
        name: name of the sink for `exclude` of `logger.record`.
        send: function that receives the entries and the env step.
    """

    def __init__(self, name: str, send: Callable[[Kwargs, int], None]) -> None:
        self.name = name
        self.send = send

    def write(self, key_values: Kwargs, key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """Sends the entries that are not excluded."""
        entries = {
            key: plain(value) for key, value in key_values.items() if self.name not in (key_excluded.get(key) or ())
        }
        if entries:
            self.send(entries, step)

    def close(self) -> None:
        """Does nothing: the callback ends the run."""


def writer_of(logger: object) -> type[Any]:
    """Returns the class of the sinks that a logger writes to: that of Stable-Baselines3's logger is in its module."""
    found = (getattr(sys.modules.get(base.__module__), "KVWriter", None) for base in type(logger).__mro__)
    return next(filter(None, found), KVWriter)


def run_settings(model: Trainer) -> Kwargs:
    """Returns algorithm, environment, constructor arguments and steps of a model as plain data."""
    return {
        "algorithm": type(model).__name__,
        "env": env_name(model.get_env()),
        "n_envs": model.n_envs,
        "total_timesteps": model._total_timesteps,
        **{name: _plain_setting(value) for name, value in model.arguments.items()},
        "seed": model.seed,
        "sb_dqn_version": __version__,
    }


def env_name(env: EnvLike) -> str:
    """Returns the id under which an environment is registered, or the name of its class, or of a function that makes it."""
    env = env[0] if isinstance(env, (list, tuple)) else env  # of actors that make the environments
    if isinstance(env, str):
        return env
    if callable(env):
        return getattr(env, "__qualname__", type(env).__name__)
    spec = getattr(env, "spec", None)
    if spec is None and callable(getattr(env, "get_attr", None)):
        spec = next(iter(env.get_attr("spec")), None)
    name = getattr(spec, "id", None)
    return name if isinstance(name, str) else type(env).__name__


def flatten(settings: Settings, prefix: str = "") -> Kwargs:
    """Returns nested settings under dotted names."""
    found: Kwargs = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= flatten(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _plain_setting(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_setting(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_setting(inner) for inner in value]
    value = plain(value)
    if value is None or type(value) in (bool, int, float, str):
        return value
    return getattr(value, "__qualname__", None) or str(value)  # a class or a function by its name
