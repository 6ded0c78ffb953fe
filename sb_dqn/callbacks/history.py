"""The evaluations of a run, as Stable-Baselines3's `evaluations.npz` holds them."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.evaluation import Episodes


class History:
    """Evaluations E by episodes N, one row for each evaluation.

    Args:
        n_eval_episodes: N.
    """

    def __init__(self, n_eval_episodes: int) -> None:
        self.n_eval_episodes = n_eval_episodes
        self.timesteps: list[int] = []
        self.results: list[list[float]] = []
        self.lengths: list[list[int]] = []
        self.successes: list[list[bool]] = []
        """As long as the others; all False where the env did not say, and not written if it never did."""
        self.has_successes = False

    def add(self, num_timesteps: int, episodes: Episodes) -> list[bool]:
        """Write one evaluation down.

        Returns:
            Success of the episodes for which the env reports `is_success`.
        """
        told = [bool(info["is_success"]) for info in episodes.infos if "is_success" in info]
        self.has_successes |= bool(told)
        self.timesteps.append(num_timesteps)
        self.results.append(episodes.returns)
        self.lengths.append(episodes.lengths)
        self.successes.append([bool(info.get("is_success", False)) for info in episodes.infos])
        return told

    def write(self, path: Path) -> None:
        """Replace the file as a whole: whoever reads it meets the old one or the new one."""
        arrays: dict[str, Any] = {"timesteps": self.timesteps, "results": self.results, "ep_lengths": self.lengths}
        if self.has_successes:
            arrays["successes"] = self.successes
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def resume(self, path: Path, num_timesteps: int) -> None:
        """Go on with the file of an interrupted run, up to `num_timesteps`, unless evaluations are known already.

        Raises:
            CheckpointError: the file is damaged.
            ConfigurationError: it holds another number of episodes per evaluation.
        """
        if self.timesteps or not path.exists():
            return
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:  # numpy leaks a file that is damaged
                arrays = {name: file[name] for name in file.files}
            timesteps, results, lengths = (arrays[name] for name in ("timesteps", "results", "ep_lengths"))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{path} cannot be read ({error}); move it away, or give another log_path") from error
        if results.shape[1:] != (self.n_eval_episodes,):
            raise ConfigurationError(
                f"{path} holds evaluations of {results.shape[-1]} episodes, n_eval_episodes={self.n_eval_episodes}; "
                f"give n_eval_episodes={results.shape[-1]}, or another log_path"
            )
        before = timesteps <= num_timesteps
        self.has_successes = "successes" in arrays
        successes = arrays.get("successes", np.zeros(results.shape, np.bool_))
        self.timesteps, self.results = timesteps[before].tolist(), results[before].tolist()
        self.lengths, self.successes = lengths[before].tolist(), successes[before].tolist()
