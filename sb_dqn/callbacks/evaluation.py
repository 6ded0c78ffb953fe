"""Evaluation callback: evaluates the model at intervals and saves the best one."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from sb_dqn.callbacks.base import BaseCallback, Every
from sb_dqn.callbacks.compose import EventCallback, MaybeCallback
from sb_dqn.checks import check_int
from sb_dqn.envs.streams.open import Stream, opened_here
from sb_dqn.envs.streams.sb3 import sync_normalizer
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.evaluation import MAX_STEPS, Episodes, check_not_training, derive_seed, open_for_evaluation, play_episodes
from sb_dqn.files import atomic_write
from sb_dqn.types import EnvLike, State


class EvalCallback(EventCallback):
    """Plays full episodes whenever `num_timesteps` crosses a multiple of `eval_freq`; logs and saves the results.

    Files: `{log_path}/evaluations.npz` with `timesteps` `[E]`, `results` and `ep_lengths` `[E, n_eval_episodes]` and, if
    the environment reports `is_success`, `successes`; rewritten atomically after each evaluation and continued by a resumed
    run. `{best_model_save_path}/best_model.zip`. A file that cannot be written (disk full, folder read-only) does not end the
    training: the callback warns once and tries again after the next evaluation, or with the next best model.
    Logged: `eval/mean_reward`, `eval/mean_ep_length`, `eval/success_rate`.

    The episodes of an evaluation depend on `seed` and the number of the evaluation only, not on the random state of the
    training.

    Attributes: `last_mean_reward`, `best_mean_reward` (-inf before the first evaluation); for all evaluations, with or
    without `log_path`: `evaluations_timesteps`, `evaluations_results`, `evaluations_length`, `evaluations_successes`.

    Args:
        eval_env: id, environment, vector environment or list of factories; not the training environment.
        callback_on_new_best: triggered after an evaluation with a new best mean return.
        callback_after_eval: triggered after each evaluation.
        n_eval_episodes: episodes in total, divided over the lanes, >= 1.
        eval_freq: environment steps over all lanes between two evaluations (Stable-Baselines3 counts calls); 0 or less never
            evaluates.
        log_path: folder of `evaluations.npz`. If None, the file is not written.
        best_model_save_path: folder of `best_model.zip`. If None, the file is not written.
        deterministic: True selects greedy actions, False explores.
        render: calls `render` of the environment after every step.
        verbose: 1 prints each result.
        warn: accepted for compatibility with Stable-Baselines3; has no effect.
        seed: seed of the episodes. If None, it is the seed of the model.
        max_steps: steps after which an episode is cut, >= 1.

    Raises:
        ConfigurationError: an argument is out of range, or `eval_env` is None.
    """

    def __init__(
        self,
        eval_env: EnvLike,
        callback_on_new_best: MaybeCallback = None,
        callback_after_eval: MaybeCallback = None,
        n_eval_episodes: int = 5,
        eval_freq: int = 10_000,
        log_path: str | os.PathLike[str] | None = None,
        best_model_save_path: str | os.PathLike[str] | None = None,
        deterministic: bool = True,
        render: bool = False,
        verbose: int = 1,
        warn: bool = True,
        *,
        seed: int | None = None,
        max_steps: int = MAX_STEPS,
    ) -> None:
        super().__init__(None, verbose)
        self.callback = self._child("callback_after_eval", callback_after_eval)
        self.callback_on_new_best = self._child("callback_on_new_best", callback_on_new_best)
        if eval_env is None:
            raise ConfigurationError("eval_env must be an environment, got None. Pass for instance its id.")
        self.eval_env = eval_env
        self.n_eval_episodes = check_int("n_eval_episodes", n_eval_episodes, 1)
        self.eval_freq = check_int("eval_freq", eval_freq, -inf)
        self.best_model_save_path = best_model_save_path
        self.log_path = log_path
        self.deterministic = deterministic
        self.render = render
        self.warn = warn
        self.seed = None if seed is None else check_int("seed", seed, -inf)
        self.max_steps = check_int("max_steps", max_steps, 1)
        self.best_mean_reward = -np.inf
        self.last_mean_reward = -np.inf
        self.n_evaluations = 0
        self.evaluations_timesteps: list[int] = []
        self.evaluations_results: list[list[float]] = []
        self.evaluations_length: list[list[int]] = []
        self.evaluations_successes: list[list[bool]] = []
        self._every = Every(self.eval_freq, "eval_freq") if self.eval_freq > 0 else None
        self._stream: Stream | None = None

    def children(self) -> Sequence[BaseCallback]:
        return [child for child in (self.callback_on_new_best, self.callback) if child is not None]

    def _init_callback(self) -> None:
        check_not_training(self.model, self.eval_env, learning=True)
        if self._every is not None:
            self._stream = open_for_evaluation(
                self.model, self.eval_env
            )  # raises before training if the spaces do not match
        if self.best_model_save_path is not None:
            Path(self.best_model_save_path).mkdir(parents=True, exist_ok=True)
        if self.log_path is not None:
            Path(self.log_path).mkdir(parents=True, exist_ok=True)

    def _on_training_start(self) -> None:
        if self._every is not None:
            self._every.begin(self.num_timesteps)
        if self.log_path is not None and self.num_timesteps > 0:
            self._read(Path(self.log_path) / "evaluations.npz")

    def _on_step(self) -> bool:
        if self._every is None or self.model.rank or not self._every.crossed(self.num_timesteps):
            return True  # of several learners, the first evaluates
        episodes = self._play()
        mean = float(np.mean(episodes.returns))
        self.last_mean_reward = mean
        self._report(episodes, mean)
        continues = True
        if mean > self.best_mean_reward:
            if self.verbose >= 1:
                print("New best mean reward!")
            if self.best_model_save_path is not None:
                with self._training_continues("best_model.zip"):
                    self.model.save(str(Path(self.best_model_save_path) / "best_model.zip"))
            self.best_mean_reward = mean
            if self.callback_on_new_best is not None:
                continues = self._trigger(self.callback_on_new_best)
        return self._on_event() and continues

    def _play(self) -> Episodes:
        """Plays the episodes of one evaluation; the stream stays open for the next one."""
        assert self._stream is not None
        sync_normalizer(self.model.get_env(), self._stream.env)
        base = self.model.seed if self.seed is None else self.seed
        seed = derive_seed(0 if base is None else base, self.n_evaluations)
        self.n_evaluations += 1
        return play_episodes(
            self.model,
            self._stream,
            self.n_eval_episodes,
            self.deterministic,
            render=self.render,
            seed=seed,
            max_steps=self.max_steps,
        )

    def _report(self, episodes: Episodes, mean: float) -> None:
        """Writes the results to the file, to the log and, if `verbose`, to the terminal."""
        successes = self._keep(episodes)
        if self.log_path is not None:
            with self._training_continues("evaluations.npz"):
                self._write(Path(self.log_path) / "evaluations.npz")
        length = float(np.mean(episodes.lengths))
        self.logger.record("eval/mean_reward", mean)
        self.logger.record("eval/mean_ep_length", length)
        if successes:
            self.logger.record("eval/success_rate", float(np.mean(successes)))
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(self.num_timesteps)
        if self.verbose >= 1:
            score = f"{mean:.2f} +/- {np.std(episodes.returns):.2f}"
            duration = f"{length:.2f} +/- {np.std(episodes.lengths):.2f}"
            cut = f", {episodes.cut} of {self.n_eval_episodes} cut at {self.max_steps} steps" if episodes.cut else ""
            success = f", success rate {100 * float(np.mean(successes)):.1f}%" if successes else ""
            print(
                f"Eval num_timesteps={self.num_timesteps}, episode_reward={score}, "
                f"episode length {duration}{success}{cut}"
            )

    def _keep(self, episodes: Episodes) -> list[bool]:
        """Keeps the results of an evaluation; returns the successes of the episodes for which the environment reports them."""
        reported = [bool(info["is_success"]) for info in episodes.infos if "is_success" in info]
        if reported:  # no episode of the evaluations before the first report counts as a success
            missing = len(self.evaluations_timesteps) - len(self.evaluations_successes)
            self.evaluations_successes += [[False] * self.n_eval_episodes] * missing
        if reported or self.evaluations_successes:
            self.evaluations_successes.append([bool(info.get("is_success", False)) for info in episodes.infos])
        self.evaluations_timesteps.append(self.num_timesteps)
        self.evaluations_results.append(episodes.returns)
        self.evaluations_length.append(episodes.lengths)
        return reported

    def _write(self, path: Path) -> None:
        """Writes the results of all evaluations."""
        arrays: dict[str, Any] = {
            "timesteps": self.evaluations_timesteps,
            "results": self.evaluations_results,
            "ep_lengths": self.evaluations_length,
        }
        if self.evaluations_successes:
            arrays["successes"] = self.evaluations_successes
        with atomic_write(path) as file:
            np.savez(file, **arrays)

    def _read(self, path: Path) -> None:
        """Reads the results of an interrupted run up to the present step, unless there are results already."""
        if self.evaluations_timesteps or not path.exists():
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
        before = timesteps <= self.num_timesteps
        self.evaluations_timesteps = timesteps[before].tolist()
        self.evaluations_results = results[before].tolist()
        self.evaluations_length = lengths[before].tolist()
        if "successes" in arrays:
            self.evaluations_successes = arrays["successes"][before].tolist()

    def _close(self) -> None:
        if self._stream is not None and opened_here(self.eval_env):
            self._stream.close()
        self._stream = None

    def state_dict(self) -> State:
        rewards = {"best": self.best_mean_reward, "last": self.last_mean_reward} if self.n_evaluations else None
        return {**super().state_dict(), "n_evaluations": self.n_evaluations, "mean_reward": rewards}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.n_evaluations = int(state["n_evaluations"])
        rewards = state["mean_reward"]
        if rewards is not None:  # None before the first evaluation: keeps a best_mean_reward set by the user
            self.best_mean_reward = float(rewards["best"])
            self.last_mean_reward = float(rewards["last"])
