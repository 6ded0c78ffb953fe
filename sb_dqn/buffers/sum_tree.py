"""Sum tree: samples leaves in proportion to their values, with tensor operations of fixed shape."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sb_dqn.devices import is_host_visible
from sb_dqn.types import IntArray

FAN_OUT = 32
TOP = 2048
"""Largest number of nodes of the top level, which is searched as one row; with more, a level is added above."""
BELOW = 1.0 - 1e-12
"""Upper bound of a position within a node, relative to the node's value; see `SumTree.find`."""


class SumTree:
    """Sum tree over float64 leaves >= 0 with 32 children per node, up to a top level of at most 2048 nodes.

    Sums are always recomputed from the children, never incremented, so errors do not accumulate. They are float64 because in
    float32, with 2**20 leaves of 1, the resolution of a position is 2**-4: smaller leaves would be found far too often or
    never. In float64 it is 2**-33, a millionth of a leaf of 1e-4. The tensors never move.

    Args:
        size: number of leaves, >= 1; indices are 0 .. size - 1.
        device: device of the tensors.
        host_visible: see `Ring`. If None, the device decides.
    """

    def __init__(self, size: int, device: torch.device | str = "cpu", host_visible: bool | None = None) -> None:
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
        # on the CPU, cumsum adds one number after another
        self._sequential = self.leaves.device.type == "cpu" if host_visible is None else host_visible
        levels = (self.leaves, *self.sums)
        self._arrays = [level.numpy() for level in levels] if self._sequential else None  # the same memory

    def total(self) -> Tensor:
        """Returns the sum of all leaves, 0-d."""
        return self.sums[-1].sum()

    def set_largest(self, leaves: Tensor, values: Tensor) -> None:
        """Writes leaves, of duplicates the largest value, and recomputes the sums above them; deterministic on every device.

        Args:
            leaves: `[N]` int64.
            values: `[N]` float64, 0 or at least 1e-100, with a finite sum.
        """
        if not is_host_visible(self.leaves.device):  # compiled code for the CPU would copy the tree
            self.leaves.index_fill_(0, leaves, 0.0)
            self.leaves.scatter_reduce_(0, leaves, values, "amax")
            self.update_sums(leaves)
            return
        leaves, order = leaves.sort()
        run = torch.zeros_like(leaves)  # index of the run of equal leaves; then the largest of each run
        run[1:] = (leaves[1:] != leaves[:-1]).cumsum(0)
        largest = torch.zeros_like(values).scatter_reduce(0, run, values.take(order), "amax")
        self.leaves.index_put_((leaves,), largest.take(run))
        self.update_sums(leaves)

    def write_from_host(self, leaves: IntArray, zeros: int, values: npt.NDArray[np.float64]) -> None:
        """Writes leaves of a tree that the CPU can address: the first `zeros` become 0, then the others are set to `values`.
        Several times faster than `replace` for a few leaves.

        Args:
            leaves: `[N]`, without duplicates after the first `zeros`.
            zeros: number of leaves to set to 0.
            values: `[N - zeros]`.
        """
        if self._arrays is None or len(leaves) * FAN_OUT > self.leaves.numel():
            cells = torch.from_numpy(leaves).to(self.leaves.device)
            self.leaves.index_fill_(0, cells[:zeros], 0.0)
            self.leaves.index_copy_(0, cells[zeros:], torch.as_tensor(values).to(self.leaves))
            self.update_sums(cells)
            return
        self._arrays[0][leaves[:zeros]] = 0.0
        self._arrays[0][leaves[zeros:]] = values
        for below, sums in pairwise(self._arrays):
            leaves = leaves >> 5
            sums[leaves] = below.reshape(-1, FAN_OUT)[leaves].sum(1)

    def replace(self, leaves: Tensor, is_zero: Tensor, values: Tensor, unused: int) -> None:
        """Sets the leaves where `is_zero` to 0, then the others to `values`; a fixed number of operations of fixed shape.

        Args:
            leaves: `[N]` int64, without duplicates among those that are not `is_zero`, except of `unused`.
            is_zero: `[N]` bool.
            values: `[N]` float64; 0 for each leaf `unused`.
            unused: a leaf that is always 0.
        """
        self.leaves.index_fill_(0, torch.where(is_zero, leaves, unused), 0.0)
        self.leaves.index_copy_(0, torch.where(is_zero, unused, leaves), torch.where(is_zero, self._zero, values))
        self.update_sums(leaves)

    def update_sums(self, leaves: Tensor) -> None:
        """Recomputes the sums above `leaves` `[N]` after their values have been written."""
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
        """Finds the leaves that contain the given positions of the running sum.

        Never finds a leaf of value 0, regardless of rounding, unless all are 0 (then leaf 0): `_edges` increase only at
        children above 0, and a position is clamped from 0 to below (1 - 1e-12) of its node's value, while two sums of 2048
        numbers in any order differ by less than 5e-13 of it. So there always is a first edge above the position.

        Args:
            position: `[N]` float64, from 0 up to the total; positions outside find the first or the last leaf above 0.

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
        """Returns the running sum along the last axis; it never decreases, and increases only at values above 0.

        On the CPU, adding one number after another guarantees this. A parallel sum may round differently from one place to the
        next: elsewhere the sums at values of 0 are set to 0, and a running maximum follows.
        """
        edges = values.cumsum(-1)
        return edges if self._sequential else (edges * (values > 0)).cummax(-1).values
