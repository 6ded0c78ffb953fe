"""Rules of the package structure, checked on the syntax tree: floors, import circles, forbidden calls."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from sb_dqn.algorithms import registry
from tests.architecture.package import PACKAGE, ROOT, module_name, parsed, sources
from tests.marks import SLOW

FLOORS = {
    **dict.fromkeys(["version", "errors", "files", "sb3_names"], 0),
    **dict.fromkeys(["checks", "types", "spaces", "schedules", "rng", "devices", "accelerate", "remotes"], 1),
    **dict.fromkeys(["checkpoint", "logger", "losses"], 1),
    **dict.fromkeys(["nn", "normalize", "buffers", "envs"], 2),
    **dict.fromkeys(["exploration", "objectives", "evaluation", "sb3_files"], 3),
    **dict.fromkeys(["policies", "callbacks"], 4),
    **dict.fromkeys(["acting", "diagnosis", "learning", "onnx_export", "presets", "plotting"], 5),
    **dict.fromkeys(["actors"], 6),
    **dict.fromkeys(["core"], 7),
    **dict.fromkeys(["algorithms"], 8),
    **dict.fromkeys(["runs", "sb3"], 9),
    **dict.fromkeys(["hub"], 10),
    **dict.fromkeys(["cli"], 11),
}
"""Room (a folder or a single file) to floor. A room imports from its own floor at most, and never in a circle."""

TOP_LEVEL = {
    *(".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "docs", "sb_dqn", "scripts", "tests"),
    *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md"),
    *("constraints.txt", "pyproject.toml", "setup.cfg"),
}
"""Tracked files and folders at the top of the repository."""

MAX_POSITIONAL = 8

SAFE_RANDOM = {"Generator", "default_rng", "SeedSequence", "PCG64", "PCG64DXSM", "Philox", "BitGenerator"}


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted name to syntax tree, of every file of the package."""
    return {module_name(ROOT / path): parsed(source) for path, source in sources().items()}


ROOMS = sorted(
    {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))} - {"__init__"}
)


def test_no_leftover_is_tracked_at_the_top_of_the_repository() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name.partition("/")[0] for name in tracked.splitlines()} == TOP_LEVEL


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.AST, known: set[str]) -> Iterator[tuple[str, int]]:
    """Every import of the package, at any depth, as the most precise known module, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name != "sb_dqn" and not name.startswith("sb_dqn."):
                continue
            while name not in known and "." in name:
                name = name.rpartition(".")[0]
            yield name, node.lineno


def breaks_floors(module: str, tree: ast.AST, known: set[str]) -> list[str]:
    """Imports from a higher floor, and `losses` importing anything of ours."""
    faults = []
    for target, line in imports(tree, known):
        here, there = room(module), room(target)
        if not there or here == there or not here:
            continue
        if FLOORS[there] > FLOORS[here]:
            faults.append(f"{module}:{line} (floor {FLOORS[here]}) imports {target} (floor {FLOORS[there]})")
        if here == "losses":
            faults.append(f"{module}:{line} imports {target}; losses import torch alone")
    return faults


def imports_root(module: str, tree: ast.AST, known: set[str]) -> list[str]:
    return [f"{module}:{line} imports the root package" for target, line in imports(tree, known) if target == "sb_dqn"]


def forbidden_calls(module: str, tree: ast.AST) -> list[str]:
    """`hasattr`, Python's `random`, numpy's global generator."""
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "hasattr":
            faults.append(f"{module}:{node.lineno} uses hasattr")
        elif isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
            faults.append(f"{module}:{node.lineno} imports the global random")
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            faults.append(f"{module}:{node.lineno} imports from the global random")
        elif isinstance(node, ast.Attribute) and is_numpy_random(node.value) and node.attr not in SAFE_RANDOM:
            faults.append(f"{module}:{node.lineno} uses np.random.{node.attr}")
    return faults


def is_numpy_random(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "random"
        and isinstance(node.value, ast.Name)
        and node.value.id in {"np", "numpy"}
    )


def autoreset_reads(module: str, tree: ast.AST) -> list[str]:
    """Places that ask how an environment resets; handing the mode to a constructor is not asking."""
    if module.startswith("sb_dqn.envs.streams"):
        return []
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and asks_autoreset(node)]
    return [f"{module}:{node.lineno} reads the autoreset mode" for node in nodes]


def asks_autoreset(node: ast.AST) -> bool:
    """`x.autoreset_mode`, `x["autoreset_mode"]` or `x.get("autoreset_mode")`, read and not written."""
    if isinstance(node, ast.Attribute):
        return node.attr == "autoreset_mode" and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Subscript):
        return is_mode(node.slice) and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and any(map(is_mode, node.args))


def is_mode(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == "autoreset_mode"


def long_calls(module: str, tree: ast.AST) -> list[str]:
    """Calls with more than `MAX_POSITIONAL` positional arguments, whose order no reader knows."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > MAX_POSITIONAL]
    return [f"{module}:{call.lineno} passes {len(call.args)} positional arguments" for call in calls]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one import circle, or nothing."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for following in sorted(graph.get(node, ())):
            found = walk(following, [*path, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for start in sorted(graph) if (found := walk(start, []))), [])


def pairs(graph: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Returns the neighbors (files or folders of the same folder) of which each imports the other, at any depth.

    Args:
        graph: the modules that each module imports.
    """
    edges = set()
    for module, targets in graph.items():
        for target in targets:
            here, there = module.split("."), target.split(".")
            depth = next((i for i, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), None)
            if depth is not None:  # neither contains the other
                edges.add((".".join(here[: depth + 1]), ".".join(there[: depth + 1])))
    return sorted((here, there) for here, there in edges if here < there and (there, here) in edges)


def test_every_room_has_a_floor() -> None:
    assert "losses" in ROOMS
    assert set(ROOMS) <= set(FLOORS)


@pytest.mark.parametrize("name", ["", *ROOMS])
def test_the_nevers(name: str) -> None:
    known = set(modules())
    faults = []
    for module, tree in modules().items():
        if room(module) == name:
            faults += breaks_floors(module, tree, known) + imports_root(module, tree, known)
            faults += forbidden_calls(module, tree) + autoreset_reads(module, tree) + long_calls(module, tree)
    assert faults == []


@SLOW
def test_the_native_library_does_not_import_the_room_of_stable_baselines3() -> None:
    known = set(modules())
    targets = [
        target for module, tree in modules().items() if room(module) != "sb3" for target, _ in imports(tree, known)
    ]
    assert not [target for target in targets if room(target) == "sb3"]


def test_no_two_rooms_import_each_other_at_any_depth() -> None:
    known = set(modules())
    graph = {module: {target for target, _ in imports(tree, known)} for module, tree in modules().items()}
    assert pairs(graph) == []


@SLOW
def test_no_import_circle_of_any_kind() -> None:
    known = set(modules())
    graph = {
        module: {target for target, _ in imports(tree, known) if target not in (module, "sb_dqn")}
        for module, tree in modules().items()
        if module != "sb_dqn"
    }
    assert circle(graph) == []


def test_the_registry_names_what_type_checkers_import() -> None:
    tree = modules()["sb_dqn.algorithms.registry"]
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imported for alias in node.names} == registry.MODULES


def test_algorithms_holds_algorithms_only() -> None:
    """Every file of `algorithms/` defines a class of the registry."""
    homes = set(registry.MODULES.values()) | {"sb_dqn.algorithms", "sb_dqn.algorithms.registry"}
    assert {module for module in modules() if room(module) == "algorithms"} == homes


# The detectors themselves: what they must see, and what they must let pass.

KNOWN = {
    "sb_dqn",
    "sb_dqn.losses.td",
    "sb_dqn.algorithms.dqn",
    "sb_dqn.callbacks.base",
    "sb_dqn.errors",
    "sb_dqn.nn.heads.scalar",
}


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("sb_dqn.callbacks.base", "from sb_dqn.algorithms.dqn import DQN", 1),
        ("sb_dqn.callbacks.base", "def f():\n    import sb_dqn.algorithms.dqn", 1),
        ("sb_dqn.callbacks.base", "from sb_dqn.nn import values", 0),
        ("sb_dqn.losses.td", "from sb_dqn.errors import nearest", 1),
        ("sb_dqn.algorithms.dqn", "from sb_dqn.losses.td import td_error", 0),
    ],
)
def test_floors_are_seen(module: str, source: str, count: int) -> None:
    assert len(breaks_floors(module, ast.parse(source), KNOWN)) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import sb_dqn", 1),
        ("from sb_dqn import DQN", 1),
        ("from sb_dqn import errors", 0),
        ("import sb_dqn.errors", 0),
    ],
)
def test_root_imports_are_seen(source: str, count: int) -> None:
    assert len(imports_root("sb_dqn.nn.heads.scalar", ast.parse(source), KNOWN)) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("hasattr(x, 'y')", 1),
        ("import random", 1),
        ("from random import choice", 1),
        ("np.random.seed(0)", 1),
        ("numpy.random.rand(3)", 1),
        ("rng = np.random.default_rng(0)\nrng.random(3)", 0),
        ("x: np.random.Generator", 0),
    ],
)
def test_forbidden_calls_are_seen(source: str, count: int) -> None:
    assert len(forbidden_calls("m", ast.parse(source))) == count


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("sb_dqn.evaluation", "env.metadata['autoreset_mode']", 1),
        ("sb_dqn.evaluation", "env.autoreset_mode", 1),
        ("sb_dqn.evaluation", "env.metadata.get('autoreset_mode')", 1),
        ("sb_dqn.envs.atari", "metadata = {'autoreset_mode': AutoresetMode.NEXT_STEP}", 0),
        ("sb_dqn.envs.atari", "metadata['autoreset_mode'] = AutoresetMode.NEXT_STEP", 0),
        ("sb_dqn.envs.streams.gymnasium_vector", "env.metadata['autoreset_mode']", 0),
        ("sb_dqn.envs.make", "SyncVectorEnv(fns, autoreset_mode=AutoresetMode.NEXT_STEP)", 0),
    ],
)
def test_autoreset_reads_are_seen(module: str, source: str, count: int) -> None:
    assert len(autoreset_reads(module, ast.parse(source))) == count


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("f(1, 2, 3, 4, 5, 6, 7, 8, 9)", 1),
        ("partial(f, 1, 2, 3, 4, 5, 6, 7, *rest)", 1),
        ("def g():\n    return Order(1, 2, 3, 4, 5, 6, 7, 8, None)", 1),
        ("f(1, 2, 3, 4, 5, 6, 7, 8)", 0),
        ("f(1, 2, 3, 4, 5, 6, 7, 8, nine=9, ten=10)", 0),
    ],
)
def test_calls_with_many_positional_arguments_are_seen(source: str, count: int) -> None:
    assert len(long_calls("m", ast.parse(source))) == count


def test_circles_are_seen() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_rooms_that_import_each_other_are_seen() -> None:
    above = {"p.core.loop": {"p.actors.worker"}, "p.actors.settings": {"p.core.seeds"}}  # no circle of modules
    assert pairs(above) == [("p.actors", "p.core")]
    deep = {"p.envs.streams.open": {"p.envs.vector.lanes"}, "p.envs.vector.atari": {"p.envs.streams.options"}}
    assert pairs(deep) == [("p.envs.streams", "p.envs.vector")]
    down = {"p.core.loop": {"p.actors.worker", "p.core"}, "p.core": {"p.core.loop"}, "p.actors.worker": {"p.errors"}}
    assert pairs(down) == []
