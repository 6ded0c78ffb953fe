"""Save the model at intervals while it learns."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.callbacks.frequency import Every
from sb_dqn.callbacks.normalizers import find_normalizer
from sb_dqn.checkpoint.background import Writing
from sb_dqn.errors import ConfigurationError


class CheckpointCallback(BaseCallback):
    """Saves the model whenever `num_timesteps` crosses a multiple of `save_freq`.

    Files, N being `num_timesteps`: `{name_prefix}_{N}_steps.zip`, `{name_prefix}_replay_buffer_{N}_steps.zip`, and for
    an environment under Stable-Baselines3's `VecNormalize` `{name_prefix}_vecnormalize_{N}_steps.pkl`.

    Args:
        save_freq: environment steps over all lanes between two checkpoints (Stable-Baselines3 counts calls).
        save_path: folder, made if it is missing.
        name_prefix: how the names of the files begin.
        save_replay_buffer: save the replay, too; algorithms that keep none are saved without.
        save_vecnormalize: save the statistics of the normaliser, too, if there is one.
        verbose: 2 says where each file went.
        full: full checkpoints, which `load(path, env=...).resume()` goes on from as if nothing had happened; taken at the
            end of the tick, after all other callbacks.
        trust: of full ones: pickle an environment that cannot say its state.
        incremental: of full ones: the rows of a replay go into the folder `replay_rows` in `save_path`, each written once
            for all checkpoints there; delete a zip, and the next checkpoint deletes the rows that were only its own. A thread
            writes them while training goes on; `learn` ends when the last one is written.

    A file that cannot be written (disk full, folder read-only) does not end the training: that is said once, and the
    next one is tried again.
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
            raise ConfigurationError("incremental=True is about the rows of full checkpoints; add full=True")
        self.full, self.trust, self.incremental = full, trust, incremental
        self._complained = False
        self._writing: Writing | None = None
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
        self._settle()

    def _path(self, kind: str, extension: str) -> str:
        return str(Path(self.save_path) / f"{self.name_prefix}_{kind}{self.num_timesteps}_steps.{extension}")

    def _say(self, what: str, path: str) -> None:
        if self.verbose >= 2:
            print(f"Saving {what} to {path}")

    def _on_step(self) -> bool:
        if not self._every.crossed(self.num_timesteps):
            return True
        if self.full:
            self.model.after_tick(self._save)
        else:
            self._save()
        return True

    def _save(self) -> None:
        self._settle()
        try:
            self._write()
        except OSError as error:
            self._complain(error)

    def _settle(self) -> None:
        """Waits for the checkpoint that a thread is writing."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.wait()
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            warnings.warn(f"training goes on without this checkpoint: {error}", stacklevel=3)
        self._complained = True

    def _write(self) -> None:
        path = self._path("", "zip")
        if self.incremental:
            self._writing = self.model.save(path, full=True, trust=self.trust, incremental=True, background=True)
        else:
            self.model.save(path, full=self.full, trust=self.trust)
        self._say("model checkpoint", path)
        if self.save_replay_buffer and self.model.keeps_replay:
            path = self._path("replay_buffer_", "zip")
            self.model.save_replay_buffer(path)
            self._say("replay checkpoint", path)
        normalizer = find_normalizer(self.model.get_env()) if self.save_vecnormalize else None
        if normalizer is not None:
            path = self._path("vecnormalize_", "pkl")
            normalizer.save(path)
            self._say("statistics of the normaliser", path)
