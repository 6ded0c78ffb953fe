"""A sum tree for drawing leaves in proportion to their values; every operation is a tensor function of fixed shape."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from sb_dqn.types import IntArray

FAN_OUT = 32
TOP = 2048
"""Nodes up to which the topmost level is searched as one row; more of them get a level above."""
BELOW = 1.0 - 1e-12
"""Share of a node's value below which a position in it must lie; see `SumTree.find`."""


class SumTree:
    """Leaves >= 0 in float64, 32 to a node; each node holds the sum of its children, up to a top of at most 2048 nodes.

    Sums are computed anew from the children and never incremented, so no error builds up. They are float64 because in
    float32, with 2**20 leaves of 1, a position is known to 2**-4 alone: leaves below that would be drawn far too often
    or never. In float64 it is known to 2**-33, a millionth of a leaf of 1e-4. The tensors never move.

    Args:
        size: number of leaves, >= 1; indices are 0 .. size - 1.
        device: where they lie.
    """

    def __init__(self, size: int, device: torch.device | str = "cpu") -> None:
        self.size = size
        self._zero = torch.zeros((), dtype=torch.float64, device=device)
        rows = -(-size // FAN_OUT)
        self.leaves = torch.zeros(rows * FAN_OUT, dtype=torch.float64, device=device)
        self.sums: list[Tensor] = []
        while rows > TOP:
            above = -(-rows // FAN_OUT)
            self.sums.append(torch.zeros(above * FAN_OUT, dtype=torch.float64, device=device))
            rows = above
        self.sums.append(torch.zeros(rows, dtype=torch.float64, device=device))
        self._sequential = self.leaves.device.type == "cpu"  # there cumsum adds one number after another
        levels = (self.leaves, *self.sums)
        self._arrays = [level.numpy() for level in levels] if self._sequential else None  # the same memory

    def total(self) -> Tensor:
        """The sum of all leaves, 0-d."""
        return self.sums[-1].sum()

    def set(self, leaves: Tensor, values: Tensor) -> None:
        """Writes leaves and brings the sums above them up to date.

        Args:
            leaves: `[N]` int64; of duplicates any one wins, so give them equal values.
            values: `[N]` float64, 0 or at least 1e-100, all together finite.
        """
        self.leaves.index_copy_(0, leaves, values)
        self.mend(leaves)

    def set_largest(self, leaves: Tensor, values: Tensor) -> None:
        """As `set`, but of duplicates the largest value is written, whatever the leaf held; the same on every device."""
        leaves, order = leaves.sort()
        run = torch.zeros_like(leaves)  # the number of the run of equal leaves; then the largest of each run
        run[1:] = (leaves[1:] != leaves[:-1]).cumsum(0)
        largest = torch.zeros_like(values).scatter_reduce(0, run, values.take(order), "amax")
        self.leaves.index_put_((leaves,), largest.take(run))
        self.mend(leaves)

    def write(self, leaves: IntArray, zeros: int, values: Any) -> None:
        """As `set`, from the host: the first `zeros` of the leaves become 0, then the others get their values.

        Args:
            leaves: `[N]`; without duplicates after the first `zeros`.
            zeros: how many.
            values: `[N - zeros]`, an array for a tree on the CPU (several times cheaper for a few leaves), else a tensor.
        """
        if self._arrays is None or len(leaves) * FAN_OUT > self.leaves.numel():
            cells = torch.from_numpy(leaves).to(self.leaves.device)
            self.leaves.index_fill_(0, cells[:zeros], 0.0)
            self.leaves.index_copy_(0, cells[zeros:], torch.as_tensor(values).to(self.leaves))
            self.mend(cells)
            return
        self._arrays[0][leaves[:zeros]] = 0.0
        self._arrays[0][leaves[zeros:]] = values
        for below, sums in pairwise(self._arrays):
            leaves = leaves >> 5
            sums[leaves] = below.reshape(-1, FAN_OUT)[leaves].sum(1)

    def mend(self, leaves: Tensor) -> None:
        """Recomputes the sums above `leaves` `[N]`, whose values have been written."""
        if leaves.numel() * FAN_OUT > self.leaves.numel():
            self.rebuild()
            return
        below, node = self.leaves, leaves
        for sums in self.sums:
            node = node >> 5
            sums.index_put_((node,), below.view(-1, FAN_OUT).index_select(0, node).sum(1))
            below = sums

    def rebuild(self) -> None:
        """Recomputes every sum."""
        below = self.leaves
        for sums in self.sums:
            row_sums = below.view(-1, FAN_OUT).sum(1)
            sums[: len(row_sums)] = row_sums
            below = sums

    def find(self, position: Tensor) -> Tensor:
        """The leaves in whose stretch of the running sum the positions lie.

        No leaf of value 0 is found, whatever is rounded how, unless all are 0 (then leaf 0): `_edges` rise nowhere but at
        children above 0, and a position is kept from 0 to below (1 - 1e-12) of its node's value, while two sums of 2048
        numbers in any order differ by less than 5e-13 of it. So there always is a first edge above the position.

        Args:
            position: `[N]` float64, from 0 up to the total; what lies outside finds the first or the last leaf above 0.

        Returns:
            `[N]` int64.
        """
        top = self.sums[-1]
        edges = self._edges(top)
        position = self._inside(position, edges[-1])
        node = torch.searchsorted(edges, position, right=True)
        value = top.take(node)
        position = position - edges.take(node) + value
        first = torch.arange(0, FAN_OUT * len(node), FAN_OUT, device=node.device)
        for level in (*self.sums[-2::-1], self.leaves):
            edges = self._edges(level.view(-1, FAN_OUT).index_select(0, node))  # [N, 32]
            position = self._inside(position, value)
            child = torch.searchsorted(edges, position[:, None], right=True)[:, 0]
            node = node * FAN_OUT + child
            value = level.take(node)
            position = position - edges.take(first + child) + value
        return node

    def _inside(self, position: Tensor, value: Tensor) -> Tensor:
        return position.clamp(self._zero, value * BELOW - 1e-300)  # below 0 where the value is 0

    def _edges(self, values: Tensor) -> Tensor:
        """The running sum along the last axis; it never falls, and rises nowhere but at values above 0.

        On the CPU that is how one number after another is added up. A parallel sum elsewhere may round differently from
        one place to the next: 0 where the value is 0, then the largest so far, mends it.
        """
        edges = values.cumsum(-1)
        return edges if self._sequential else (edges * (values > 0)).cummax(-1).values
