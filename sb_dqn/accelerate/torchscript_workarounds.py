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
    given = ", ".join(names[value] if isinstance(value, Node) else repr(value) for value in node.args)
    answers = node.meta["val"]
    alone = isinstance(answers, Tensor)
    asked = [True] if alone else [answer is not None for answer in answers]
    every = [f"y{number}" for number in range(len(asked))]
    kept = ", ".join(name for name, wanted in zip(every, asked, strict=True) if wanted)
    operation = f"torch.ops.{str(node.target).removesuffix('.default')}({given})"
    unit = torch.jit.CompilationUnit(f"def run({taken}):\n    {', '.join(every)} = {operation}\n    return [{kept}]\n")
    run = unit.run

    def call(*tensors: Tensor) -> Any:
        found = iter(run(*tensors))  # what was not asked for has no tensor, which the tracer takes for a fault
        return next(found) if alone else tuple(next(found) if wanted else None for wanted in asked)

    return call
