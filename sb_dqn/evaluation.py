"""How good is a model: full games on an environment, the raw game score, nothing of the training touched."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from sb_dqn.checks import check_called, check_int
from sb_dqn.envs.likeness import difference, is_same
from sb_dqn.envs.stream import Stream, open_stream, opened_here
from sb_dqn.envs.stream_sb3_frames import has_stacks_of
from sb_dqn.episode_tally import Episodes as Episodes
from sb_dqn.episode_tally import Tally
from sb_dqn.errors import ConfigurationError, SpaceError
from sb_dqn.replay.frames import FrameStack
from sb_dqn.spaces import flatten_space
from sb_dqn.types import BoolArray, Rows

MAX_STEPS = 108_000
"""Steps after which an episode is cut, should the environment have no limit of its own (ALE's is 108,000 frames)."""

EvaluationCallback = Callable[[dict[str, Any], dict[str, Any]], Any]


def evaluate_policy(
    model: Any,
    env: Any,
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
    """Play full games and report the score as the game gives it: a lost life ends nothing, nothing is clipped.

    Args:
        model: whatever has `predict`.
        env: an id, an environment, a vector env, a list of factories. What was opened here is closed here; an
            environment that was passed in stays open and has been reset.
        n_eval_episodes: episodes in all; each lane plays its fair share.
        deterministic: the greedy action, or one drawn as while learning.
        render: call the env's `render` after every step.
        callback: called as `callback(locals, globals)` for each lane that is still counting, after each step.
        reward_threshold: the mean return must be above it.
        return_episode_rewards: return the episodes instead of their mean.
        warn: say so if the environment is the training one, or an episode was cut.
        seed: of the environment. The same seed gives the same games while actions are greedy; None leaves it to the environment.
        max_steps: an episode is cut after this many steps, so that a game that never ends cannot hold up the training.

    Returns:
        Mean and standard deviation of the return; or the lists of returns and of lengths in steps.

    Raises:
        ConfigurationError: no environment, an argument out of range, or the training env of a model that is learning.
        SpaceError: the spaces of `env` differ from the model's.
        AssertionError: the mean return is not above `reward_threshold`.
    """
    if env is None:
        raise ConfigurationError("env is None: give the evaluation an environment, for instance its id")
    check_not_training(model, env, bool(getattr(model, "learning", False)), warn)
    stream = open_for(model, env)
    try:
        options: dict[str, Any] = {"render": render, "callback": callback, "seed": seed, "max_steps": max_steps}
        episodes = play_episodes(model, stream, n_eval_episodes, deterministic, **options)
    finally:
        if opened_here(env):
            stream.close()
    if episodes.cut and warn:
        warnings.warn(
            f"{episodes.cut} of {n_eval_episodes} episodes did not end within max_steps={max_steps} and were cut; "
            f"pass a larger max_steps, or an environment with a time limit",
            stacklevel=2,
        )
    mean, spread = float(np.mean(episodes.returns)), float(np.std(episodes.returns))
    if reward_threshold is not None and not mean > reward_threshold:
        raise AssertionError(f"the mean return {mean:.2f} is not above reward_threshold={reward_threshold:.2f}")
    return (episodes.returns, episodes.lengths) if return_episode_rewards else (mean, spread)


def play_episodes(
    model: Any,
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
            episodes are then over-represented. None: no bound.
        watch: called with the episodes so far after each step.
    """
    n_eval_episodes, max_steps = check_int("n_eval_episodes", n_eval_episodes, 1), check_int("max_steps", max_steps, 1)
    seed = None if seed is None else check_int("seed", seed, -np.inf)
    if callback is not None:
        check_called("callback", callback, "locals", "globals")
    stream = open_for(model, stream)  # refuses other spaces, and one without the legal actions that are needed
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
            told = {"reward": rows.slots[-1].reward} if getattr(model, "reads_reward", False) else {}
            asked = {"state": state, "episode_start": tally.starts, "deterministic": deterministic, **told}
            if (mask := rows.slots[-1].mask) is not None:
                asked["action_masks"] = mask
            actions, state = model.predict(observations, **asked)
            rows = stream.step(np.asarray(actions) - start)
            ended = tally.add(rows)
            new_observations = view(rows)
            if callback is not None:
                names = {"model": model, "env": stream, "observations": observations, "actions": actions}
                _tell(callback, {**names, "new_observations": new_observations, "states": state}, tally, rows, ended)
            tally.close_episodes(ended, rows)
            observations = new_observations
            if render:
                stream.env.render()
            if watch is not None:
                watch(tally.episodes)
    return tally.episodes


def open_for(model: Any, env: Any) -> Stream:
    """The environment read as rows, with its legal actions where the model was trained with them.

    Raises:
        SpaceError: its spaces are not those that the model was made for.
    """
    made = getattr(model, "blueprint", None)  # something else that predicts does not tell
    whole = 1 if made is not None and has_stacks_of(env, made) else None
    stream = open_stream(env, frame_stack=whole, action_mask=getattr(model, "action_mask", None))
    if differs := difference(stream.blueprint, made or stream.blueprint):
        if opened_here(env):
            stream.close()
        raise SpaceError(f"the evaluation env's {differs}; evaluate it on an environment like that")
    return stream


def derive_seed(seed: int, number: int) -> int:
    """A seed for the `number`-th start of an evaluation, apart from those of the training; leaves room for + lane."""
    words = np.random.SeedSequence([seed % 2**64, 0xE7A1, number]).generate_state(1)
    return int(words[0] % 2**30)


def check_not_training(model: Any, env: Any, learning: bool, warn: bool = True) -> None:
    """Keep an evaluation out of the episodes that the model is learning from.

    Args:
        model: with `get_env()`, if it has an environment at all.
        env: of the evaluation.
        learning: whether `learn` is running, so that its episodes would be lost.
        warn: warn where nothing is lost but the running episodes of a model that is not learning.

    Raises:
        ConfigurationError: the model is learning on this very environment.
    """
    training_env = getattr(model, "get_env", lambda: None)()
    if training_env is None or not is_same(env, training_env):
        return
    if learning:
        raise ConfigurationError(
            "the evaluation env is the one that the model is learning on, so evaluating would reset its episodes; "
            "make another one for evaluation, for instance by its id"
        )
    if warn:
        warnings.warn(
            "evaluating on the env that the model was trained on gives up its running episodes; "
            "pass an env of its own, or warn=False",
            stacklevel=3,
        )


class View:
    """What `predict` is shown, with axis B: an array, or a dict of arrays for a Dict space; frames are stacked."""

    def __init__(self, stream: Stream) -> None:
        blueprint, leaves = stream.blueprint, flatten_space(stream.observation_space)
        self.is_dict = isinstance(blueprint.observation_space, spaces.Dict)
        self.stack = FrameStack(blueprint.frame_stack, stream.num_envs, leaves) if blueprint.frame_stack > 1 else None

    def __call__(self, rows: Rows) -> Any:
        obs = {key: value.copy() for key, value in rows.slots[-1].obs.items()}  # the stream writes into its own again
        if self.stack is not None:
            for slot in rows.slots:
                self.stack.push(slot)
            obs = self.stack.stacked()
        return obs if self.is_dict else obs["obs"]


def _tell(callback: EvaluationCallback, names: dict[str, Any], tally: Tally, rows: Rows, ended: BoolArray) -> None:
    """Call the callback for each counting lane that made a step, with the names that Stable-Baselines3 gives it."""
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
