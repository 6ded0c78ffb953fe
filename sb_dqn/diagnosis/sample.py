"""Samples of a diagnosis: the newest rows of a buffer, or greedy episodes, with Monte-Carlo returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sb_dqn.buffers.frame_stack import observations_at
from sb_dqn.buffers.ring import Ring
from sb_dqn.envs.streams.open import opened_here
from sb_dqn.evaluation import open_for_evaluation, play_episodes
from sb_dqn.types import Batch, BoolArray, EnvLike, FloatArray, Kwargs, ModelLike, Observation

ROWS = 4_096
"""Newest rows over all lanes whose rewards, masks and returns are read."""
STATES = 256
"""Observations that networks compute."""
UNKNOWN = 0.05
"""Weight of the unknown rest of a return that was cut, above which the return is left out."""


class Sample(NamedTuple):
    """Rows of running or finished episodes, in the order of time."""

    obs: dict[str, Tensor]
    """Observations `[S, *shape]` by key, as stored, of S <= `STATES` of the rows."""
    mask: Tensor | None
    """`[S, (D,) A]` legal actions there."""
    rewards: FloatArray
    """`[N]`, of all rows, as the loss reads them."""
    returns: FloatArray
    """`[S]` discounted returns, NaN where a cut hides their rest."""
    masks: BoolArray | None = None
    """`[N, (D,) A]` legal actions of all rows."""
    length: float = 0.0
    """Mean length of the episodes, 0 if none has ended."""


def discounted_returns(
    rewards: FloatArray, terminal: BoolArray, cut: BoolArray, gamma: float, unknown: float = UNKNOWN
) -> FloatArray:
    """Returns the discounted return of each row, NaN where more than `unknown` of its weight lies behind a cut.

    Args:
        rewards: `[N]`, after each row.
        terminal: `[N]`, True where nothing follows that reward.
        cut: `[N]`, True where what follows is not known.
        gamma: discount per step.
        unknown: weight of the unknown rest up to which a return counts.
    """
    returns = np.zeros(len(rewards), np.float32)
    total, weight = 0.0, 1.0
    for i in range(len(rewards) - 1, -1, -1):
        if terminal[i] or cut[i]:
            total, weight = 0.0, float(not terminal[i])
        total, weight = float(rewards[i]) + gamma * total, gamma * weight
        returns[i] = total if weight <= unknown else np.nan
    return returns


def newest_rows(ring: Ring, gamma: float, scale: Callable[[Tensor], Tensor]) -> Sample | None:
    """Reads the newest rows of a ring; None if it has none.

    Args:
        ring: the rows; not changed.
        gamma: discount per step.
        scale: maps stored rewards to those of the loss.
    """
    ring.flush()
    high = ring.cursor - 1  # the open row has no reward yet
    low = np.maximum(ring.intervals()[0], high - max(ROWS // ring.num_lanes, 1))
    lane, row = (torch.from_numpy(part).to(ring.device) for part in ring.rows_between(low, high))
    cells, after = ring.cells(lane, row), ring.cells(lane, row + 1)
    kept = ring.last.take(cells).logical_not()  # nothing is done at the last row of an episode
    lane, row, cells, after = lane[kept], row[kept], cells[kept], after[kept]
    if not len(row):
        return None
    rewards = scale(ring.reward.take(after)).float().cpu().numpy()
    terminal, last = (column.take(after).cpu().numpy() for column in (ring.terminal, ring.last))
    places = torch.stack([lane, row]).cpu().numpy()
    end = np.append((np.diff(places) != [[0], [1]]).any(0), True)  # of a lane, or of an episode
    returns = discounted_returns(rewards, terminal, (last | end) & ~terminal, gamma)
    masks = None if ring.mask is None else ring.mask.index_select(0, cells)
    at = _spread(len(row)).to(ring.device)
    return Sample(
        observations_at(ring, lane[at], row[at]),
        None if masks is None else masks[at],
        rewards,
        returns[at.cpu().numpy()],
        None if masks is None else masks.cpu().numpy(),
        len(row) / last.sum() if last.any() else 0.0,
    )


def greedy_episodes(model: ModelLike, env: EnvLike, gamma: float, episodes: int) -> Sample:
    """Plays greedy episodes on an environment of their own; the end of each counts as the end of its return.

    Args:
        model: the model; its generators are not used.
        env: environment as of `evaluate_policy`.
        gamma: discount per step.
        episodes: number of episodes.
    """
    lanes: dict[int, list[tuple[Observation, float, bool, BoolArray | None]]] = {}

    def record(step: Kwargs, _: object) -> None:
        lane, seen = step["i"], step["observations"]
        obs = seen if isinstance(seen, dict) else {"obs": seen}
        own = {key: np.array(value[lane]) for key, value in obs.items()}
        mask = None if step["action_masks"] is None else np.array(step["action_masks"][lane])
        lanes.setdefault(lane, []).append((own, float(step["reward"]), bool(step["done"]), mask))

    stream = open_for_evaluation(model, env)
    try:
        played = play_episodes(model, stream, episodes, callback=record, max_steps=10_000, max_total_steps=20_000)
    finally:
        if opened_here(env):
            stream.close()
    steps = [step for lane in lanes.values() for step in lane]
    rewards = np.array([reward for _, reward, *_ in steps], np.float32)
    rewards = np.sign(rewards) if stream.options.clip_reward else rewards
    rewards = model.normalizer.rewards(torch.from_numpy(rewards).to(model.device)).cpu().numpy()
    ends = np.array([done for *_, done, _ in steps])
    last = np.cumsum([len(lane) for lane in lanes.values()]) - 1
    cut = np.zeros(len(steps), np.bool_)
    cut[last] = ~ends[last]
    returns = discounted_returns(rewards, ends, cut, gamma)
    at = _spread(len(steps)).numpy()
    keys = steps[0][0].keys()
    obs = {key: torch.from_numpy(np.stack([steps[i][0][key] for i in at])) for key in keys}
    length = float(np.mean(played.lengths)) if played.lengths else 0.0
    masks = None if steps[0][-1] is None else np.stack([mask for *_, mask in steps if mask is not None])
    return Sample(obs, None if masks is None else torch.from_numpy(masks[at]), rewards, returns[at], masks, length)


def training_batch(experience: Any) -> Batch | None:
    """Returns a batch as the next update could get it, drawn without the generators of the model; None if there is none."""
    ring = experience.ring
    if getattr(experience, "sampler", None) is not None:  # a replay
        generator = torch.Generator(ring.device).manual_seed(0)
        return experience.sample(None, generator) if ring.can_start() else None
    view = experience.view
    pieces = getattr(experience, "pieces", getattr(view, "num_samples", view.places))
    batch = experience.sample_from(_spread(pieces).to(ring.device))
    lane, row = batch.place
    stored = row >= torch.from_numpy(ring.cursor).to(ring.device).take(lane) - ring.rows
    batch = batch._replace(weight=batch.weight * stored)
    return batch if bool(batch.weight.any()) else None


def _spread(count: int) -> Tensor:
    """Returns up to `STATES` evenly spaced numbers below `count`."""
    return torch.linspace(0, count - 1, min(count, STATES), dtype=torch.float64).round().long()
