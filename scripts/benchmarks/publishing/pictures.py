"""Pictures of the results as SVG files, each in a light and a dark set of colors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sb_dqn.cli.benchmark.runs import OWN, Suite
from sb_dqn.plotting.series import Series
from sb_dqn.plotting.svg import COLORS, Chart, draw_chart
from sb_dqn.runs.statistics import performance_profile
from scripts.benchmarks.publishing.cells import PEERS, Cell, normalized

STYLE = (
    "svg{font:11px system-ui,sans-serif;fill:#5d6068;--grid:#e9e9e5;--c0:#2563b8;--c1:#d3611c;--c2:#1f8254;--c3:#8a4bb3;"
    "--c4:#a67c00;--c5:#bf3472;--c6:#2b8a96;--c7:#6b6f76}"
    "@media(prefers-color-scheme:dark){svg{fill:#a0a4ac;--grid:#2a2d32;--c0:#74a9f5;--c1:#f19a5b;--c2:#63c794;--c3:#c595e8;"
    "--c4:#d9b545;--c5:#f084b0;--c6:#67c4cf;--c7:#a3a7ae}}"
    "path{fill:none;stroke:var(--c);vector-effect:non-scaling-stroke;stroke-linejoin:round;stroke-linecap:round}"
    ".grid{stroke:var(--grid)}.line{stroke-width:2}.faint{opacity:.5}.band{fill:var(--c);stroke:none;opacity:.16}"
    ".marks{stroke-width:6}svg svg{overflow:visible}"
    f"{''.join(f'.c{number}{{--c:var(--c{number})}}' for number in range(COLORS))}"
)
WIDTH, HEIGHT, LEFT, TOP = 260, 130, 46, 26
"""Size of a panel's drawing area, and the space for its labels and its title."""


def algorithm_picture(suite: Suite, cells: Sequence[Cell]) -> str:
    """Returns the curves of an algorithm, a panel for each task; next to those of a peer, a second one over CPU minutes."""
    both = any(cell.library != OWN for cell in cells)
    charts = [
        draw_task([cell for cell in cells if cell.task == task.name], minutes)
        for task in suite.tasks
        for minutes in (False, True)[: 1 + both]
    ]
    return picture([chart for chart in charts if chart], 2 if both else 3)


def draw_task(cells: Sequence[Cell], minutes: bool) -> Chart | None:
    """Returns the panel of a task: the curve of this library and those of the peers."""
    ranked = sorted(cells, key=lambda cell: cell.library != OWN)
    series = [line for color, cell in enumerate(ranked) for line in cell.series(color, minutes=minutes)]
    return draw_chart(f"{cells[0].task}, {'CPU minutes' if minutes else 'env steps'}", series) if cells else None


def settings_charts(cells: Sequence[Cell]) -> list[Chart]:
    """Returns a panel for each task, with a curve for each of its settings."""
    panels: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        panels[cell.task.rpartition(", ")[0] or cell.task].append(cell)
    charts = [
        draw_chart(task, [line for color, cell in enumerate(group) for line in cell.series(color, label(cell, task))])
        for task, group in panels.items()
    ]
    return [chart for chart in charts if chart]


def label(cell: Cell, task: str) -> str:
    """Returns the settings in the name of a task."""
    return cell.task.removeprefix(task).removeprefix(", ") or "no switch"


def profile_picture(suite: Suite, cells: Sequence[Cell]) -> str | None:
    """Returns the performance profiles of the agents that have a peer, or None if there are none."""
    scores = normalized(suite, cells)
    thresholds = np.linspace(0.0, 1.0, 51)
    shared = [algorithm for library, algorithm in scores if library != OWN and (OWN, algorithm) in scores]
    series = []
    for color, algorithm in enumerate(shared):
        for library in (OWN, *PEERS):
            if (library, algorithm) in scores:
                band = performance_profile(scores[library, algorithm], thresholds)
                label = Cell(library, algorithm, "", (), ()).agent
                series.append(Series("line", thresholds, band.value, color=color, faint=library != OWN, label=label))
    chart = draw_chart("fraction of runs above a normalized score", series, x_label="")
    return picture([chart]) if chart else None


def picture(charts: Sequence[Chart], columns: int = 3) -> str:
    """Returns an SVG file with a panel for each chart and one legend."""
    legend = list(dict.fromkeys(entry for chart in charts for entry in chart.legend))
    columns = min(len(charts), columns)
    step_x, step_y, head = WIDTH + LEFT + 14, HEIGHT + TOP + 26, 16 * -(-len(legend) // 4) + 8
    width, height = columns * step_x, head + -(-len(charts) // columns) * step_y
    marks = []
    for number, (style, text) in enumerate(legend):
        x, y = LEFT + number % 4 * (width - LEFT) / min(len(legend), 4), 12 + number // 4 * 16
        marks.append(f'<path class="{style}" d="M{x:.0f} {y - 4}h18"/><text x="{x + 24:.0f}" y="{y}">{text}</text>')
    for number, chart in enumerate(charts):
        x, y = LEFT + number % columns * step_x, head + TOP + number // columns * step_y
        size = f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" '
        labels = [f'<text x="{x}" y="{y - 8}" font-weight="600">{chart.title}</text>']
        for tick in chart.y_ticks:
            labels.append(
                f'<text x="{x - 6}" y="{y + HEIGHT * (1 - tick.place / 100) + 4:.0f}" text-anchor="end">{tick.text}</text>'
            )
        for tick in chart.x_ticks:
            place = x + WIDTH * tick.place / 100
            labels.append(f'<text x="{place:.0f}" y="{y + HEIGHT + 16}" text-anchor="middle">{tick.text}</text>')
        marks += [str(chart.svg).replace("<svg ", size, 1), *labels]
    return svg(width, height, marks)


def radar(scores: Mapping[str, Mapping[str, float]]) -> str:
    """Returns an SVG file with an axis from 0 to 1 for each kind, and a closed line for each agent through the kinds it has.

    An agent that has one kind has a line from the centre.
    """
    kinds = sorted({kind for values in scores.values() for kind in values})
    width, height, radius = 440, 300, 110
    angles = 2 * np.pi * np.arange(len(kinds)) / len(kinds)
    axes = dict(zip(kinds, zip(radius * np.sin(angles), -radius * np.cos(angles), strict=True), strict=True))

    def closed(values: Mapping[str, float], style: str) -> str:
        ends = [(value * axes[kind][0], value * axes[kind][1]) for kind, value in sorted(values.items())]
        ends = ends if len(ends) > 1 else [(0.0, 0.0), *ends]
        return f'<path class="{style}" d="M{"L".join(f"{width / 2 + x:.1f} {height / 2 + y:.1f}" for x, y in ends)}Z"/>'

    marks = [closed(dict.fromkeys(kinds, size), "grid") for size in (0.25, 0.5, 0.75, 1.0)]
    for kind, (x, y) in axes.items():
        anchor = "middle" if abs(x) < 1 else "start" if x > 0 else "end"
        place = f'x="{width / 2 + 1.07 * x:.0f}" y="{height / 2 + 1.07 * y + 4:.0f}"'
        marks.append(f'<text {place} text-anchor="{anchor}">{kind.replace("_", " ")}</text>')
    for color, (agent, values) in enumerate(scores.items()):
        marks.append(closed(values, f"line c{color}"))
        marks.append(f'<path class="line c{color}" d="M8 {16 + 16 * color}h18"/>')
        marks.append(f'<text x="32" y="{20 + 16 * color}">{agent}</text>')
    return svg(width, height, marks)


def svg(width: int, height: int, marks: Iterable[str]) -> str:
    """Returns an SVG file in the style of all pictures of results."""
    box = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
    return "\n".join([box, f"<style>{STYLE}</style>", *marks, "</svg>", ""])
