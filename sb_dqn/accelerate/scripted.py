"""Operations that TorchScript runs but its tracer cannot write down, in a form that it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

REFUSED = ("aten.convolution_backward.default", "mkldnn._linear_pointwise.default")
"""They take lists of truths, or of numbers that may be missing. Names, since some builds of PyTorch lack oneDNN."""


def script_refused(recording: GraphModule) -> None:
    """Has those operations of a recording called by small functions in TorchScript's language, in which all is constant but
    the tensors."""
    for number, node in enumerate(recording.graph.nodes):
        if str(node.target) in REFUSED:
            tensors = tuple(given for given in node.args if isinstance(given, Node))
            function = _scripted(node)
            function.__name__ = f"scripted_{number}"
            node.target, node.args = function, tensors
    recording.recompile()


def _scripted(node: Node) -> Callable[..., Any]:
    names = {given: f"x{number}" for number, given in enumerate(node.args) if isinstance(given, Node)}
    taken = ", ".join(f"{name}: Tensor" for name in names.values())
    given = ", ".join(names[value] if isinstance(value, Node) else repr(_plain(value)) for value in node.args)
    answers = node.meta["val"]
    operation = f"torch.ops.{str(node.target).removesuffix('.default')}({given})"
    if isinstance(answers, Tensor):
        return _compiled(f"def run({taken}):\n    return {operation}\n")
    kept = [f"y{number}" for number, answer in enumerate(answers) if answer is not None]
    everything = ", ".join(f"y{number}" for number in range(len(answers)))
    run = _compiled(f"def run({taken}):\n    {everything} = {operation}\n    return [{', '.join(kept)}]\n")

    def call(*tensors: Tensor) -> tuple[Tensor | None, ...]:
        found = iter(run(*tensors))  # what was not asked for has no tensor, which the tracer takes for a fault
        return tuple(next(found) if f"y{number}" in kept else None for number in range(len(answers)))

    return call


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (list, tuple)) else value  # torch's own lists of numbers print as its own


def _compiled(source: str) -> Callable[..., Any]:
    run = torch.jit.CompilationUnit(source).run

    def call(*tensors: Tensor) -> Any:
        return run(*tensors)

    return call
