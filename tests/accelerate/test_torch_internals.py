"""Private names of torch: each is where the package looks for it, and tracing works without those with a fallback."""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
from pathlib import Path

import pytest
import torch

import sb_dqn
from sb_dqn.accelerate import accelerate, torch_internals

PACKAGE = Path(sb_dqn.__file__).parent
NAMES = [
    "torch._guards.TracingContext",
    "torch._guards.tracing",
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch._inductor.compile",
    "torch._inductor.config.reorder_for_locality",
    "torch._inductor.config.cpp.vec_isa_ok",
    "torch._C.has_mkl",
    "torch._C._has_mkldnn",
    "torch._C._len_torch_dispatch_stack",
    "torch._fused_adam_",
    "torch._fused_adamw_",
    "torch.fx.graph_module._loader.eval_cache",
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, about itself
@pytest.mark.parametrize("name", NAMES)
def test_private_names_exist(name: str) -> None:
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(".".join(parts[:number]))


def test_oneDNN_has_its_operation() -> None:
    if torch.backends.mkldnn.is_available():
        assert torch_internals.onednn_linear() is not None


def test_private_names_are_used_in_one_file_only() -> None:
    faults = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name == "torch_internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and ast.unparse(node).startswith(("torch._", "torch.ops.mkldnn"))
                and not node.attr.startswith("__")
            ):
                faults.append(f"{path}:{node.lineno} uses {ast.unparse(node)}")
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch._"):
                faults.append(f"{path}:{node.lineno} imports {node.module}")
    assert not faults


def test_tracing_without_a_private_module(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate(lambda x: x + 1, (torch.ones(2),), "traced")  # imports what torch itself needs
    monkeypatch.setitem(sys.modules, "torch._guards", None)
    with torch_internals.shared_tracing_context():
        pass


def test_traces_leave_no_source_behind() -> None:
    kept = importlib.import_module("torch.fx.graph_module")._loader.eval_cache
    x, before = torch.ones(3), (set(kept), _graphs_in_linecache())
    run = accelerate(lambda x: (x + 1.0) * x, (x,), "traced")
    assert torch.equal(run(x), torch.full((3,), 2.0))
    assert (set(kept), _graphs_in_linecache()) == before


def _graphs_in_linecache() -> set[str]:
    return {name for name in linecache.cache if name.startswith("<eval_with_key>")}
