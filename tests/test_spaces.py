"""Spaces: leaves by path, images, action spaces, and the observations that `predict` accepts or refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb_dqn import DQN
from sb_dqn.errors import SpaceError
from sb_dqn.spaces import (
    ActionShape,
    batch_observation,
    flatten_observation,
    flatten_space,
    image_channels_last,
    is_bytes,
    is_image,
    leaf_dtype,
    leaf_shape,
    with_dicts,
)

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
NESTED = spaces.Dict(
    {
        "camera": spaces.Dict({"left": spaces.Box(0, 255, (4, 5, 3), np.uint8), "on": spaces.Discrete(2)}),
        "place": VECTOR,
    }
)


def bools(*shape: int) -> spaces.Box:
    return spaces.Box(0, 1, shape, bool)  # type: ignore[arg-type]  # gymnasium takes it, its annotations do not say so


def test_leaves_by_path() -> None:
    leaves = flatten_space(NESTED)
    assert list(leaves) == ["camera/left", "camera/on", "place"]
    assert leaves["place"] == VECTOR
    assert flatten_space(VECTOR) == {"obs": VECTOR}


def test_observations_have_the_keys_of_their_space() -> None:
    observation = NESTED.sample()
    flat = flatten_observation(observation, flatten_space(NESTED))
    assert flat.keys() == flatten_space(NESTED).keys()
    assert np.array_equal(flat["camera/left"], observation["camera"]["left"])
    assert flatten_observation([1, 2], {"obs"})["obs"].tolist() == [1, 2]
    assert flatten_observation((1, 2), {"obs"})["obs"].tolist() == [1, 2]
    assert flatten_observation((1, 2), {"0", "1"}) == {"0": 1, "1": 2}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(3), "observation space must be Box, Discrete, MultiDiscrete, MultiBinary"),
        (spaces.Tuple([VECTOR]), "observation space must be Box"),
        (with_dicts(spaces.Tuple([VECTOR, spaces.Sequence(VECTOR)])), "at key '1' must be Box.*, got Sequence"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Text(3)})}), "at key 'a/b' must be Box"),
        (spaces.Dict({}), "must have at least one entry, got Dict"),
        (
            spaces.Dict({"a/b": VECTOR, "a": spaces.Dict({"b": VECTOR})}),
            "got 'a/b' twice in .*Rename one",
        ),
        (spaces.Box(0, 1, (3, 0)), "must have no axis of length 0"),
        (spaces.MultiDiscrete(np.zeros(0, np.int64)), "must have no axis of length 0"),
    ],
)
def test_spaces_that_are_not_supported(space: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        flatten_space(space)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (VECTOR, (3,), np.float32),
        (spaces.Box(-1, 1, (2, 2), np.float64), (2, 2), np.float32),  # no network reads more
        (spaces.Box(0, 255, (4, 5, 3), np.uint8), (4, 5, 3), np.uint8),
        (spaces.Discrete(3), (), np.int64),
        (spaces.MultiDiscrete([2, 3]), (2,), np.int64),
        (spaces.MultiBinary(4), (4,), np.int8),
    ],
)
def test_shape_and_dtype_of_a_leaf(space: Any, shape: tuple[int, ...], dtype: Any) -> None:
    assert leaf_shape(space) == shape
    assert leaf_dtype(space) == dtype


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(0, 255, (3, 9, 9), np.uint8), True),
        (spaces.Box(0, 255, (9, 9), np.uint8), False),
        (spaces.Box(0, 1, (3, 9, 9), np.float32), False),
        (spaces.Box(0, 254, (3, 9, 9), np.uint8), False),
        (spaces.Box(1, 255, (3, 9, 9), np.uint8), False),
        (spaces.Discrete(3), False),
    ],
)
def test_images_are_recognized(space: Any, expected: bool) -> None:
    assert is_image(space) is expected


@pytest.mark.parametrize(
    ("space", "expected", "normalized"),
    [
        (bools(10, 10, 4), True, True),
        (bools(10, 10), False, False),
        (spaces.Box(0, 1, (10, 10, 4), np.float32), False, True),
        (spaces.Box(0, 1, (10, 10, 4), np.uint8), False, True),
        (spaces.Box(0, 1, (10, 10), np.float32), False, False),
        (spaces.MultiBinary((10, 10, 4)), False, False),
    ],
)
def test_images_of_other_numbers(space: Any, expected: bool, normalized: bool) -> None:
    assert is_image(space) is expected
    assert is_image(space, normalized=True) is normalized
    assert not is_bytes(space)


def image(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


SQUARE = [
    *((84, 84, channels) for channels in (1, 2, 3, 4, 6, 8, 9, 12, 16)), (64, 64, 3), (64, 64, 6), (64, 64, 9), (96, 96, 12),
    (36, 36, 12), *((10, 10, channels) for channels in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 16)), (9, 9, 2), (8, 8, 20),
]  # fmt: skip
OBLONG = [(210, 160, 3), (210, 160, 12), (160, 210, 4), (120, 160, 2), (32, 128, 3), (6, 7, 2), (7, 6, 4), (48, 64, 24)]


@pytest.mark.parametrize("shape", SQUARE + OBLONG)
def test_the_axis_that_differs_holds_the_channels(shape: tuple[int, int, int]) -> None:
    height, width, channels = shape
    for box in (image, bools, lambda *axes: spaces.Box(0, 1, axes, np.float32)):
        assert image_channels_last(box(height, width, channels)) is True
        assert image_channels_last(box(channels, height, width)) is False


@pytest.mark.parametrize(
    "shape", [(3, 84, 3), (1, 84, 4), (4, 5, 3), (10, 12, 10), (84, 3, 84), (84, 3, 80), (12, 10, 9), (6, 84, 10)]
)
def test_where_the_shape_does_not_tell(shape: tuple[int, ...]) -> None:
    fix = r"got \(.*policy_kwargs=dict\(channels='first'\) or dict\(channels='last'\)"
    for space in (image(*shape), bools(*shape)):
        with pytest.raises(SpaceError, match=fix):
            image_channels_last(space)


@pytest.mark.parametrize("shape", [(10, 10, 10), (4, 4, 4), (3, 3, 84), (84, 4, 4)])
def test_small_equal_axes_of_bytes_do_not_tell(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpaceError, match="must tell which axis holds the channels"):
        image_channels_last(image(*shape))
    assert image_channels_last(bools(*shape)) is (shape[0] == shape[1])  # MinAtar's Seaquest is a cube of bool


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), ActionShape((3,), (0,))),
        (spaces.Discrete(3, start=-2), ActionShape((3,), (-2,))),
        (spaces.MultiDiscrete([2, 4], start=[1, -1]), ActionShape((2, 4), (1, -1), True)),
        (spaces.MultiDiscrete([5]), ActionShape((5,), (0,), True)),
        (spaces.MultiDiscrete([2, 2], dtype=np.int8), ActionShape((2, 2), (0, 0), True)),
        (spaces.MultiBinary(3), ActionShape((2, 2, 2), (0, 0, 0), True)),
        (spaces.MultiBinary([2]), ActionShape((2, 2), (0, 0), True)),
    ],
)
def test_action_spaces(space: Any, expected: ActionShape) -> None:
    assert ActionShape.of(space) == expected
    assert all(type(number) is int for number in expected.branches + ActionShape.of(space).starts)
    action = np.zeros((4, *expected.shape), np.int64) + expected.start
    assert all(space.contains(one) for one in action.astype(space.dtype))


def test_one_action_has_no_axis() -> None:
    shape = ActionShape.of(spaces.Discrete(3, start=2))
    assert (shape.num_actions, shape.num_branches, shape.shape, shape.branched) == (3, 0, (), False)
    assert shape.start.shape == ()
    assert shape.legal.tolist() == [True, True, True]


def test_short_branches_are_padded() -> None:
    shape = ActionShape.of(spaces.MultiDiscrete([2, 3, 1], start=[0, 4, 0]))
    assert (shape.num_actions, shape.num_branches, shape.shape) == (3, 3, (3,))
    assert shape.start.tolist() == [0, 4, 0]
    assert shape.legal.tolist() == [[True, True, False], [True, True, True], [True, False, False]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2,)),
        spaces.MultiDiscrete(np.array([[2, 3], [2, 3]])),
        spaces.MultiBinary([2, 2]),
        spaces.Dict({"a": spaces.Discrete(2)}),
        spaces.Tuple([spaces.Discrete(2)]),
    ],
)
def test_action_spaces_that_are_not_supported(space: Any) -> None:
    message = r"(?s)the action space.* must be Discrete\(n, start=...\), MultiDiscrete.*MultiBinary.*ActionWrapper"
    with pytest.raises(SpaceError, match=message):
        ActionShape.of(space)


def test_a_box_of_actions_names_the_algorithms_for_it() -> None:
    with pytest.raises(SpaceError, match="use SAC or PPO"):
        DQN("MlpPolicy", "Pendulum-v1")


def test_one_observation_and_several() -> None:
    one, vectorized = batch_observation(VECTOR, [0.0, 0.5, 1.0])
    assert (one["obs"].tolist(), vectorized) == ([[0.0, 0.5, 1.0]], False)
    two, vectorized = batch_observation(VECTOR, np.zeros((2, 3)))
    assert (two["obs"].shape, vectorized) == ((2, 3), True)
    assert one["obs"].dtype == two["obs"].dtype == np.float32


def test_one_whole_number_and_several() -> None:
    one, vectorized = batch_observation(spaces.Discrete(3), 2)
    assert (one["obs"].tolist(), vectorized) == ([2], False)
    two, vectorized = batch_observation(spaces.Discrete(3), [2, 0])
    assert (two["obs"].tolist(), vectorized) == ([2, 0], True)


def test_a_nested_dict() -> None:
    flat, vectorized = batch_observation(NESTED, NESTED.sample())
    assert not vectorized
    assert {key: array.shape for key, array in flat.items()} == {
        "camera/left": (1, 4, 5, 3), "camera/on": (1,), "place": (1, 3),
    }  # fmt: skip


def test_the_argument_is_not_modified() -> None:
    given = np.zeros((2, 3), np.float32)
    flat, _ = batch_observation(VECTOR, given)
    flat["obs"] += 1
    assert given.sum() == 0


IMAGE = spaces.Box(0, 255, (1, 4, 5), np.uint8)


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (VECTOR, np.zeros(4), r"'obs' must have shape \(3,\), or \(n, 3\) for a batch of n, got \(4,\)"),
        (VECTOR, np.zeros((2, 2, 3)), r"must have shape .* got \(2, 2, 3\)"),
        (VECTOR, 1.0, r"must have shape .* got \(\)"),
        (VECTOR, np.array([0, np.nan, 0]), "'obs' must be finite as float32"),
        (VECTOR, np.array([0, np.inf, 0]), "'obs' must be finite as float32"),
        (VECTOR, np.array([0, -1e300, 0]), "'obs' must be finite as float32"),
        (VECTOR, np.array(["a", "b", "c"]), "must have a dtype that casts to float32, got <U1. Convert it first"),
        (VECTOR, np.array([None, 1, 2]), "got object"),
        (VECTOR, None, r"must have shape .* got \(\)"),
        (VECTOR, np.zeros(3, complex), "got complex128"),
        (VECTOR, {"place": np.zeros(3)}, r"must have the keys \['obs'\], got \['place'\]"),
        (IMAGE, np.zeros((1, 4, 5), np.float32), "casts to uint8, got float32"),
        (IMAGE, np.zeros((1, 4, 5), np.int64), "casts to uint8, got int64"),
        (IMAGE, np.zeros((4, 5, 1), np.uint8), r"must have shape .* got \(4, 5, 1\)"),
        (spaces.Discrete(3), 3, "must be in Discrete.* got 3"),
        (spaces.Discrete(3, start=2), [2, 1], r"must be in Discrete.* got \[2, 1\]"),
        (spaces.Discrete(3), 1.0, "got float64"),
        (spaces.MultiDiscrete([2, 3]), [0, 3], "must be in MultiDiscrete"),
        (spaces.MultiBinary(2), [0, 2], "must be in MultiBinary"),
        (NESTED, {"place": np.zeros(3)}, r"must have the keys \['camera/left', 'c"),
        (NESTED, np.zeros(3), r"must have the keys .* got \['obs'\]"),
    ],
)
def test_observations_that_do_not_fit(space: Any, observation: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        batch_observation(space, observation)


def test_a_batch_axis_in_some_entries_alone() -> None:
    observation = NESTED.sample()
    observation["place"] = observation["place"][None]
    with pytest.raises(SpaceError, match="must have a batch axis, got the shapes"):
        batch_observation(NESTED, observation)


def test_batches_of_different_lengths() -> None:
    space = spaces.Dict({"a": VECTOR, "b": spaces.Discrete(2)})
    with pytest.raises(SpaceError, match=r"batch axis, got the shapes {'a': \(2, 3\), 'b': \(3,\)}"):
        batch_observation(space, {"a": np.zeros((2, 3)), "b": np.zeros(3, int)})


@pytest.mark.parametrize("space", [VECTOR, NESTED, spaces.Discrete(3)])
def test_the_tuple_of_reset_is_refused(space: spaces.Space[Any]) -> None:
    """Stable-Baselines3's loop, `obs = env.reset()`, with a gymnasium environment, gives (observation, info)."""
    observation = space.sample()
    batch_observation(space, observation)
    with pytest.raises(SpaceError, match=r"gymnasium's reset returns. Unpack it: obs, info = env.reset\(\)"):
        batch_observation(space, (observation, {}))


def test_a_tuple_of_two_observations_is_a_batch() -> None:
    assert batch_observation(VECTOR, (VECTOR.sample(), VECTOR.sample()))[0]["obs"].shape == (2, 3)


def test_a_ragged_list() -> None:
    with pytest.raises(SpaceError, match="got no array .*inhomogeneous"):
        batch_observation(VECTOR, [[1.0, 2.0, 3.0], [1.0]])
