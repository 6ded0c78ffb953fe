"""Kernels of an update or of acting on CUDA, counted in a graph that is traced on the CPU.

What is counted: the kernels, copies and fills of one CUDA graph, each call of cuBLAS and cuDNN as one, an LSTM of cuDNN as 4 forward
and 8 backward. `SEVERAL` and `VIEWS` say what each operation launches; they were measured with torch's own CUDA code over a
runtime that records launches without running them. There the graphs had 108 (DQN Nature), ... nodes; see the tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

VIEWS = {
    "_reshape_alias", "_unsafe_view", "alias", "as_strided", "detach", "diagonal", "empty", "empty_like", "expand",
    "getitem", "lift_fresh", "new_empty", "permute", "select", "slice", "split", "split_with_sizes", "squeeze", "t",
    "transpose", "unbind", "unfold", "unsqueeze", "view",
}  # fmt: skip
"""Operations that launch nothing."""


def _casts(node: Node) -> int:
    """A reduction of another dtype converts its input first."""
    source: Any = node.args[0]
    return 1 + (source.meta["val"].dtype in (torch.bool, torch.uint8, torch.int8, torch.int16))


def _scanned(node: Node) -> int:
    source: Any = node.args[0]
    return 1 + (source.meta["val"].dtype != node.meta["val"].dtype)


SEVERAL: dict[str, Callable[[Node], int]] = {
    "adaptive_max_pool2d": lambda _: 4,  # both images are made contiguous, and back
    "adaptive_max_pool2d_backward": lambda _: 4,
    "constant_pad_nd": lambda _: 2,
    "convolution": lambda node: 1 + (node.args[2] is not None),
    "convolution_backward": lambda node: sum(node.args[-1]),  # type: ignore[arg-type]  # which gradients are needed
    "cumprod": _scanned,
    "cumsum": _scanned,
    "huber_loss_backward": lambda _: 2,
    "max_pool2d_with_indices_backward": lambda _: 2,
    "mkldnn_rnn_layer": lambda _: 4,
    "mkldnn_rnn_layer_backward": lambda _: 8,
    "scatter_add": lambda _: 2,
    "scatter_reduce": lambda _: 3,
    "sort": lambda _: 5,
    "sum": _casts,
}


def name_of(node: Node) -> str:
    """Returns the name of a node's operation."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[1]
    return str(getattr(node.target, "__name__", node.target))


def kernels(graph: GraphModule) -> Counter[str]:
    """Returns the kernels of a graph by operation."""
    found: Counter[str] = Counter()
    for node in graph.graph.nodes:
        if node.op == "call_function" and (name := name_of(node)) not in VIEWS:
            found[name] += SEVERAL.get(name, lambda _: 1)(node)
    return found
