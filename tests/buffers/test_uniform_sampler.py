"""Uniform sampler: all rows that may start are equally likely, for lanes of any length."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from gymnasium import spaces

from sb_dqn.buffers.ring import Ring
from sb_dqn.buffers.ring_layout import Layout
from sb_dqn.buffers.uniform_sampler import UniformSampler
from sb_dqn.types import Slot

pytestmark = pytest.mark.usefixtures("storage")

SPACES = {"obs": spaces.Box(-1, 1, (1,), np.float32)}


def filled(lanes: int, ticks: int, n: int = 3, rows: int = 200) -> Ring:
    """Returns a ring whose lane b receives each (b + 1)-th tick; in lane 0 every third row is `last`."""
    ring = Ring(Layout(rows * lanes, lanes, SPACES, num_actions=2, n_steps=n))
    zeros = np.zeros(lanes, np.float32)
    for tick in range(ticks):
        valid = tick % (np.arange(lanes) + 1) == 0
        last = np.zeros(lanes, bool)
        last[0] = tick % 3 == 0
        ring.arrive(Slot({"obs": zeros[:, None]}, zeros, zeros, last, last, valid, bool(valid.all())))
    ring.refresh_bounds()
    return ring


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_row_that_may_start_is_equally_likely(lanes: int) -> None:
    ring, count = filled(lanes, 100), 200_000
    noise = torch.rand(4, count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    lane, row, weight = UniformSampler(ring, count).locate(noise)
    drawn = weight > 0
    hits = np.array(list(Counter(zip(lane[drawn].tolist(), row[drawn].tolist(), strict=True)).values()))
    lengths = [-(-100 // (b + 1)) - 3 for b in range(lanes)]
    startable = sum(lengths) - sum(r % 3 == 0 for r in range(lengths[0]))
    assert ring.startable() == sum(lengths)
    assert len(hits) == startable
    assert np.abs((hits - hits.mean()) / np.sqrt(hits.mean())).max() < 5
    failed = (1 - startable / sum(lengths)) ** 4  # all four candidates were `last` rows
    assert abs(float((weight == 0).double().mean()) - failed) < 5 * np.sqrt(failed / count)


def test_the_first_candidate_that_may_start_is_used() -> None:
    ring = filled(1, 12)  # rows 0 .. 8 in bounds; 0, 3 and 6 are `last`
    noise = torch.tensor([[0, 1, 0, 0], [3, 2, 4, 3], [6, 3, 5, 6], [7, 4, 0, 0]], dtype=torch.float64)
    lane, row, weight = UniformSampler(ring, 4).locate((noise + 0.5) / 9)
    assert row.tolist()[:3] == [7, 1, 4]
    assert weight.tolist() == [1, 1, 1, 0]
    assert lane.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("lanes", [1, 3])
def test_noise_at_both_ends_stays_in_bounds(lanes: int) -> None:
    ring = filled(lanes, 90)
    for dtype in (torch.float64, torch.float32):
        for end in (0.0, float(torch.nextafter(torch.tensor(1.0, dtype=dtype), torch.tensor(0.0, dtype=dtype)))):
            lane, row, _ = UniformSampler(ring, 1).locate(torch.full((4, 1), end, dtype=dtype))
            assert bool((row >= ring.lo[lane]).all())
            assert bool((row < ring.hi[lane]).all())


def test_float64_noise_reaches_odd_rows_beyond_2_to_the_24() -> None:
    ring = Ring(Layout(10, 1, SPACES, num_actions=2))
    ring.cursor[:] = 0
    ring.total.fill_(2**26)  # only the arithmetic is tested: no such ring is allocated
    ring.hi.fill_(2**26)
    wanted = 2**26 - 1
    row = UniformSampler(ring, 1).locate(torch.full((4, 1), wanted / 2**26, dtype=torch.float64))[1]
    assert row.tolist() == [wanted]


def test_an_empty_ring_gives_weight_zero_and_safe_rows() -> None:
    for lanes in (1, 3):
        ring = Ring(Layout(30, lanes, SPACES, num_actions=2))
        ring.refresh_bounds()
        sampler = UniformSampler(ring, 8)
        lane, _, weight = sampler.locate(torch.rand(sampler.noise_shape, dtype=torch.float64))
        assert not ring.can_start()
        assert weight.sum() == 0
        assert bool((lane < lanes).all())


def test_it_has_no_state() -> None:
    sampler = UniformSampler(filled(1, 10), 2)
    before = sampler.ring.lo.clone()
    sampler.feedback(torch.zeros((2, 2), dtype=torch.int64), torch.ones(2))
    sampler.load_state_dict(sampler.state_dict())
    assert sampler.state_dict() == {}
    assert torch.equal(before, sampler.ring.lo)
