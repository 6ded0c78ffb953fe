"""Evaluation history of a run, in the format of Stable-Baselines3's `evaluations.npz`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.evaluation import Episodes
from sb_dqn.files import atomic_write


class History:
    """Results of E evaluations of N episodes, one row per evaluation.

    Args:
        n_eval_episodes: N, >= 1.
    """

    def __init__(self, n_eval_episodes: int) -> None:
        self.n_eval_episodes = n_eval_episodes
        self.timesteps: list[int] = []
        self.results: list[list[float]] = []
        self.lengths: list[list[int]] = []
        self.successes: list[list[bool]] = []
        """Successes by evaluation and episode; False for an episode without `is_success`."""
        self.has_successes = False
        """True if the environment has reported `is_success`; otherwise no successes are written."""

    def add(self, num_timesteps: int, episodes: Episodes) -> list[bool]:
        """Adds an evaluation.

        Returns:
            Successes of the episodes for which the environment reports `is_success`.
        """
        reported = [bool(info["is_success"]) for info in episodes.infos if "is_success" in info]
        self.has_successes |= bool(reported)
        self.timesteps.append(num_timesteps)
        self.results.append(episodes.returns)
        self.lengths.append(episodes.lengths)
        self.successes.append([bool(info.get("is_success", False)) for info in episodes.infos])
        return reported

    def write(self, path: Path) -> None:
        """Writes the file atomically: a reader sees the old or the new file."""
        arrays: dict[str, Any] = {"timesteps": self.timesteps, "results": self.results, "ep_lengths": self.lengths}
        if self.has_successes:
            arrays["successes"] = self.successes
        with atomic_write(path) as file:
            np.savez(file, **arrays)

    def resume(self, path: Path, num_timesteps: int) -> None:
        """Reads the evaluations of an interrupted run up to `num_timesteps`, unless the history has evaluations already.

        Raises:
            CheckpointError: the file is damaged.
            ConfigurationError: the file has another number of episodes per evaluation.
        """
        if self.timesteps or not path.exists():
            return
        try:
            # np.load does not close a damaged file that it opened itself
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            timesteps, results, lengths = (arrays[name] for name in ("timesteps", "results", "ep_lengths"))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                f"{path} must be a readable evaluations.npz, got {error}. Move the file, or use another log_path."
            ) from error
        if results.shape[1:] != (self.n_eval_episodes,):
            raise ConfigurationError(
                f"n_eval_episodes must be {results.shape[-1]} as in {path}, got {self.n_eval_episodes}. Set "
                f"n_eval_episodes={results.shape[-1]}, or use another log_path."
            )
        before = timesteps <= num_timesteps
        self.has_successes = "successes" in arrays
        successes = arrays.get("successes", np.zeros(results.shape, np.bool_))
        self.timesteps = timesteps[before].tolist()
        self.results = results[before].tolist()
        self.lengths = lengths[before].tolist()
        self.successes = successes[before].tolist()
