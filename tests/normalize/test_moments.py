"""Running moments: comparison with numpy over the whole stream, for any split into batches."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.normalize import Moments
from tests.marks import SLOW

Pieces = list[npt.NDArray[np.float32]]


@st.composite
def pieces(draw: st.DrawFn) -> Pieces:
    """Draws batches of two numbers at different scales and offsets; some are empty."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale, offset = draw(st.sampled_from([1e-3, 1.0, 1e4])), draw(st.sampled_from([0.0, -3.0, 1e5]))
    sizes = draw(st.lists(st.integers(0, 7), min_size=1, max_size=12))
    return [(rng.normal(size=(n, 2)) * scale + offset).astype(np.float32) for n in sizes]


@SLOW
@settings(max_examples=150)
@given(pieces())
def test_moments_equal_numpy(batches: Pieces) -> None:
    moments = Moments((2,))
    for batch in batches:
        moments.update(batch)
    whole = np.concatenate(batches).astype(np.float64)
    assert moments.count == len(whole)
    if len(whole):
        np.testing.assert_allclose(moments.mean, whole.mean(0), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.variance, whole.var(0), rtol=1e-9, atol=1e-12)


def test_mean_0_and_variance_1_without_data() -> None:
    moments = Moments((3,))
    moments.update(np.empty((0, 3)))
    assert moments.mean.tolist() == [0, 0, 0]
    assert moments.variance.tolist() == [1, 1, 1]


def test_worked_numbers() -> None:
    # decoys: the sample variance 14 / 3, the mean of the two batch means 4
    moments = Moments()
    moments.update(np.array([1.0, 2.0, 3.0]))
    moments.update(np.array([6.0]))
    assert (moments.count, float(moments.mean), float(moments.variance)) == (4, 3.0, 3.5)


def test_small_differences_at_a_large_offset_are_accurate() -> None:
    moments = Moments()
    for x in np.tile([1e8, 1e8 + 1, 1e8 + 2], 1000):
        moments.update(np.array([x]))
    assert float(moments.variance) == pytest.approx(2 / 3, rel=1e-9)


@given(pieces(), pieces())
@settings(max_examples=30)
def test_a_restored_state_continues_bit_for_bit(before: Pieces, after: Pieces) -> None:
    first, second = Moments((2,)), Moments((2,))
    for batch in before:
        first.update(batch)
    second.load_state_dict(first.state_dict())
    for batch in after:
        first.update(batch)
        second.update(batch)
    assert first.count == second.count
    assert first.mean.tobytes() == second.mean.tobytes()
    assert first.squares.tobytes() == second.squares.tobytes()
