"""Checkpoint callback: saves the model at intervals."""

from __future__ import annotations

import os
from pathlib import Path

from sb_dqn.callbacks.base import BaseCallback, Every
from sb_dqn.checkpoint.incremental.writer import BackgroundWrite
from sb_dqn.envs.streams.sb3 import find_normalizer
from sb_dqn.errors import ConfigurationError


class CheckpointCallback(BaseCallback):
    """Saves the model whenever `num_timesteps` crosses a multiple of `save_freq`.

    Files, where N is `num_timesteps`: `{name_prefix}_{N}_steps.zip`, `{name_prefix}_replay_buffer_{N}_steps.zip`, and for
    an environment with Stable-Baselines3's `VecNormalize` `{name_prefix}_vecnormalize_{N}_steps.pkl`.

    A file that cannot be written (disk full, folder read-only) does not end the training: the callback warns once and tries
    again at the next checkpoint.

    Args:
        save_freq: environment steps over all lanes between two checkpoints (Stable-Baselines3 counts calls), >= 1.
        save_path: folder of the files, created if missing.
        name_prefix: prefix of the file names.
        save_replay_buffer: True saves the replay buffer too, if the algorithm has one.
        save_vecnormalize: True saves the statistics of `VecNormalize` too, if there is one.
        verbose: 2 prints the path of each file.
        full: True saves full checkpoints, from which `load(path, env=...).resume()` continues exactly; saved at the end of the
            tick, after all other callbacks.
        trust: True allows full checkpoints to pickle an environment that cannot return its state.
        incremental: with True, full checkpoints share the replay rows in the folder `replay_rows` of `save_path`, where each
            row is written once; after a zip is deleted, the next checkpoint deletes the rows that only it used. A thread
            writes them during training; `learn` returns when the last checkpoint is written.

    Raises:
        ConfigurationError: `save_freq` is out of range, or `incremental` without `full`.
    """

    def __init__(
        self,
        save_freq: int,
        save_path: str | os.PathLike[str],
        name_prefix: str = "rl_model",
        save_replay_buffer: bool = False,
        save_vecnormalize: bool = False,
        verbose: int = 0,
        *,
        full: bool = False,
        trust: bool = False,
        incremental: bool = False,
    ) -> None:
        super().__init__(verbose)
        if incremental and not full:
            raise ConfigurationError("full must be True with incremental=True, got False. Add full=True.")
        self.full = full
        self.trust = trust
        self.incremental = incremental
        self._writing: BackgroundWrite | None = None
        self.save_freq = save_freq
        self.save_path = save_path
        self.name_prefix = name_prefix
        self.save_replay_buffer = save_replay_buffer
        self.save_vecnormalize = save_vecnormalize
        self._every = Every(save_freq, "save_freq")

    def _init_callback(self) -> None:
        Path(self.save_path).mkdir(parents=True, exist_ok=True)

    def _on_training_start(self) -> None:
        self._every.begin(self.num_timesteps)

    def _on_training_end(self) -> None:
        self._wait()

    def _path(self, kind: str, extension: str) -> str:
        return str(Path(self.save_path) / f"{self.name_prefix}_{kind}{self.num_timesteps}_steps.{extension}")

    def _print_path(self, name: str, path: str) -> None:
        if self.verbose >= 2:
            print(f"Saving {name} to {path}")

    def _on_step(self) -> bool:
        if not self._every.crossed(self.num_timesteps):
            return True
        if self.full:
            self.model.after_tick(self._save)
        else:
            self._save()
        return True

    def _save(self) -> None:
        self._wait()
        with self._training_continues("the checkpoint"):
            self._write()

    def _wait(self) -> None:
        """Waits for the checkpoint that a thread is writing."""
        writing, self._writing = self._writing, None
        with self._training_continues("the checkpoint"):
            if writing is not None:
                writing.wait()

    def _write(self) -> None:
        path = self._path("", "zip")
        if self.incremental:
            self._writing = self.model.save(path, full=True, trust=self.trust, incremental=True, background=True)
        else:
            self.model.save(path, full=self.full, trust=self.trust)
        if self.model.rank == 0:
            self._print_path("model checkpoint", path)
        if self.save_replay_buffer and self.model.keeps_replay:
            path = self._path("replay_buffer_", "zip")
            self.model.save_replay_buffer(path)
            self._print_path("replay checkpoint", path)
        normalizer = find_normalizer(self.model.get_env()) if self.save_vecnormalize and self.model.rank == 0 else None
        if normalizer is not None:
            path = self._path("vecnormalize_", "pkl")
            normalizer.save(path)
            self._print_path("statistics of the normalizer", path)
