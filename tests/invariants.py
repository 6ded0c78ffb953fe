"""Invariants of the rows and priorities of a replay buffer."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import torch

from sb_dqn.buffers import PrioritizedSampler, Ring
from sb_dqn.buffers.sum_tree import SumTree


@singledispatch
def check_valid(part: Any) -> tuple[bool, str]:
    """Checks the invariants of a ring or sampler, and names those that are violated."""
    raise TypeError(f"a ring or a prioritized sampler has invariants, got {part!r}")


@check_valid.register
def _(ring: Ring) -> tuple[bool, str]:
    ring.flush()
    lo, hi = ring.intervals()
    open_cells = torch.from_numpy((ring.cursor - 1) % ring.rows * ring.num_lanes + np.arange(ring.num_lanes))
    open_cells = open_cells.to(ring.device)
    started = torch.from_numpy(ring.cursor > 0).to(ring.device)
    open_last = torch.from_numpy(ring._open_last).to(ring.device)
    return violated(
        {
            "a cursor is negative": bool((ring.cursor < 0).any() or (ring._first < 0).any()),
            "the common cursor differs from the cursor of a lane": ring._common_cursor != ring._find_common_cursor(),
            "rows in bounds are overwritten or open": bool(
                ((lo < ring.cursor - ring.rows) | (hi >= ring.cursor)).any()
            ),
            "the zero frame is not zero": any(bool(ring.obs[key][-1].any()) for key in ring.stacked_keys),
            "`last` of an open row differs from its column": bool(
                (started & (ring.last[open_cells] != open_last)).any()
            ),
            "a `last` row has an action": bool(ring.action[ring.last].any()),
        }
    )


@check_valid.register
def _(sampler: PrioritizedSampler) -> tuple[bool, str]:
    ring, leaves, tree = sampler.ring, sampler.tree.leaves, sampler.tree
    may = torch.zeros_like(leaves, dtype=torch.bool)
    cells = torch.from_numpy(sampler._cells(*ring.rows_between(*ring.intervals()))).to(ring.device)
    may[cells] = ~ring.blocked.take(cells)
    rebuilt = SumTree(tree.size, ring.device)
    rebuilt.leaves.copy_(leaves)
    rebuilt.rebuild()
    return violated(
        {
            "a priority is 0 where a row may start, or above 0 where none may": not torch.equal(leaves > 0, may),
            "a sum differs from that of its children": any(
                not torch.allclose(a, b, 1e-12, 0.0) for a, b in zip(tree.sums, rebuilt.sums, strict=True)
            ),
            "the count differs from the number of rows that may start": sampler.count is not None
            and int(sampler.count.total()) != int(may.sum()),
        }
    )


def violated(faults: dict[str, bool]) -> tuple[bool, str]:
    found = [fault for fault, holds in faults.items() if holds]
    return not found, "; ".join(found) or "valid"
