"""Errors of action masks: source, shape, dtype, and states without a legal action."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn.envs.stream_options import StreamOptions
from sb_dqn.envs.streams.open import open_stream
from sb_dqn.errors import ConfigurationError, EnvironmentFault, SpaceError
from tests.toys import KINDS, ToyGame, toy_policy

MADE_HERE = [kind for kind in KINDS if kind != "sb3"]
MISSING = object()


class Masked(ToyGame):
    """Endless game that allows all actions, except for `mask` at its fifth step or at the reset."""

    def __init__(self, lane: int, mask: Any = None, at_reset: bool = False, ends: str = "") -> None:
        super().__init__(lane)
        self.mask, self.at_reset, self.ends = mask, at_reset, ends

    def make_info(self, wrong: bool) -> dict[str, Any]:
        mask = self.mask if wrong and self.lane == 1 else np.ones(4, bool)
        return {"lives": 3} if mask is MISSING else {"lives": 3, "action_mask": mask}

    def reset(self, **_: Any) -> Any:
        self.t = 0
        return self.observe((1, 1, 1)), self.make_info(self.at_reset)

    def step(self, action: Any) -> Any:
        self.t += 1
        end = self.t == 5 and self.lane == 1
        flags = end and self.ends == "terminated", end and self.ends == "truncated"
        return self.observe((1, 1, 1)), 0.5, *flags, self.make_info(self.t == 5)


def itself(game: ToyGame) -> ToyGame:
    return game


def run(kind: str, *args: Any, **how: Any) -> Any:
    games = [Masked(lane, *args, **how) for lane in range(3)]
    stream = open_stream(KINDS[kind]([partial(itself, game) for game in games]), action_mask="info")
    rows = stream.begin()
    for _ in range(5):
        rows = stream.step(toy_policy(rows))
    return rows


@pytest.mark.parametrize("kind", MADE_HERE)
@pytest.mark.parametrize(("at_reset", "when"), [(False, "at step 5"), (True, "after the reset")])
def test_a_state_with_no_legal_action_names_lane_and_step(kind: str, at_reset: bool, when: str) -> None:
    with pytest.raises(
        EnvironmentFault, match=f"mask of lane 1 {when} must allow an action in a state that is not terminal"
    ):
        run(kind, np.zeros(4, bool), at_reset)


@pytest.mark.parametrize("kind", MADE_HERE)
@pytest.mark.parametrize(("at_reset", "when"), [(False, "at step 5"), (True, "after the reset")])
def test_a_missing_entry_names_lane_and_step(kind: str, at_reset: bool, when: str) -> None:
    message = rf"info of lane 1 {when} must contain 'action_mask' .*Return it from every reset and step"
    with pytest.raises(EnvironmentFault, match=message):
        run(kind, MISSING, at_reset)


@pytest.mark.parametrize("mask", [MISSING, np.zeros(4, bool)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_at_a_time_limit_needs_one(kind: str, mask: Any) -> None:
    with pytest.raises(EnvironmentFault, match=r"lane 1 at step 5"):
        run(kind, mask, ends="truncated")


@pytest.mark.parametrize("mask", [MISSING, np.zeros(4, bool)])
@pytest.mark.parametrize("kind", MADE_HERE)
def test_a_terminal_row_needs_none(kind: str, mask: Any) -> None:
    rows = run(kind, mask, ends="terminated")
    assert rows.slots[0].last.tolist() == [False, True, False]
    assert all(slot.mask.all() for slot in rows.slots)


@pytest.mark.parametrize("kind", ["lanes", "duck"])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones(3, bool), r"mask of lane 1 at step 5 must be of shape \(4,\), got shape \(3,\)"),
        (np.ones((1, 4), bool), r"must be of shape \(4,\), got shape \(1, 4\)"),
        (True, r"got shape \(\)"),
        (
            np.ones(4, np.float32),
            r"lane 1 at step 5 must be bool, or integers 0 and 1, got dtype float32.*astype\(bool\)",
        ),
        (["a", "b", "c", "d"], "got dtype <U1"),
        (np.array([0, 1, 2, 3]), "lane 1 at step 5 must hold only 0 and 1"),
        (np.array([0, 1, -1, 1]), "lane 1 at step 5 must hold only 0 and 1"),
        ([[1, 0], [1]], r"mask of lane 1 at step 5 must be of shape \(4,\), got \[\[1, 0\], \[1\]\]"),
    ],
)
def test_an_invalid_mask_raises(kind: str, mask: Any, message: str) -> None:
    with pytest.raises(EnvironmentFault, match=message):
        run(kind, mask)


class Wrong(Masked):
    """Makes the same fault in every lane, so that a vector env batches it."""

    def make_info(self, wrong: bool) -> dict[str, Any]:
        return {"lives": 3, "action_mask": self.mask}


@pytest.mark.parametrize("kind", ["next_step", "same_step"])
@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones(3, bool), r"masks of all lanes after the reset must be of shape \(4,\), got shape \(3,\)"),
        (np.ones(4, np.float32), "must be bool, .*got dtype float32"),
        (np.array([0, 1, 2, 3]), "mask of lane 0 after the reset must hold only 0 and 1"),
        (np.zeros(4, bool), "lane 0 after the reset must allow an action"),
        (True, r"masks of all lanes after the reset must be .*got shape \(\)"),
    ],
)
def test_an_invalid_batched_mask_raises(kind: str, mask: Any, message: str) -> None:
    games = [Wrong(lane, mask) for lane in range(2)]
    with pytest.raises(EnvironmentFault, match=message):
        open_stream(KINDS[kind]([partial(itself, game) for game in games]), action_mask="info").begin()


class Branched(Masked):
    """Toy game with two choices in one branch and three in the other."""

    def __init__(self, lane: int, mask: Any) -> None:
        super().__init__(lane, mask)
        self.action_space = spaces.MultiDiscrete([2, 3])

    def make_info(self, wrong: bool) -> dict[str, Any]:
        return {"action_mask": self.mask}


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (
            np.ones(6, bool),
            r"must be of shape \(5,\).* or \(2, 3\), or a tuple of 2 .*lengths \(2, 3\), got shape \(6,\)",
        ),
        ((np.ones(2), np.ones(3)), "got dtype float64"),
        ((np.ones(3, bool), np.ones(2, bool)), r"must be of shape \(5,\)"),
        ((), r"lane 0 after the reset must be of shape .*got \(\)"),
        ((np.ones(2, bool), np.zeros(3, bool)), "lane 0 after the reset must allow an action of branch 1"),
        (np.array([[True, True, True], [False] * 3]), "must allow an action of branch 1"),
        (np.array([[False, False, True], [True] * 3]), "must allow an action of branch 0"),  # only the padding is set
    ],
)
def test_an_invalid_mask_of_branches_raises(mask: Any, message: str) -> None:
    with pytest.raises(EnvironmentFault, match=message):
        open_stream(Branched(0, mask), action_mask="info").begin()


class Observed(ToyGame):
    """Toy game with a Dict observation that also holds arrays that are no masks."""

    def __init__(self) -> None:
        super().__init__()
        box = partial(spaces.Box, 0, 1)
        self.observation_space = spaces.Dict(
            {"legal": spaces.MultiBinary(3), "soft": box((4,), np.float32), "many": spaces.Discrete(4)}
        )


@pytest.mark.parametrize(
    ("env", "where", "error", "message"),
    [
        (
            ToyGame,
            "infos",
            ConfigurationError,
            r"action_mask must be None, 'info' \(info\['action_mask'\]\), got 'infos'",
        ),
        (ToyGame, "obs", ConfigurationError, "action_mask must be None, 'info' .*got 'obs'"),
        (ToyGame, 3, ConfigurationError, "action_mask must be None, .*got 3"),
        (
            Observed,
            "legel",
            ConfigurationError,
            r"or an observation key of \['legal', .*got 'legel'. Use one of them. Did you mean 'legal'",
        ),
        (Observed, "legal", SpaceError, r"must be bool, .*of shape \(4,\), got MultiBinary\(3\). Use MultiBinary"),
        (Observed, "soft", SpaceError, r"must be bool, or integers 0 and 1, .*got Box"),
        (Observed, "many", SpaceError, r"must be bool, .*got Discrete\(4\)"),
    ],
)
def test_an_invalid_source_of_masks_raises(env: Any, where: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        open_stream(env(), action_mask=where)


def test_a_mask_of_nested_observations_is_named_by_its_path() -> None:
    class Nested(Observed):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"rules": spaces.Dict({"legal": spaces.MultiBinary(4)})})

        def observe(self, frame: Any) -> Any:
            return {"rules": {"legal": np.array([0, 1, 1, 0], np.int8)}}

    slot = open_stream(Nested(), action_mask="rules/legal").begin().slots[0]
    assert slot.mask is not None
    assert slot.mask.tolist() == [[False, True, True, False]]
    assert slot.obs["rules/legal"].tolist() == [[0, 1, 1, 0]]  # it stays in the observation


def test_an_open_stream_keeps_its_action_mask() -> None:
    stream = open_stream(Masked(0), action_mask="info")
    assert open_stream(stream, action_mask="info") is stream
    assert open_stream(stream) is stream
    with pytest.raises(ConfigurationError, match="got action_mask='legal'. Pass"):
        open_stream(stream, action_mask="legal")


def test_the_options_of_an_env_set_the_action_mask() -> None:
    game = Masked(0)
    game.stream_options = StreamOptions(clip_reward=True, action_mask="info")  # type: ignore[attr-defined]
    assert open_stream(game).has_masks
    other = Masked(0)
    other.stream_options = StreamOptions(clip_reward=True)  # type: ignore[attr-defined]
    assert open_stream(other, action_mask="info").options == StreamOptions(clip_reward=True, action_mask="info")


def test_fire_after_a_lost_life_is_for_one_action() -> None:
    with pytest.raises(ConfigurationError, match="must be Discrete with fire_after_life_loss=True, got MultiDiscrete"):
        open_stream(Branched(0, None), options=StreamOptions(fire_after_life_loss=True))
