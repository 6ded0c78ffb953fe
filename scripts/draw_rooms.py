"""Drawing of the rooms of the package (its folders and single files) and their imports: `python -m scripts.draw_rooms`."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pages" / "pictures" / "rooms.svg"
LEVEL, BOX, GAP, LANE = 66, 30, 12, 6
"""Pixels: between levels, height of a box, between boxes, and width of an arrow that passes a level."""
Place = str | tuple[str, str, int]
"""A room, or the place in a level where the import of a room by another passes."""


def imports(files: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Returns the rooms that each room imports, at any depth.

    Args:
        files: syntax trees by path, such as `sb_dqn/core/construction.py`.
    """
    graph: dict[str, set[str]] = {}
    for path, tree in files.items():
        room = path.split("/")[1].removesuffix(".py")
        if room == "__init__":
            continue
        targets = graph.setdefault(room, set())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            targets |= {name.split(".")[1] for name in names if name.startswith("sb_dqn.")} - {room}
    return graph


def reduced(graph: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Returns the imports that do not follow from others: an arrow to `core` also stands for all that `core` imports."""

    @cache
    def below(room: str) -> frozenset[str]:
        return frozenset(graph[room]).union(*map(below, graph[room]))

    return {room: sorted(t for t in into if not any(t in below(o) for o in into)) for room, into in graph.items()}


def arranged(graph: Mapping[str, Sequence[str]]) -> tuple[list[list[Place]], list[list[Place]]]:
    """Returns the places of each level, the lowest first, and those of each arrow; what is linked is near each other."""

    @cache
    def level(room: str) -> int:
        return max((level(target) + 1 for target in graph[room]), default=0)

    levels: list[list[Place]] = [[] for _ in range(max(map(level, graph)) + 1)]
    arrows: list[list[Place]] = []
    for room in sorted(graph):
        levels[level(room)].append(room)
        for target in graph[room]:
            passed: list[Place] = [(room, target, number) for number in range(level(room) - 1, level(target), -1)]
            arrows.append([room, *passed, target])
            for number, place in zip(range(level(room) - 1, level(target), -1), passed, strict=True):
                levels[number].append(place)
    links = [link for arrow in arrows for pair in pairwise(arrow) for link in (pair, pair[::-1])]
    for turn in range(24):
        for fixed, moved in pairwise(levels if turn % 2 else levels[::-1]):
            x = centers(fixed)
            near = {place: [x[other] for one, other in links if one == place and other in x] for place in moved}
            moved.sort(key=lambda place: sum(near[place]) / len(near[place]) if near[place] else 0.0)
    return levels, arrows


def width(place: Place) -> int:
    return 8 * len(place) + 22 if isinstance(place, str) else LANE


def centers(places: Sequence[Place]) -> dict[Place, float]:
    """Returns the horizontal centers of the places of a level, whose center is 0."""
    right = -0.5 * (sum(map(width, places)) + GAP * (len(places) - 1))
    found: dict[Place, float] = {}
    for place in places:
        found[place] = right + width(place) / 2
        right += width(place) + GAP
    return found


def draw(files: Mapping[str, ast.Module]) -> str:
    """Returns the drawing as SVG; see `imports`."""
    graph = reduced(imports(files))
    levels, arrows = arranged(graph)
    height = LEVEL * len(levels)
    left = min(x for places in levels for x in centers(places).values()) - 80
    x = {place: center for places in levels for place, center in centers(places).items()}
    y = {place: height - LEVEL * (number + 1) + 18 for number, places in enumerate(levels) for place in places}
    lines = []
    for arrow in arrows:
        curve = f"M{x[arrow[0]]} {y[arrow[0]] + BOX}"
        for start, end in pairwise(arrow):
            curve += f"C{x[start]} {y[start] + BOX + 18} {x[end]} {y[end] - 20} {x[end]} {y[end] - 2}"
            curve += "" if isinstance(end, str) else f"V{y[end] + BOX}"
        lines.append(f'<path d="{curve}"/>')
    for room in graph:
        fill = "#e8eaf6" if any(path.startswith(f"sb_dqn/{room}/") for path in files) else "#fff"
        box = f'x="{x[room] - width(room) / 2}" y="{y[room]}" width="{width(room)}" height="{BOX}" rx="7"'
        lines.append(f'<rect {box} fill="{fill}"/><text x="{x[room]}" y="{y[room] + 20}">{room}</text>')
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left} 0 {-2 * left} {height}" font-family="system-ui, sans-serif" font-size="14" role="img" aria-label="Rooms of the package, with arrows to the rooms below that each imports.">
<style>path{{stroke:#78909c;fill:none;marker-end:url(#a)}}rect{{stroke:#3949ab}}text{{fill:#1a237e;text-anchor:middle}}</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" style="fill:#78909c;stroke:none;marker-end:none"/></marker></defs>
<rect x="{left}" width="{-2 * left}" height="{height}" rx="10" fill="#fff" style="stroke:none"/>
{chr(10).join(lines)}
</svg>
"""  # noqa: E501


if __name__ == "__main__":
    paths = sorted((ROOT / "sb_dqn").rglob("*.py"))
    trees = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    PICTURE.write_text(draw(trees), encoding="utf-8")
    print(PICTURE)
