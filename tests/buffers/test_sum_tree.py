"""Sum tree against sums by hand and by NumPy; leaves of 0 are never found, for values of any magnitude."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sb_dqn.accelerate import accelerate
from sb_dqn.buffers import sum_tree
from sb_dqn.buffers.sum_tree import SumTree
from tests.marks import SLOW

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]
SHARES = torch.tensor([0.05, 0.3, 0.6, 0.95], dtype=torch.float64)


def put(tree: SumTree, leaves: torch.Tensor, values: torch.Tensor) -> None:
    tree.leaves.index_copy_(0, leaves, values)
    tree.update_sums(leaves)


def tree_of(values: Tensor, device: str = "cpu", host_visible: bool | None = None) -> SumTree:
    tree = SumTree(len(values), device, host_visible)
    put(tree, torch.arange(len(values), device=device), values.double().to(device))
    return tree


@pytest.mark.parametrize("device", DEVICES)
def test_four_leaves_by_hand(device: str) -> None:
    powers = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64) ** 0.6
    tree = tree_of(powers, device)
    assert float(tree.total()) == pytest.approx(6.7462953214)
    assert tree.find(SHARES.to(device) * tree.total()).tolist() == [0, 1, 2, 3]
    # decoy: of 1 + 2 + 3 + 4, without the power of 0.6, a share of 0.14 lies in leaf 1
    assert tree.find(0.14 * tree.total()[None]).tolist() == [0]
    whole = tree_of(torch.tensor([1.0, 2.0, 3.0, 4.0]), device)
    position = torch.tensor([0.0, 0.9999, 1.0, 2.5, 3.0, 6.0, 9.9, 10.0, -1.0], dtype=torch.float64, device=device)
    assert whole.find(position).tolist() == [0, 0, 1, 1, 2, 3, 3, 3, 0]


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 1024, 3000, 70_001])
@pytest.mark.parametrize("top", [1, 40, sum_tree.TOP])
def test_equal_to_a_running_sum(size: int, top: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sum_tree, "TOP", top)  # small: many levels
    rng = np.random.default_rng(size)
    tree, values = SumTree(size), np.zeros(size)
    assert len(tree.sums) == max(1, sum(-(-size // 32**level) > top for level in range(1, 5)) + 1)
    for _ in range(8):
        leaves = rng.permutation(size)[: rng.integers(1, size + 1)]
        values[leaves] = rng.integers(0, 9, len(leaves)) * (rng.random(len(leaves)) < 0.5)  # whole: sums are exact
        put(tree, torch.from_numpy(leaves), torch.from_numpy(values[leaves]))
        edges = values.cumsum()
        assert float(tree.total()) == edges[-1]
        assert np.array_equal(tree.leaves[:size].numpy(), values)
        if edges[-1]:
            position = rng.integers(0, edges[-1], 500) + rng.choice([0.0, 0.5], 500)
            assert np.array_equal(
                tree.find(torch.from_numpy(position)).numpy(), np.searchsorted(edges, position, "right")
            )


def test_the_code_of_every_device_finds_the_same() -> None:
    rng = torch.Generator().manual_seed(0)
    values = torch.randint(0, 3, (70_000,), generator=rng)
    position = torch.randint(0, int(values.sum()), (5000,), generator=rng).double()
    here, there = tree_of(values), tree_of(values, host_visible=False)
    assert torch.equal(here.find(position), there.find(position))
    leaves = torch.randint(0, 69_999, (40,), generator=rng).unique()
    fresh = torch.rand(len(leaves), dtype=torch.float64, generator=rng)
    here.write_from_host(leaves.numpy(), 3, fresh[3:].numpy())
    here.write_from_host(np.array([69_999]), 1, np.zeros(0))
    padded = torch.cat([leaves, torch.full((5,), 69_999)])
    is_zero = torch.arange(len(padded)) < 3
    there.replace(padded, is_zero, torch.cat([fresh, torch.zeros(5, dtype=torch.float64)]), unused=69_999)
    assert torch.equal(here.leaves, there.leaves)
    torch.testing.assert_close(here.sums, there.sums, rtol=1e-14, atol=0.0)
    assert here.leaves[leaves].tolist() == [0.0, 0.0, 0.0, *fresh[3:].tolist()]


def test_a_leaf_that_is_zeroed_and_written_has_the_written_value() -> None:
    for tree in (tree_of(torch.ones(3000)), tree_of(torch.ones(3000), host_visible=False)):
        leaves, values = np.array([4, 5, 6, 5, 9]), np.array([7.0, 5.0])
        put(tree, torch.tensor([2999]), torch.zeros(1, dtype=torch.float64))
        if tree._arrays:
            tree.write_from_host(leaves, 3, values)
        else:
            is_zero = torch.arange(5) < 3
            tree.replace(
                torch.from_numpy(leaves), is_zero, torch.tensor([9.0, 9.0, 9.0, *values]).double(), unused=2999
            )
        assert tree.leaves[4:10].tolist() == [0, 7, 0, 1, 1, 5]
        assert float(tree.total()) == 2999 - 3 + 7 + 4


MAGNITUDES = st.one_of(st.just(0.0), st.integers(-100, 100).map(lambda power: 1.7 * 10.0**power))


@SLOW
@settings(max_examples=150)
@given(
    values=st.lists(MAGNITUDES, min_size=1, max_size=200),
    shares=st.lists(st.floats(-0.1, 1.1), min_size=1, max_size=20),
    elsewhere=st.booleans(),
)
def test_leaves_of_zero_are_never_found(values: list[float], shares: list[float], elsewhere: bool) -> None:
    before, sum_tree.TOP = sum_tree.TOP, 3
    try:
        tree = tree_of(torch.tensor(values, dtype=torch.float64), host_visible=not elsewhere)
    finally:
        sum_tree.TOP = before
    edges = tree.leaves.cumsum(0)
    near = torch.cat([edges, edges.nextafter(edges + 1), edges.nextafter(edges * 0 - 1)])
    found = tree.find(torch.cat([torch.tensor(shares, dtype=torch.float64) * tree.total(), near]))
    if any(values):
        assert bool((tree.leaves.take(found) > 0).all())
    else:
        assert found.tolist() == [0] * len(found)


def test_differently_rounded_sums_do_not_find_leaves_of_zero() -> None:
    rng = np.random.default_rng(0)
    values = torch.from_numpy(10.0 ** rng.uniform(-12, 3, 32 * 3000) * (rng.random(32 * 3000) < 0.3))
    for tree in (tree_of(values), tree_of(values, host_visible=False)):
        for sums in tree.sums:  # as far off as two sums of 2048 numbers in another order can be
            sums *= torch.from_numpy(1 + rng.choice([-4e-13, 4e-13], len(sums)))
        position = torch.from_numpy(np.r_[rng.random(50_000), 1.0, 1.0 + 1e-12]) * tree.total()
        assert bool((tree.leaves.take(tree.find(position)) > 0).all())


def test_running_sums_never_decrease_and_increase_only_above_zero() -> None:
    rng = np.random.default_rng(1)
    values = torch.from_numpy(10.0 ** rng.uniform(-12, 3, (500, 32)) * (rng.random((500, 32)) < 0.4))
    for tree in (SumTree(1), SumTree(1, host_visible=False)):
        for rows in (values, values.flatten()[None]):
            rise = tree._edges(rows).diff(dim=1)
            assert bool((rise >= 0).all())
            assert bool((rise[rows[:, 1:] == 0] == 0).all())


def test_float64_finds_what_float32_could_not() -> None:
    values = torch.ones(2**20, dtype=torch.float64)
    small = torch.arange(777, 2**20, 65_537)
    values[small] = 1e-4
    tree = tree_of(values)
    inside = values.cumsum(0)[small] - 0.5e-4
    assert tree.find(inside).tolist() == small.tolist()
    assert bool(
        (inside[1:].float() == values.cumsum(0)[small[1:] - 1].float()).all()
    )  # float32 cannot represent such positions


def test_sums_do_not_drift() -> None:
    rng = torch.Generator().manual_seed(0)
    tree = SumTree(2**17)
    for size in 10.0 ** torch.arange(8, -8, -1.0):  # incremented sums would keep the rounding errors of the largest
        leaves = torch.randint(0, 2**17, (400,), generator=rng).unique()
        put(tree, leaves, torch.full((len(leaves),), float(size), dtype=torch.float64))
        put(tree, leaves, torch.zeros(len(leaves), dtype=torch.float64))
    assert float(tree.total()) == 0.0
    tree.set_largest(torch.tensor([5, 70_000]), torch.tensor([1e-9, 1e-9], dtype=torch.float64))
    assert float(tree.total()) == 2e-9


@pytest.mark.parametrize("device", DEVICES)
def test_of_duplicates_the_largest_is_written(device: str) -> None:
    for size in (64, 5000):
        tree = tree_of(torch.full((size,), 9.0), device)
        leaves = torch.tensor([3, 40, 3, 41, 3, 40], device=device)
        tree.set_largest(leaves, torch.tensor([1.0, 2.0, 5.0, 0.0, 4.0, 1.0], dtype=torch.float64, device=device))
        assert tree.leaves[[3, 40, 41]].tolist() == [5.0, 2.0, 0.0]  # smaller than the old ones, and not the last
        assert float(tree.total()) == 9 * (size - 3) + 7


def chi_square(found: Tensor, share: Tensor) -> float:
    """Returns the chi-square statistic over leaves above 0, in standard deviations from its mean."""
    expected = (share / share.sum() * len(found))[share > 0]
    observed = torch.bincount(found, minlength=len(share))[share > 0]
    degrees = len(expected) - 1
    return float(((observed - expected) ** 2 / expected).sum() - degrees) / (2 * degrees) ** 0.5


@pytest.mark.parametrize("device", DEVICES)
def test_frequencies_are_the_shares(device: str) -> None:
    rng = torch.Generator().manual_seed(3)
    values = torch.rand(2**10, dtype=torch.float64, generator=rng) + 0.1
    values[torch.randint(0, 2**10, (100,), generator=rng)] = 0.0
    tree = tree_of(values, device)
    found = tree.find(torch.rand(300_000, dtype=torch.float64, generator=rng).to(device) * tree.total()).cpu()
    assert abs(chi_square(found, values)) < 4.0
    assert chi_square(found, values**0.8) > 8.0  # a slightly wrong exponent is detected


def test_a_trace_does_the_same() -> None:
    trees = [tree_of(torch.zeros(3000)) for _ in range(2)]

    def step(tree: SumTree, share: Tensor, leaves: Tensor, values: Tensor) -> Tensor:
        found = tree.find(share * tree.total())
        tree.set_largest(torch.cat([leaves, found]), torch.cat([values, values * 0.5]))
        return found

    rng = torch.Generator().manual_seed(0)

    def arguments() -> tuple[Tensor, ...]:
        share, values = torch.rand(2, 16, dtype=torch.float64, generator=rng)
        return share, torch.randint(0, 3000, (16,), generator=rng), values

    example = arguments()
    traced = accelerate(lambda *inputs: step(trees[1], *inputs), example, "traced")
    for tree in trees:
        tree.leaves.zero_()
        tree.rebuild()
    for _ in range(60):
        inputs = arguments()
        assert torch.equal(traced(*inputs), step(trees[0], *inputs))
        assert torch.equal(trees[0].leaves, trees[1].leaves)
        assert all(torch.equal(one, other) for one, other in zip(trees[0].sums, trees[1].sums, strict=True))
