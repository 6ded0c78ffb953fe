"""Evaluation of models: raw returns of complete episodes, without effects on the training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.buffers.frame_stack import FrameStack
from sb_dqn.checks import check_callable, check_int
from sb_dqn.envs.by_id import open_env
from sb_dqn.envs.streams.base import shares_environment
from sb_dqn.envs.streams.open import Stream, open_stream, opened_here
from sb_dqn.envs.streams.sb3 import has_stacks_of
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.spaces import flatten_space
from sb_dqn.types import BoolArray, EnvLike, Info, Kwargs, ModelLike, Rows

MAX_STEPS = 108_000
"""Number of steps after which an episode is cut if the environment has no shorter limit (ALE's is 108,000 frames)."""

EvaluationCallback = Callable[[Kwargs, Kwargs], object]


def evaluate_policy(
    model: ModelLike,
    env: EnvLike,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: EvaluationCallback | None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,
    *,
    seed: int | None = 0,
    max_steps: int = MAX_STEPS,
) -> tuple[float, float] | tuple[list[float], list[int]]:
    """Evaluates a model on complete episodes with the environment's own rewards: no clipping, a lost life ends no episode.

    Args:
        model: object with a `predict` method.
        env: an id, an environment, a vector env or a list of factories. An environment that is passed in stays open and
            is reset; others are closed afterwards. The id that was passed to `from_preset` is opened with the keywords of
            the preset, also by a loaded model.
        n_eval_episodes: total number of episodes, divided evenly over the lanes.
        deterministic: True for greedy actions, False to sample actions as during training.
        render: True calls the env's `render` after every step.
        callback: function that is called as `callback(locals, globals)` after each step, for each lane whose episode counts.
        reward_threshold: bound that the mean return must exceed.
        return_episode_rewards: True returns all episodes instead of their mean.
        warn: warn if the environment is the training one, or an episode was cut.
        seed: seed of the environment. With greedy actions the same seed gives the same episodes; None sets no seed.
        max_steps: number of steps after which an episode is cut, so that an endless episode cannot block the training.

    Returns:
        Mean and standard deviation of the return; or the lists of returns and of lengths in steps.

    Raises:
        ConfigurationError: no environment, an argument out of range, or the training env of a model that is learning.
        SpaceError: the spaces of `env` differ from the model's.
        AssertionError: the mean return is not above `reward_threshold`.
    """
    if env is None:
        raise ConfigurationError("env must be an environment or its id, got None. Pass one of these.")
    check_not_training(model, env, bool(getattr(model, "learning", False)), warn)
    stream = open_for_evaluation(model, env)
    try:
        options: Kwargs = {"render": render, "callback": callback, "seed": seed, "max_steps": max_steps}
        episodes = play_episodes(model, stream, n_eval_episodes, deterministic, **options)
    finally:
        if opened_here(env):
            stream.close()
    if episodes.cut and warn:
        warnings.warn(
            f"{episodes.cut} of {n_eval_episodes} episodes did not end within max_steps={max_steps} and were cut. "
            f"Pass a larger max_steps, or an environment with a time limit.",
            stacklevel=2,
        )
    mean, spread = float(np.mean(episodes.returns)), float(np.std(episodes.returns))
    if reward_threshold is not None and not mean > reward_threshold:
        raise AssertionError(
            f"the mean return must be above reward_threshold={reward_threshold:.2f}, got {mean:.2f}. Train longer, or lower the "
            f"threshold."
        )
    return (episodes.returns, episodes.lengths) if return_episode_rewards else (mean, spread)


def play_episodes(
    model: ModelLike,
    stream: Stream,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    render: bool = False,
    callback: EvaluationCallback | None = None,
    seed: int | None = 0,
    max_steps: int = MAX_STEPS,
    max_total_steps: int | None = None,
    watch: Callable[[Episodes], object] | None = None,
) -> Episodes:
    """Plays the games of `evaluate_policy` on a stream that is already open and stays open.

    A lane whose episode was cut waits until the others have their episodes; then all start again with another seed.

    Args:
        model, stream, n_eval_episodes, deterministic, render, callback, seed, max_steps: see `evaluate_policy`.
        max_total_steps: env steps over all lanes after which it ends with the episodes that are finished, maybe none; short
            episodes are then over-represented. If None, there is no bound.
        watch: function that is called with the episodes so far after each step.
    """
    n_eval_episodes, max_steps = check_int("n_eval_episodes", n_eval_episodes, 1), check_int("max_steps", max_steps, 1)
    seed = None if seed is None else check_int("seed", seed, -np.inf)
    if callback is not None:
        check_callable("callback", callback, "locals", "globals")
    stream = open_for_evaluation(model, stream)  # raises if spaces differ or required action masks are missing
    tally = Tally(n_eval_episodes, stream.num_envs, max_steps)
    rounds, start = 0, stream.action_shape.start
    bound = np.inf if max_total_steps is None else check_int("max_total_steps", max_total_steps, 1)
    while not tally.complete and tally.episodes.steps < bound:
        rows = stream.begin(None if seed is None else derive_seed(seed, rounds))
        tally.begin()
        rounds += 1
        view, state = View(stream), None
        observations = view(rows)
        while tally.playing.any() and tally.episodes.steps < bound:
            reward = {"reward": rows.slots[-1].reward} if getattr(model, "reads_reward", False) else {}
            inputs = {"state": state, "episode_start": tally.starts, "deterministic": deterministic, **reward}
            if (mask := rows.slots[-1].mask) is not None:
                inputs["action_masks"] = mask
            actions, state = model.predict(observations, **inputs)
            rows = stream.step(np.asarray(actions) - start)
            ended = tally.add(rows)
            new_observations = view(rows)
            if callback is not None:
                names = {
                    "model": model,
                    "env": stream,
                    "observations": observations,
                    "actions": actions,
                    "action_masks": mask,
                }
                _tell(callback, {**names, "new_observations": new_observations, "states": state}, tally, rows, ended)
            tally.close_episodes(ended, rows)
            observations = new_observations
            if render:
                stream.env.render()
            if watch is not None:
                watch(tally.episodes)
    return tally.episodes


def open_for_evaluation(model: ModelLike, env: EnvLike) -> Stream:
    """Opens an environment as a stream of rows, with action masks if the model was trained with them.

    Raises:
        SpaceError: its spaces differ from the model's.
    """
    made = getattr(model, "blueprint", None)  # something else that predicts does not tell
    action_mask, preset_env = getattr(model, "action_mask", None), getattr(model, "preset_env", None)
    if preset_env is not None and preset_env.is_named(env):
        stream = open_env(preset_env.env_id, 1, preset_env.keywords, action_mask)
    else:
        whole = 1 if made is not None and has_stacks_of(env, made) else None
        stream = open_stream(env, frame_stack=whole, action_mask=action_mask)
    if not stream.chooses:
        raise ConfigurationError(
            f"the environment of an evaluation must play the actions, got {type(stream.env).__name__}. Evaluate on the environment "
            f"that was recorded."
        )
    expected = made or stream.blueprint
    for name in ("observation_space", "action_space"):  # the number of lanes may differ
        found, wanted = getattr(stream.blueprint, name), getattr(expected, name)
        stacks = name == "observation_space" and expected.frame_stack > 1
        if found != wanted and not (stacks and found in _accepted_images(wanted, expected.frame_stack)):
            if opened_here(env):
                stream.close()
            raise SpaceError(
                f"{name} of the environment must be {wanted}, as of the model, got {found}. Evaluate on an environment with the same "
                f"spaces, such as model.get_env(), or one made with the env_kwargs of the model's preset."
            )
    return stream


def _accepted_images(stack: Any, count: int) -> list[spaces.Box]:
    """Returns what `predict` accepts where the model stacks frames: a frame `[C, H, W]`, and frame and stack with channels last."""
    depth = stack.shape[0] // count
    frame = spaces.Box(stack.low[-depth:], stack.high[-depth:], dtype=stack.dtype.type)
    bounds = [[np.moveaxis(bound, 0, -1) for bound in (image.low, image.high)] for image in (frame, stack)]
    return [frame, *(spaces.Box(low, high, dtype=stack.dtype.type) for low, high in bounds)]


def derive_seed(seed: int, number: int) -> int:
    """Returns a seed for the `number`-th start of an evaluation, unlike those of the training; leaves room for + lane."""
    words = np.random.SeedSequence([seed % 2**64, 0xE7A1, number]).generate_state(1)
    return int(words[0] % 2**30)


def check_not_training(model: ModelLike, env: EnvLike, learning: bool, warn: bool = True) -> None:
    """Raises or warns if an evaluation would reset the episodes of the training environment.

    Args:
        model: model, with `get_env()` if it has an environment.
        env: environment of the evaluation.
        learning: True while `learn` is running, which would lose its episodes.
        warn: warn if only the running episodes of a model that is not learning are lost.

    Raises:
        ConfigurationError: the model is learning on the same environment.
    """
    training_env = getattr(model, "get_env", lambda: None)()
    makes_new = opened_here(env) or opened_here(training_env)  # a factory of actors is no environment
    if training_env is None or makes_new or not shares_environment(env, training_env):
        return
    if learning:
        raise ConfigurationError(
            "the evaluation env must not be the one that the model is learning on, whose episodes it would reset. "
            "Pass another one, for example its id."
        )
    if warn:
        warnings.warn(
            "evaluating on the env that the model was trained on discards its running episodes. "
            "Pass a separate env, or warn=False.",
            stacklevel=3,
        )


class View:
    """Observations for `predict`, with axis B: an array, or a dict of arrays for a Dict space; frames are stacked."""

    def __init__(self, stream: Stream) -> None:
        blueprint, leaves = stream.blueprint, flatten_space(stream.observation_space)
        self.is_dict = isinstance(blueprint.observation_space, spaces.Dict)
        self.stack = FrameStack(blueprint.frame_stack, stream.num_envs, leaves) if blueprint.frame_stack > 1 else None

    def __call__(self, rows: Rows) -> object:
        obs = {key: value.copy() for key, value in rows.slots[-1].obs.items()}  # the stream overwrites its arrays
        if self.stack is not None:
            self.stack.extend(rows)
            obs = self.stack.stacked()
        return obs if self.is_dict else obs["obs"]


def _tell(callback: EvaluationCallback, names: Kwargs, tally: Tally, rows: Rows, ended: BoolArray) -> None:
    """Calls the callback for each counting lane that made a step, with the same names as Stable-Baselines3."""
    infos = rows.make_infos()
    rewards = sum(np.where(slot.valid, slot.score, 0) for slot in rows.slots)
    names |= {
        "rewards": rewards,
        "dones": ended,
        "infos": infos,
        "episode_starts": tally.starts,
        "current_rewards": tally.score,
        "current_lengths": tally.length,
        "episode_counts": tally.counts,
        "episode_count_targets": tally.targets,
        "episode_rewards": tally.episodes.returns,
        "episode_lengths": tally.episodes.lengths,
    }
    for lane in np.flatnonzero(tally.playing & rows.stepped):
        info = infos[lane] if infos else {}
        names |= {"i": int(lane), "reward": np.asarray(rewards)[lane], "done": bool(ended[lane]), "info": info}
        callback(names, globals())


@dataclass
class Episodes:
    """The evaluated episodes, in the order in which they ended."""

    returns: list[float] = field(default_factory=list)
    """Undiscounted sums of the rewards as the game gave them."""
    lengths: list[int] = field(default_factory=list)
    """Lengths in environment steps."""
    infos: list[Info] = field(default_factory=list)
    """Info dicts of the final steps."""
    cut: int = 0
    """Number of episodes that were cut at `max_steps`."""
    steps: int = 0
    """Number of env steps over all lanes, including those of episodes that did not finish."""


class Tally:
    """Counts episodes lane by lane, each lane against a target of its own.

    Fixed targets keep the mean fair: whoever takes the first n episodes to end over-represents the short ones.

    Args:
        n_eval_episodes: number of episodes, divided over the lanes as evenly as possible.
        num_envs: number of lanes B.
        max_steps: an episode of this many steps is cut, and its lane waits for the next start of the stream.
    """

    def __init__(self, n_eval_episodes: int, num_envs: int, max_steps: int) -> None:
        self.targets = (n_eval_episodes + np.arange(num_envs)) // num_envs  # [B]
        self.counts = np.zeros(num_envs, np.int64)
        self.max_steps = max_steps
        self.episodes = Episodes()
        self.begin()

    def begin(self) -> None:
        """Starts the episodes of all lanes, which are at their first observation."""
        lanes = len(self.targets)
        self.score = np.zeros(lanes)
        self.length = np.zeros(lanes, np.int64)
        self.waiting = np.zeros(lanes, np.bool_)
        self.last = np.zeros(lanes, np.bool_)
        self.starts = np.ones(lanes, np.bool_)

    @property
    def complete(self) -> bool:
        """True if every lane has its episodes."""
        return bool((self.counts >= self.targets).all())

    @property
    def playing(self) -> BoolArray:
        """Lanes `[B]` whose running episode is going to count."""
        return (self.counts < self.targets) & ~self.waiting

    def add(self, rows: Rows) -> BoolArray:
        """Adds the scores of a tick; returns the lanes `[B]` whose episode ended in it."""
        self.length += rows.stepped
        self.episodes.steps += rows.steps
        ended = np.zeros_like(self.last)
        for slot in rows.slots:
            self.score += np.where(slot.valid, slot.score, 0)
            ended |= slot.valid & slot.last
            self.starts = np.where(slot.valid, self.last, self.starts)  # the row after a last one is a reset row
            self.last = np.where(slot.valid, slot.last, self.last)
        return ended

    def close_episodes(self, ended: BoolArray, rows: Rows) -> None:
        """Stores the episodes that ended, and those that are cut for their length."""
        cut = self.playing & ~ended & (self.length >= self.max_steps)
        done = (self.playing & ended) | cut
        if done.any():
            infos = rows.make_infos()
            for lane in np.flatnonzero(done):
                self.episodes.returns.append(float(self.score[lane]))
                self.episodes.lengths.append(int(self.length[lane]))
                self.episodes.infos.append(infos[lane] if infos else {})
            self.episodes.cut += int(cut.sum())
            self.counts += done
            self.waiting |= cut
        self.score[ended] = 0
        self.length[ended] = 0
