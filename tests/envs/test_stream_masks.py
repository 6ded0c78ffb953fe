"""Masks and branches with every kind of env, compared with the games' own logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import SpaceError
from sb_dqn.spaces import ActionShape
from sb_dqn.types import Rows
from tests.marks import a_few
from tests.masked_toys import (
    ACTION_SPACES,
    BRANCHES,
    ENDS,
    STARTS,
    MaskedGame,
    frames_of,
    legal_actions,
    masked_stream,
)
from tests.toys import KINDS, is_last

FORMS = [(space, form) for space in ACTION_SPACES for form in ("flat", "ints", "list")]
FORMS += [(space, form) for space in ("uneven", "even", "one", "binary") for form in ("tuple", "lists")]
KEYS = [(space, "flat") for space in ACTION_SPACES]
KEYS += [(space, "padded") for space in ("uneven", "even", "one", "binary")]


def frame(obs: Any, lane: int) -> tuple[int, ...]:
    return tuple(int(number) for number in (obs["place"] if "place" in obs else obs["obs"])[lane])


def taped(rows: Rows, lanes: int) -> list[list[Any]]:
    """Returns frame and mask of each row, per lane."""
    found: list[list[Any]] = [[] for _ in range(lanes)]
    for slot in rows.slots:
        assert slot.mask is not None
        assert slot.mask.dtype == np.bool_
        for lane in np.flatnonzero(slot.valid).tolist():
            found[lane].append((frame(slot.obs, lane), slot.mask[lane].copy()))
    return found


def compare(kind: str, lanes: int, space: str, where: str, form: str, life_loss: bool, restart: int = 10**9) -> None:
    games, stream = masked_stream(kind, lanes, space, where, form, life_loss)
    assert stream.has_masks
    rng = np.random.default_rng(1)
    tapes: list[list[Any]] = [[] for _ in range(lanes)]
    rows = stream.begin()
    for tick in range(280 // lanes):
        for tape, new in zip(tapes, taped(rows, lanes), strict=True):
            tape += new
        if tick % restart == restart - 1:
            rows = stream.begin()
            continue
        action = legal_actions(rows, rng)
        kept = action.copy()
        before, ended = rows.slots[-1], rows.slots[-1].last.copy()
        rows = stream.step(action)
        assert rows.action is not None
        assert np.array_equal(rows.action, kept)  # whatever the games did with what they were given
        for lane, game in enumerate(games):
            if not ended[lane]:
                assert game.played[frame(before.obs, lane)] == np.array(kept[lane]).reshape(-1).tolist()
    for tape, new in zip(tapes, taped(rows, lanes), strict=True):
        tape += new
    for game, tape in zip(games, tapes, strict=True):
        truth = [episode.steps[t].frame for episode, t in frames_of(game)]
        assert [name for name, _ in tape] == truth
        for name, mask in tape:
            assert np.array_equal(mask, game.wanted[name]), name
    ends = [how for game in games for how in game.told]
    assert set(ends) == set(ENDS)
    assert any(is_last(episode, -1) and episode.steps[-1].truncated for game in games for episode in game.game.log)


@pytest.mark.parametrize(("space", "form"), FORMS)
@pytest.mark.parametrize("kind", a_few(KINDS, "lanes", "same_step"))
def test_masks_of_infos_are_those_of_the_games(kind: str, space: str, form: str) -> None:
    compare(kind, 3, space, "info", form, life_loss=form == "flat")


@pytest.mark.parametrize(("space", "form"), KEYS)
@pytest.mark.parametrize("kind", a_few(KINDS, "lanes", "same_step"))
def test_masks_of_an_observation_are_those_of_the_games(kind: str, space: str, form: str) -> None:
    compare(kind, 3, space, "legal", form, life_loss=form == "flat")


@pytest.mark.parametrize("where", ["info", "legal"])
@pytest.mark.parametrize("space", ["discrete", "uneven"])
@pytest.mark.parametrize("kind", a_few(KINDS, "lanes", "same_step"))
def test_one_lane_and_streams_that_are_reset(kind: str, space: str, where: str) -> None:
    compare(kind, 1, space, where, "flat", life_loss=True)
    compare(kind, 2, space, where, "flat", life_loss=False, restart=7)


@pytest.mark.parametrize("space", ["discrete", "uneven"])
def test_a_single_environment(space: str) -> None:
    game = MaskedGame(space=space)
    stream = open_stream(game, action_mask="info")
    rows, rng = stream.begin(), np.random.default_rng(0)
    for _ in range(40):
        slot = rows.slots[0]
        assert slot.mask is not None
        assert np.array_equal(slot.mask[0], game.wanted[frame(slot.obs, 0)])
        rows = stream.step(legal_actions(rows, rng))


def test_masks_from_other_processes() -> None:
    env = AsyncVectorEnv([lambda: MaskedGame(space="uneven")] * 2)
    stream = open_stream(env, action_mask="info")
    rows, twin = stream.begin(), MaskedGame(space="uneven")
    twin.reset()
    assert rows.slots[0].mask is not None
    assert np.array_equal(rows.slots[0].mask[1], twin.wanted[(1, 1, 1)])
    stream.step(legal_actions(rows, np.random.default_rng(0)))
    stream.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_is_a_copy_of_the_games_mask(kind: str) -> None:
    games, stream = masked_stream(kind, 1, "discrete", "info", "flat")
    kept, original = np.ones(5, bool), games[0].reset

    def reset(**kwargs: Any) -> Any:
        observation, info = original(**kwargs)
        return observation, {**info, "action_mask": kept}

    games[0].reset = reset  # type: ignore[method-assign]
    rows = stream.begin()
    kept[:] = False
    assert rows.slots[0].mask is not None
    assert rows.slots[0].mask.all()


@pytest.mark.parametrize("kind", KINDS)
def test_without_masks_nothing_is_read(kind: str) -> None:
    games, stream = masked_stream(kind, 2, "uneven", "info", "flat", masks=False)
    for game in games:
        game.wanted = _AllLegal(game.wanted)
    rows, rng = stream.begin(), np.random.default_rng(0)
    assert not stream.has_masks
    for _ in range(30):
        rows = stream.step(rng.integers(0, BRANCHES["uneven"], (2, 3)))
        assert all(slot.mask is None for slot in rows.slots)
    assert sum(len(game.given) for game in games) > 30


class _AllLegal(dict[Any, Any]):
    def __getitem__(self, _: Any) -> Any:
        return np.ones((3, 5), bool)


@pytest.mark.parametrize("space", list(ACTION_SPACES))
@pytest.mark.parametrize("kind", KINDS)
def test_the_env_gets_actions_of_its_space(kind: str, space: str) -> None:
    games, stream = masked_stream(kind, 2, space, "info", "flat")
    shape = stream.action_shape
    assert shape == ActionShape.of(ACTION_SPACES[space])
    assert (list(shape.branches), list(shape.starts)) == (BRANCHES[space], STARTS[space])
    rows = stream.begin()
    stream.step(legal_actions(rows, np.random.default_rng(0)))
    for game in games:
        assert game.given[0].shape == ACTION_SPACES[space].shape
        assert np.asarray(game.given[0]).dtype == ACTION_SPACES[space].dtype


def test_branches_out_of_range_raise_before_they_are_sent() -> None:
    games, stream = masked_stream("lanes", 2, "uneven", "info", "flat")
    rows = stream.begin()
    cases: list[tuple[Any, str]] = [
        (np.array([[0, 0, 0], [1, 5, 0]]), "action of branch 1 in lane 1 must be from 0 to 4, got 5"),
        (np.array([[2, 0, 0], [0, 0, 0]]), "action of branch 0 in lane 0 must be from 0 to 1, got 2"),
        (np.array([[0, 0, -1], [0, 0, 0]]), "action of branch 2 in lane 0 .*got -1"),
        (np.zeros(2, int), r"shape \(2, 3\), one row per lane, one column per branch, got \(2,\)"),
        (np.zeros((2, 2), int), r"got \(2, 2\)"),
        (np.zeros((2, 3)), "integer dtype, got float64"),
    ]
    for bad, message in cases:
        with pytest.raises(SpaceError, match=message):
            stream.step(bad)
    assert all(game.given == [] for game in games)
    assert stream.step(legal_actions(rows, np.random.default_rng(0)).astype(np.int32)).steps == 2
