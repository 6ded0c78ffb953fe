"""Bookkeeping of one `learn`: counters, callbacks, log lines and statistics. The loop itself is `BaseAlgorithm.learn`.

Files and callbacks are closed at the end, also after errors.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sb_dqn.callbacks.base import BaseCallback
from sb_dqn.callbacks.compose import as_callback
from sb_dqn.callbacks.progress import ProgressBarCallback
from sb_dqn.envs.statistics import EpisodeStatistics
from sb_dqn.errors import ConfigurationError, EnvironmentFault, checkpoint_errors, user_stacklevel
from sb_dqn.learning.learner_group import LearnerGroup
from sb_dqn.logger import Logger, configure
from sb_dqn.spaces import as_observation
from sb_dqn.types import Experience, Info, ModelLike, Rows, State, Update

NAMES = ("self", "total_timesteps", "rewards", "dones", "infos", "actions", "new_obs", "env", "callback")
CHECK_EVERY = 1_000
"""Updates between two checks for NaN; each synchronizes with the device."""


@dataclass
class Counters:
    """Counts of a model. Steps are env steps over all lanes, without reset rows."""

    num_timesteps: int = 0
    """Since the last `learn` with `reset_num_timesteps`."""
    lifetime: int = 0
    """Since the model was made; never reset."""
    horizon: int = 0
    """`num_timesteps` at which the current `learn` stops; schedules refer to it."""
    n_updates: int = 0
    """Gradient steps since the model was made."""
    iterations: int = 0
    """Rollouts since the running `learn` began."""

    def state_dict(self) -> State:
        return asdict(self)

    def load_state_dict(self, state: State) -> None:
        for name in asdict(self):
            setattr(self, name, int(state.get(name, 0)))  # a file may come from before there was a count


class Logs:
    """The logger of a model: one that the user set, or an own one that lives for one `learn`.

    Args:
        verbose: 0 silent, 1 logs to stdout.
        tensorboard_log: folder of TensorBoard runs, or None.
    """

    def __init__(self, verbose: int, tensorboard_log: str | None) -> None:
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        self.is_ours = True
        self.name = ""
        """Name of the TensorBoard run."""
        self._logger: Logger | None = None

    @property
    def logger(self) -> Logger:
        """The current logger; before the first `learn`, one without outputs."""
        if self._logger is None:
            self._logger = configure(None, [])
        return self._logger

    def use_logger(self, logger: Logger) -> None:
        """Uses a logger of the user, who closes it.

        Raises:
            ConfigurationError: it lacks a method of a logger.
        """
        lacking = [name for name in ("record", "dump", "output_formats") if getattr(logger, name, None) is None]
        if lacking:
            raise ConfigurationError(
                f"logger must have record, dump and output_formats, got {logger!r} without {', '.join(lacking)}. Pass one that "
                f"sb_dqn.logger.configure(folder, formats) returns."
            )
        self._logger, self.is_ours = logger, False

    def open(self, name: str, new_run: bool) -> None:
        """Opens an own logger, unless the user set one; TensorBoard writes to `{tensorboard_log}/{name}_{id}`."""
        self.name = name
        if not self.is_ours:
            return
        formats = ["stdout"] if self.verbose else []
        folder: str | None = None
        if self.tensorboard_log is not None:
            folder = str(_run_folder(Path(self.tensorboard_log), name, new_run))
            formats.append("tensorboard")
        self._logger = configure(folder, formats)

    def pending(self) -> State:
        """Returns the plain entries for the next line: value, number of values in the mean, formats that do not get it."""
        log: Any = self._logger
        if not isinstance(log, Logger):
            return {}
        numbers = (bool, int, float, str, np.integer, np.floating)
        return {
            name: [value, log.name_to_count.get(name, 0), list(log.name_to_excluded.get(name, ()))]
            for name, value in log.name_to_value.items()
            if isinstance(value, numbers)
        }

    def restore(self, entries: State) -> None:
        """Restores what `pending` returned."""
        if isinstance(self._logger, Logger):
            for name, (value, count, excluded) in entries.items():
                self._logger.name_to_value[name] = value
                self._logger.name_to_excluded[name] = tuple(excluded)
                if count:
                    self._logger.name_to_count[name] = int(count)

    def close(self) -> None:
        """Closes the files of an own logger."""
        if self.is_ours and self._logger is not None:
            self._logger.close()
            self._logger = None


def _run_folder(parent: Path, name: str, new_run: bool) -> Path:
    """Returns the folder of a TensorBoard run."""
    if Path(name).is_absolute() or ".." in Path(name).parts or not name.isprintable():
        raise ConfigurationError(
            f"tb_log_name must be a name inside of tensorboard_log, got {name!r}. Put other folders into tensorboard_log."
        )
    first = parent / f"{name}_1"
    found = first.parent.iterdir() if first.parent.is_dir() else ()
    matches = [re.fullmatch(rf"{re.escape(first.name[:-1])}(\d+)", path.name) for path in found]
    latest = max((int(match[1]) for match in matches if match), default=0)
    return parent / f"{name}_{latest + 1 if new_run or not latest else latest}"


class TickLocals(Mapping[str, Any]):
    """`callback.locals`: the data of one tick under the names of Stable-Baselines3, each built on first access.

    Args:
        model: `locals["self"]`.
        callback: `locals["callback"]`.
    """

    def __init__(self, model: ModelLike, callback: BaseCallback) -> None:
        self.model = model
        self.known: dict[str, Any] = {
            "self": model,
            "callback": callback,
            "total_timesteps": model.counters.horizon,
        }
        self.rows: Rows | None = None

    def set_rows(self, rows: Rows) -> None:
        """Shows another tick."""
        self.rows = rows
        self.known.pop("infos", None)
        self.known.pop("new_obs", None)

    def __getitem__(self, name: str) -> Any:
        if name in self.known:
            return self.known[name]
        if name == "env":
            return self.model.get_env()
        if name not in NAMES or self.rows is None:
            raise KeyError(name)
        return self._value(self.rows, name)

    def _value(self, rows: Rows, name: str) -> Any:
        if name == "infos":
            return self.known.setdefault("infos", self._infos(rows))
        if name == "actions":
            return None if rows.action is None else rows.action + self.model.predictor.actions.start
        if name == "new_obs":
            # copies: the stream writes into its own again
            obs = {key: value.copy() for key, value in rows.slots[-1].obs.items()}
            return self.known.setdefault("new_obs", as_observation(obs, self.model.observation_space))
        if name == "dones":
            return np.any([slot.last & slot.valid for slot in rows.slots], axis=0) & rows.stepped
        return np.sum([np.where(slot.valid, slot.reward, 0) for slot in rows.slots], axis=0, dtype=np.float32)

    def _infos(self, rows: Rows) -> list[Info]:
        infos = rows.make_infos()
        for episode in self.model.statistics.finished:
            summary = {"r": episode.return_, "l": episode.length, "t": episode.time}
            infos[episode.lane] = {**infos[episode.lane], "episode": summary}
        return infos

    def __iter__(self) -> Iterator[str]:
        return iter(name for name in NAMES if self.rows is not None or name in self.known or name == "env")

    def __len__(self) -> int:
        return sum(1 for _ in self)


class TrainingRun:
    """One call of `learn`: runs the callbacks, counts, and writes log lines.

    Args:
        model: a `BaseAlgorithm`, which imports this module.
        callback: the callback of `learn`, if any.
        log_interval: episodes, or rollouts, between log lines.
        progress_bar: show one.
        resume_from: `state_dict` of the run that this one continues.
    """

    def __init__(
        self,
        model: ModelLike,
        callback: BaseCallback | None,
        log_interval: int,
        progress_bar: bool,
        resume_from: State | None = None,
    ) -> None:
        self.model = model
        self.counters: Counters = model.counters
        self.statistics: EpisodeStatistics = model.statistics
        self.logs: Logs = model.logs
        self.finite: Tensor = model.learner.finite
        self.learners: LearnerGroup = model.learners
        self.count: Callable[[], int] = model._log_count
        self.log_interval = log_interval
        self.user_callback: BaseCallback | None = callback
        first = as_callback(callback)
        self.callback = as_callback([first, ProgressBarCallback()]) if progress_bar else first
        self.calls_back = callback is not None or progress_bar
        self.locals = TickLocals(model, self.callback)
        self.reports = ("loss", "grad_norm", *model.learner.objective.reports)
        self.recent: list[Update] = []
        self.skips = False
        self.logged = self.count()
        self.started = time.monotonic()
        self.first_step = self.counters.num_timesteps
        self.next_check = self.counters.n_updates + CHECK_EVERY
        self.resume_from = resume_from
        self.settled = True
        """True once the latest tick has been stored and its updates have run."""
        self.calls_after_tick: list[Callable[[], object]] = []
        """Functions to call at the end of this tick, after callbacks and log."""

    def __enter__(self) -> TrainingRun:
        self.model.learning = True
        self.finite.fill_(True)  # the user may have repaired the parameters since
        try:
            self.callback.init_callback(self.model)
            self.callback.on_training_start(self.locals, {})
            if self.resume_from is not None:
                with checkpoint_errors("the state of log and callbacks in the file does not fit"):
                    self._load_state_dict(self.resume_from)
            self.callback.on_rollout_start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.callback.on_training_end()
                self.check_finite()
        finally:
            self._close()

    def _close(self) -> None:
        self.model.learning = False
        try:
            self.callback.close()
        finally:
            self.logs.close()

    def state_dict(self) -> State:
        """Returns the state of log and callbacks."""
        return {
            "log_interval": self.log_interval,
            "learners": [self.learners.rank, self.learners.size],
            "name": self.logs.name,
            "since_line": self.count() - self.logged,
            "elapsed": time.monotonic() - self.started,
            "first_step": self.first_step,
            "recent": self._reported() if self.recent else None,
            "callback": None if self.user_callback is None else self.user_callback.state_dict(),
            "entries": self.logs.pending(),
        }

    def _load_state_dict(self, state: State) -> None:
        self.logged = self.count() - int(state["since_line"])
        self.started, self.first_step = time.monotonic() - float(state["elapsed"]), int(state["first_step"])
        recent = [] if state["recent"] is None else state["recent"].to(self.finite.device)
        # a file of a version with other reports: nothing to log until the next update
        self.recent = [Update(row) for row in recent if len(row) == len(self.reports)]
        if self.user_callback is not None and state["callback"] is not None:
            self.user_callback.load_state_dict(state["callback"])
        self.logs.restore(state.get("entries", {}))

    def count_tick(self, rows: Rows) -> None:
        """Counts the tick; from here on `rows.steps` are the env steps of all learners."""
        self.settled = False
        if self.learners.size > 1:
            rows.steps = self.learners.total(rows.steps)
        counters = self.counters
        counters.num_timesteps += rows.steps
        counters.lifetime += rows.steps
        self.statistics.update(rows)

    def each_update(self, due: int) -> Iterator[None]:
        """Yields once for each due update, between the callbacks' `on_rollout_end` and `on_rollout_start`."""
        if due:
            self.recent = []
            self.skips = False
        if due and self.calls_back:
            self.callback.on_rollout_end()
        for _ in range(due):
            yield
            if self.skips:
                break
        if due and self.calls_back:
            self.callback.on_rollout_start()

    def add_update(self, update: Update) -> None:
        """Counts an update and keeps its loss and reports; they stay on the device until a log line needs them."""
        self.recent.append(update)
        self.counters.n_updates += update.applied
        self.skips = not update.applied

    def finish_tick(self, rows: Rows) -> bool:
        """Runs the callbacks and, at intervals, writes a log line. Returns False if training is over."""
        counters, go_on, self.settled = self.counters, True, True
        if counters.n_updates >= self.next_check:
            self.next_check = counters.n_updates + CHECK_EVERY
            self.check_finite()
        if rows.steps == 0:  # nothing but resets
            return True
        if self.calls_back:
            self.locals.set_rows(rows)
            self.callback.update_locals(self.locals)
            go_on = self.callback.on_step()
        if go_on and self.count() - self.logged >= self.log_interval:
            self.write_log()
        while self.calls_after_tick:
            self.calls_after_tick.pop(0)()
        if self.learners.calls_back:
            go_on = bool(self.learners.minimum(go_on))
        return go_on and counters.num_timesteps < counters.horizon

    def write_log(self) -> None:
        """Writes a log line."""
        counters = self.counters
        self.logged = self.count()
        if self.learners.rank:  # the first learner writes
            return
        if self.logs.is_ours and not (self.logs.logger.output_formats or self.calls_back):  # no output
            return
        self.log_entries()
        self.logs.logger.dump(counters.num_timesteps)

    def log_entries(self) -> None:
        """Passes the entries of a log line to the logger, without writing it."""
        statistics, counters = self.statistics, self.counters
        record = self.logs.logger.record
        if statistics.ep_info_buffer:
            record("rollout/ep_rew_mean", statistics.mean_return)
            record("rollout/ep_len_mean", statistics.mean_length)
        if statistics.ep_success_buffer:
            record("rollout/success_rate", statistics.success_rate)
        elapsed = max(time.monotonic() - self.started, sys.float_info.epsilon)
        record("time/episodes", statistics.num_episodes, exclude="tensorboard")
        record("time/fps", int((counters.num_timesteps - self.first_step) / elapsed))
        record("time/time_elapsed", int(elapsed), exclude="tensorboard")
        record("time/total_timesteps", counters.num_timesteps, exclude="tensorboard")
        if self.recent:
            means = self._reported().mean(0).tolist()  # of one rollout or tick; synchronizes with the device
            for name, mean in zip(self.reports, means, strict=True):
                record(f"train/{name}", mean)
            record("train/n_updates", counters.n_updates, exclude="tensorboard")
        for key, value in self.model.log_facts().items():
            record(key, value)

    def _reported(self) -> torch.Tensor:
        """Returns loss, gradient norm and reports of the latest updates, `[U, 2 + reports]`."""
        return torch.stack([update.values for update in self.recent])

    def check_finite(self) -> None:
        """Raises an error if a loss or gradient of this run was NaN or infinite; synchronizes with the device."""
        if not bool(self.finite):
            raise EnvironmentFault(
                f"losses and gradients must be finite, got NaN or infinity before update {self.counters.n_updates} (env step "
                f"{self.counters.num_timesteps}). Lower learning_rate, set max_grad_norm, or bound the rewards. The model may "
                f"hold NaN now: continue from the last checkpoint."
            )


class IdleWarning:
    """Warns once of a `learn` that makes no update: before it if that is certain, else after it.

    After the first update or warning of a model it is silent, since `learn` may be called for a few steps at a time.
    """

    def __init__(self) -> None:
        self.silent = False

    def warn_before(self, experience: Experience, total: int, num_envs: int) -> None:
        """Warns if `total` env steps over `num_envs` lanes cannot reach an update."""
        wait = experience.wait()
        if not self.silent and wait.least > total + num_envs - 1:
            self._warn(f"learn(total_timesteps={total:,}) will make no update: {wait.why}. {wait.fix}.")

    def warn_after(self, experience: Experience, total: int, updated: bool, whole: bool) -> None:
        """Warns if a `learn` made no update.

        Args:
            experience: the buffer.
            total: its `total_timesteps`.
            updated: True if there was an update.
            whole: True if it reached its end and was not stopped by a callback.
        """
        if updated:
            self.silent = True
        elif whole and not self.silent:
            wait = experience.wait()
            self._warn(f"learn(total_timesteps={total:,}) made no update: {wait.why}. {wait.fix}.")

    def _warn(self, message: str) -> None:
        self.silent = True
        warnings.warn(message, stacklevel=user_stacklevel())
