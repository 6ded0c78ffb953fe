"""The page about GPUs lists every function that has code for CUDA alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import sb_dqn

PACKAGE = Path(sb_dqn.__file__).parent
PAGE = PACKAGE.parent / "docs" / "pages" / "training-on-a-gpu.md"


def functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Yields all functions of a module or class, with the name of their class."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{node.name}.")
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{prefix}{node.name}", node


def is_about_cuda(node: ast.AST) -> bool:
    return (
        (isinstance(node, ast.Attribute) and node.attr in ("cuda", "is_cuda"))
        or (isinstance(node, ast.Name) and node.id == "CudaGraph")
        or (isinstance(node, ast.Constant) and node.value == "cuda")
    )


def found_in(source: str) -> set[str]:
    tree = ast.parse(source)
    return {name for name, node in functions(tree.body, "") if any(map(is_about_cuda, ast.walk(node)))}


def test_every_function_with_code_for_cuda_is_listed() -> None:
    found = {
        f"{path.relative_to(PACKAGE).with_suffix('').as_posix()}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in found_in(path.read_text(encoding="utf-8"))
    }
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rows) == found
    assert len(rows) == len(found)


def test_code_for_cuda_is_found() -> None:
    source = """
class A:
    def one(self): return torch.cuda.Event()
    def two(self, x): return 1 if x.is_cuda else 2
    def three(self): return "cuda: as text"
def four(device): return device.type == "cuda"
"""
    assert found_in(source) == {"A.one", "A.two", "four"}
