"""Models through files: `save`, `load`, `resume`, and what a checkpoint holds."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from typing_extensions import Self

from sb_dqn.actors.inline import InlineActor
from sb_dqn.algorithms import persistence
from sb_dqn.algorithms.attributes import Attributes
from sb_dqn.algorithms.continuation import (
    Continuation,
    later_seed,
    process_state,
    set_process_state,
    stream_state,
    tick_of,
    tick_state,
)
from sb_dqn.checkpoint import Replacements, Strips
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.exploration import Exploration
from sb_dqn.normalize import Normalizer
from sb_dqn.policies.base import Policy
from sb_dqn.types import Rows

OPTIMIZER, APART = "policy.optimizer", "policy.apart.optimizer"
"""What `get_parameters` calls the optimisers; the second is FQF's, of its fractions."""


class Saving(Attributes):
    """The verbs of a model that read and write files."""

    actor: InlineActor | None
    exploration: Exploration | None
    learning: bool
    policy: Policy
    normalizer: Normalizer
    _experience: Any
    _interrupted: Continuation | None
    """What a full checkpoint was taken of, until somebody learns on."""
    _resuming: Continuation | None
    """The same while `resume` hands it over."""

    def save(
        self,
        path: str | Path | IO[bytes],
        *,
        full: bool = False,
        trust: bool = False,
        incremental: bool = False,
        background: bool = False,
    ) -> Any:
        """Writes parameters, optimiser, counters and exploration to a zip, whole or not at all.

        Args:
            path: `.zip` is added where there is no suffix. Of a folder it is added too, with a warning: the file lies beside it.
            full: everything that an exact continuation needs, too: replay or rollout, environment state, all generators,
                statistics, log and callbacks; `load(path, env=...).resume()` goes on there.
            trust: pickle an environment that cannot say its state; loading the file then needs `trust=True`, too.
            incremental: with `full`: the rows of a replay go into the folder `replay_rows` beside the zip, which all zips
                in that place share; only what is new since the last one there is written, and what no zip names is deleted.
            background: with `incremental`: copy what is to be written and return; a thread writes it.

        Returns:
            The path; in the background a `Writing`, whose `wait()` answers the path when it is there, or raises.

        Raises:
            CheckpointError: an argument of the constructor cannot be written.
            ConfigurationError: `full` before the first `learn`; `incremental` without it, or into an open file;
                `background` without `incremental`.
        """
        if incremental > full or background > incremental:
            raise ConfigurationError(
                "incremental=True is about the rows of full checkpoints; add full=True; background=True needs both"
            )
        whole = self._continuation(trust, incremental) if full else None
        return persistence.save_model(
            path, type(self).__name__, self.arguments, self.blueprint, self.policy, self._parts(), whole, background
        )

    def _continuation(self, trust: bool, incremental: bool) -> Continuation:
        actor, session = self.actor, self.session
        if actor is None or session is None:
            raise ConfigurationError(
                "full=True holds a learn that can be gone on with, and there was none; leave it out"
            )
        rows = actor.latest if session.settled else None
        stream, why = stream_state(actor.stream, rows, trust)
        if why:
            warnings.warn(
                f"the full checkpoint is without the environment's state ({why}): resume() begins new episodes, and those "
                f"that were interrupted are recorded as truncated",
                stacklevel=4,
            )
        strips = self._strips() if incremental else None
        apart = () if strips is None else strips.columns
        kept = self._experience.state_dict()
        return Continuation(
            session=session.state_dict(),
            parts={name: part.state_dict() for name, part in self._more_parts().items()},
            experience={name: tensor for name, tensor in kept.items() if name not in apart},
            tick=None if rows is None or stream is None else tick_state(rows),
            stream=stream,
            why=why,
            process=process_state(),
            strips=strips,
        )

    def after_tick(self, action: Callable[[], object]) -> None:
        """Does something as soon as this tick is over, all callbacks called and the log written; at once between learns."""
        if self.learning and self.session is not None:
            self.session.waiting.append(action)
        else:
            action()

    @classmethod
    def load(
        cls,
        path: str | Path | IO[bytes],
        env: Any = None,
        device: str | torch.device = "auto",
        custom_objects: Mapping[str, Any] | None = None,
        trust: bool = False,
        **kwargs: Any,
    ) -> Self:
        """A model from a zip that `save` wrote; nothing in it is run.

        Args:
            path: of the zip, or of a folder: its full checkpoint of most steps.
            env: to learn from; None loads a model that can predict. A full checkpoint is gone on with by `resume()`.
            device: "auto", "cpu", "cuda".
            custom_objects: by name of a constructor argument, what to use instead of what the file says.
            trust: import or unpickle what the file names (a policy class of your own, a function as a schedule, an
                environment).
            kwargs: constructor arguments to change.

        Raises:
            CheckpointError: the file is damaged, foreign, or needs trust.
            SpaceError: the spaces of `env` differ from the model's.
        """
        replacements = Replacements({**(custom_objects or {}), **kwargs})
        saved = persistence.read_model(path, replacements, trust, env is not None)
        replacements.warn_of_unused(custom_objects or {}, saved.arguments)
        made_by = persistence.find_class(cls, saved.class_name)
        arguments = made_by.loaded_arguments({**saved.arguments, **kwargs, "device": device}, saved)
        outside = persistence.outside_of(saved.blueprint, env, arguments.get("action_mask"))
        model: Self = persistence.build(made_by, outside, arguments, saved.policy)
        parts = model._parts()
        if "normalizer" not in saved.parts:
            parts.pop("normalizer", None)  # begins anew
        persistence.restore(parts, saved.parts)
        if model.exploration is not None and any(name.startswith("exploration") for name in kwargs):
            model.exploration.tell_if_held()
        model.learner.refresh()
        if saved.continuation is not None:
            model._take_over(saved, trust)
        return model

    def _take_over(self, saved: persistence.Saved, trust: bool) -> None:
        """The rest of a full checkpoint, except what must wait for `resume`."""
        continuation, lanes = saved.continuation, saved.blueprint.num_envs
        assert continuation is not None
        assert self._experience is not None
        if self.n_envs != lanes:
            raise CheckpointError(
                f"the full checkpoint holds the rows of {lanes} lanes, the environment has {self.n_envs}; give as many, or "
                f"load(path) and then set_env(env) to begin without them"
            )
        persistence.restore(self._more_parts(), continuation.parts)
        persistence.restore({"experience": self._experience}, {"experience": continuation.experience})
        self._recall_segments(continuation)
        # the rows are in the replay now: one copy of them is enough
        self._interrupted = replace(continuation, experience={}, rng=saved.parts["rng"], trusted=trust)

    def resume(self, callback: Any = None, progress_bar: bool = False) -> Self:
        """Finishes the `learn` of which this model's full checkpoint was taken, with its own horizon and log interval.

        On the same machine and versions the result is the same bit for bit as without the interruption, if the
        environment's state is in the file; otherwise new episodes begin, and the interrupted ones count as truncated.

        Args:
            callback: as it was given to `learn`; it goes on with its counts.
            progress_bar: show one.

        Raises:
            ConfigurationError: the model does not come from a full checkpoint, or has learned since.
        """
        interrupted = self._interrupted
        if interrupted is None:
            raise ConfigurationError(
                "there is nothing to resume: the model must come from load(path, env=...) of a checkpoint saved with "
                "full=True, and not have learned since; learn(more, reset_num_timesteps=False) adds steps to any model"
            )
        left = self.counters.horizon - self.counters.num_timesteps
        if left <= 0:
            return self
        self._resuming = interrupted
        with persistence.reading("the file does not describe a learn"):
            interval, name = int(interrupted.session["log_interval"]), str(interrupted.session["name"])
        try:
            return self.learn(left, callback, interval, name, False, progress_bar)
        finally:
            self._resuming = None

    @abstractmethod
    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int | None = None,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self: ...

    def _resumes(self) -> dict[str, Any] | None:
        """For a session that begins: the one that it goes on with, if any. The actor is told, too."""
        interrupted, self._interrupted = self._resuming, None
        if interrupted is None or self.actor is None:
            return None
        self.actor.goes_on = partial(self._take_up, interrupted)
        return interrupted.session

    def _take_up(self, interrupted: Continuation) -> Rows | None:
        """The last thing before the first step: the environment, then the generators; nothing draws after that."""
        rows, actor = None, self.actor
        assert actor is not None
        with persistence.reading("the state of the environment in the file does not fit"):
            if interrupted.tick is not None and interrupted.stream is not None:
                actor.stream.load_state_dict(interrupted.stream, interrupted.trusted)
                rows = tick_of(interrupted.tick, actor.stream)
            elif actor.env_seed is not None:
                actor.env_seed = later_seed(actor.env_seed, self.counters.lifetime)
            set_process_state(interrupted.process)
        persistence.restore({"rng": self.rng}, {"rng": interrupted.rng})
        return rows

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """State of the policy (online and target nets) and of the optimisers, by name; a copy, to be put back later."""
        apart = {} if self.learner.apart is None else {APART: self.learner.apart.state_dict()}
        return deepcopy({"policy": self.policy.state_dict(), OPTIMIZER: self.learner.optimizer.state_dict(), **apart})

    def set_parameters(self, load_path_or_dict: Any, exact_match: bool = True, device: str = "auto") -> None:
        """Writes parameters from a dict such as `get_parameters` returns, or from a zip.

        Raises:
            ConfigurationError: names or shapes do not fit; nothing has changed.
        """
        before = self.get_parameters()
        given = persistence.read_parameters(load_path_or_dict, before, exact_match)
        try:
            self._write_parameters(given, exact_match)
        except Exception:
            self._write_parameters(before, exact_match=True)
            raise

    def _write_parameters(self, given: dict[str, Any], exact_match: bool) -> None:
        takes = {OPTIMIZER: self.learner.take_moments}
        if self.learner.apart is not None:
            takes[APART] = self.learner.apart.load_state_dict
        for name, take in takes.items():
            try:
                if name in given:
                    take(deepcopy(given[name]))  # it keeps what it is given
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigurationError(
                    f"{name!r} does not fit: {error}; give that of the same nets and optimizer_class, or leave it out"
                ) from None
        if "policy" in given:
            persistence.write_policy(self.policy, given["policy"], exact_match)
            self.learner.refresh()

    def _parts(self) -> dict[str, persistence.Stateful]:
        """What a checkpoint holds beside the policy."""
        exploring: dict[str, Any] = {} if self.exploration is None else {"exploration": self.exploration}
        normalizing: dict[str, Any] = {"normalizer": self.normalizer} if self.normalizer.active else {}
        return {"learner": self.learner, **exploring, **normalizing, "counters": self.counters, "rng": self.rng}

    def _more_parts(self) -> dict[str, persistence.Stateful]:
        """What a full checkpoint holds beside these and what is learned from."""
        return {"statistics": self.statistics}

    def _strips(self) -> Strips | None:
        """The rows that incremental checkpoints write to segments, if there are any."""
        return None

    def _recall_segments(self, continuation: Continuation) -> None:
        """Remembers where the rows lie that were just loaded."""
