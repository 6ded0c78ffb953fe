"""Pictures by matplotlib: `Series` on axes, rows of estimates and profiles, for a screen or for a column of a paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sb_dqn.checks import check_output_path
from sb_dqn.errors import ConfigurationError, import_extra
from sb_dqn.files import atomic_write
from sb_dqn.plotting.curve import Points, read_curve
from sb_dqn.plotting.series import Series, learning_curve
from sb_dqn.types import Settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Figure

Against = Literal["steps", "time"]
Row = tuple[float, tuple[float, float] | None]
"""Value and its interval."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Palette of Okabe and Ito, which color-blind readers can tell apart, without its yellow."""
LINES = ("-", "--", ":", "-.")
"""Line styles; the next one begins when the colors are used up."""

FEW = 0.02
"""Fraction of the runs that may be above the x-axis of a profile..."""
LONG = 1.5
"""...if showing them would make the axis longer by this factor."""


@dataclass(frozen=True)
class Style:
    """Size and fonts of a figure."""

    width: float
    """Inches."""
    height: float
    """Inches, of curves and profiles."""
    row: float
    """Inches of a row of intervals."""
    titled: bool
    """True to write a title; a paper has a caption."""
    ending: str
    """Default file format."""
    settings: Settings
    """matplotlib's rcParams."""


STYLES = {
    "screen": Style(7.5, 4.2, 0.45, True, ".png", {"font.size": 11.0, "savefig.dpi": 150}),
    "paper": Style(
        3.3,  # a column of a two-column paper
        2.2,
        0.24,
        False,
        ".pdf",
        {
            "font.family": "STIXGeneral",
            "mathtext.fontset": "stix",
            "font.size": 8.0,
            "axes.linewidth": 0.6,
            "xtick.major.width": 0.6,
            "ytick.major.width": 0.6,
            "xtick.major.size": 2.5,
            "ytick.major.size": 2.5,
            "lines.linewidth": 1.2,
            "savefig.dpi": 300,
            "pdf.fonttype": 42,  # TrueType; publishers refuse matplotlib's Type 3 fonts
            "ps.fonttype": 42,
        },
    ),
}


def plot_curve(folder: Path | str, picture: Path | str, title: str = "", against: Against = "steps") -> Path:
    """Plots the learning curve of the run in `folder`; returns the path of the picture.

    Args:
        folder: folder of one run.
        picture: file to write; its ending (.png, .svg, .pdf) selects the format.
        title: title, for example algorithm, environment and seed.
        against: x-axis: environment steps or wall-clock time.

    Raises:
        ConfigurationError: there is nothing to plot, the ending of `picture` is not supported, or matplotlib is missing.
    """
    check_picture_path(Path(picture))
    curve = read_curve(Path(folder))
    if not len(curve.steps) and not len(curve.eval_steps):
        raise ConfigurationError(
            f"folder must have an episode in *.monitor.csv or progress.csv, or evaluations.npz, got {folder} without them. "
            f"Pass the folder of a run in which an episode has ended."
        )
    ends, eval_ends, xlabel = curve.steps, curve.eval_steps, "environment steps"
    if against == "time" and not len(curve.steps):
        raise ConfigurationError(
            f"against must be 'steps' for a run without an episode, whose evaluations have no time, got 'time' for {folder}. Leave "
            f"it out."
        )
    if against == "time":
        hours = len(curve.seconds) > 0 and curve.seconds[-1] > 7200
        unit, xlabel = (3600.0, "wall-clock time [h]") if hours else (60.0, "wall-clock time [min]")
        eval_ends = np.interp(curve.eval_steps, curve.steps, curve.seconds) / unit
        ends = curve.seconds / unit
    with styled(STYLES["screen"]):
        figure = new_figure(8, 4.5)
        axes = figure.add_subplot()
        draw_series(axes, learning_curve(curve, ends, eval_ends))
        axes.set(xlabel=xlabel, ylabel="return of an episode [game score]")
        axes.set_title(title, loc="left")
        axes.legend(loc="best", fontsize="small", frameon=True, edgecolor="none")
        save_figure(figure, Path(picture))
    return Path(picture)


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """Sets matplotlib's settings for making and writing a figure, which do not depend on those of the program.

    Raises:
        ConfigurationError: matplotlib is missing.
    """
    new_figure(1, 1)  # raises the error that names the extra
    from matplotlib.style import context

    common = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": "medium",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "grid.linewidth": 0.5,
        "legend.frameon": False,
    }
    rc: Any = {**common, **style.settings}
    with context(["default", rc]):
        yield


def new_figure(width: float, height: float) -> Figure:
    """Creates an empty figure; width and height in inches.

    Raises:
        ConfigurationError: matplotlib is missing.
    """
    import_extra("matplotlib", "plots", "for plots")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)  # no window and no global state with any backend
    return figure


def new_axes(style: Style, height: float, title: str) -> tuple[Figure, Axes]:
    """Returns a figure and its axes, with the title unless the style has none."""
    figure = new_figure(style.width, height)
    axes = figure.add_subplot()
    if style.titled:
        axes.set_title(title, loc="left")
    return figure, axes


def check_picture_path(picture: Path) -> None:
    """Checks the ending and the folder of a picture to write.

    Raises:
        ConfigurationError: the ending is not supported, the folder does not exist, or matplotlib is missing.
    """
    endings = new_figure(1, 1).canvas.get_supported_filetypes()
    check_output_path(picture, "picture", [f".{ending}" for ending in endings])


def save_figure(figure: Figure, picture: Path) -> None:
    """Writes a figure to a file atomically, in the format of its ending.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    try:
        with atomic_write(picture) as file:
            figure.savefig(file, format=picture.suffix.lower().removeprefix("."))
    except OSError as error:
        raise ConfigurationError(error.strerror or str(error)) from error


def color_of(number: int) -> str:
    """Returns the color of the algorithm with this number."""
    return COLORS[number % len(COLORS)]


def draw_series(axes: Any, series: Iterable[Series], steps: bool = False) -> None:
    """Draws series, from back to front.

    Args:
        axes: axes of matplotlib.
        series: what to draw; the color of a series selects its dashes, too.
        steps: True to draw lines and bands as stairs.
    """
    for each in series:
        color, faint = color_of(each.color), 0.4 if each.faint else 1.0
        label = each.label or None
        if each.kind == "line":
            dashes, stairs = LINES[each.color // len(COLORS) % len(LINES)], "steps-post" if steps else "default"
            width = {"lw": 0.8} if each.faint else {}
            axes.plot(each.x, each.y, dashes, color=color, alpha=faint, drawstyle=stairs, label=label, **width)
        elif each.kind == "band":
            axes.fill_between(each.x, each.y, each.high, step="post" if steps else None, color=color, alpha=0.18, lw=0)
        elif each.kind == "bars":
            axes.vlines(each.x, each.y, each.high, color=color, lw=1.2, alpha=0.75)
        else:
            size, alpha = (2.2, 0.4) if each.kind == "cloud" else (4, faint)
            axes.plot(each.x, each.y, "o", color=color, ms=size, mew=0, alpha=alpha, clip_on=False, label=label)


def draw_curves(figure: Figure, axes: Axes, series: Sequence[Series], percent: bool = False) -> None:
    """Draws curves on axes, over env steps or with `percent` over the share of the training, and labels each line at its end."""
    from matplotlib.ticker import EngFormatter, PercentFormatter

    draw_series(axes, series)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0) if percent else EngFormatter(sep=""))
    lines = [each for each in series if each.label]
    if lines:
        axes.set_xlim(left=0, right=max(each.x[-1] for each in lines))
        _label_ends(figure, axes, lines)


def draw_profiles(style: Style, series: Sequence[Series], xlabel: str, title: str) -> Figure:
    """Draws the fraction of runs above each threshold as stairs, for each label; all lines have the same thresholds."""
    figure, axes = new_axes(style, style.height, title)
    draw_series(axes, series, steps=True)
    lines = [each for each in series if each.kind == "line"]
    thresholds = lines[0].x
    axes.set_xlim(thresholds[0], _last_shown(thresholds, np.mean([each.y for each in lines], axis=0)))
    axes.set_ylim(0, 1.02)
    axes.set(xlabel=f"{xlabel} $\\tau$", ylabel="fraction of runs above $\\tau$")
    _put_legend_above(figure, len(lines))
    return figure


def _put_legend_above(figure: Figure, count: int) -> None:
    """Puts a legend of `count` entries above the axes, in as many columns as fit; the figure grows with its rows."""
    from matplotlib import rcParams

    height, row = figure.get_figheight(), 1.2 * float(rcParams["font.size"]) / 72
    for columns in range(min(count, 4), 0, -1):
        rows = -(-count // columns)
        figure.set_figheight(height + (rows - 1) * row)  # before drawing, which leaves the axes room
        legend = figure.legend(
            loc="outside upper center", ncols=columns, columnspacing=1.2, handlelength=1.6, labelspacing=0.2
        )
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()


def _last_shown(thresholds: Points, fractions: Points) -> float:
    """Returns the right end of the x-axis: that of the thresholds, unless few runs are far above all others."""
    crowd = thresholds[fractions >= FEW]
    end = float(crowd[-1] if len(crowd) else thresholds[-1])
    tail = thresholds[-1] - thresholds[0] > LONG * (end - thresholds[0]) > 0
    return end if tail else float(thresholds[-1])


def draw_estimates(
    style: Style, rows: Mapping[str, Row], numbers: Sequence[int], xlabel: str, title: str, chance: float | None = None
) -> Figure:
    """Draws a row with a point, its interval and its number for each label.

    Args:
        style: size and fonts.
        rows: value and interval by label, from top to bottom.
        numbers: number of each label, which selects its color.
        xlabel: label of the x-axis.
        title: title, unless the style has none.
        chance: value at which to draw a line, for probabilities; the axis is then from 0 to 1.
    """
    figure, axes = new_axes(style, style.row * (len(rows) + 1.6) + (0.3 if style.titled else 0.0), title)
    draw_rows(axes, rows, numbers, ".2f" if chance is not None else "")
    axes.set_xlabel(xlabel)
    if chance is not None:
        axes.set_xlim(0, 1)
        axes.axvline(chance, color="black", lw=0.8, ls="--")
    return figure


def draw_rows(axes: Axes, rows: Mapping[str, Row], numbers: Sequence[int], digits: str = "") -> None:
    """Draws the rows of `draw_estimates` on axes; `digits` is the format of their numbers, by default that of `number_text`."""
    for height, (number, (value, interval)) in enumerate(zip(numbers, rows.values(), strict=True)):
        color = color_of(number)
        if interval is not None:
            axes.plot(interval, [height, height], color=color, lw=6, alpha=0.35, solid_capstyle="butt")
        axes.plot(value, height, "o", color=color, ms=5, clip_on=False)
        text = f"{value:{digits}}" if digits else number_text(value)
        axes.annotate(text, (1.03, height), xycoords=("axes fraction", "data"), va="center", color=color)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)


def number_text(value: float) -> str:
    """Returns three significant digits, or all digits before the point from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def _label_ends(figure: Figure, axes: Axes, lines: Sequence[Series]) -> None:
    """Writes the label of each line to the right of the axes at the height of its value, moved apart where labels would overlap."""
    from matplotlib import rcParams

    figure.draw_without_rendering()  # lays the axes out, so that heights are known
    height = axes.get_window_extent().height / figure.dpi * 72  # points
    ends = axes.transData.transform([(0, each.y[-1]) for each in lines])
    fractions = axes.transAxes.inverted().transform(ends)[:, 1]
    places = spread(fractions * height, 1.15 * float(rcParams["font.size"])) / height
    for each, place in zip(lines, places, strict=True):
        axes.annotate(
            each.label,
            (1.0, place),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=color_of(each.color),
            annotation_clip=False,
        )


def spread(heights: Points, gap: float) -> Points:
    """Returns heights in the same order that are at least `gap` apart and as near to `heights` as groups of neighbors allow.

    Labels that would overlap form a group around the mean of their heights.
    """
    order, steps = np.argsort(heights, kind="stable"), gap * np.arange(len(heights))
    groups: list[list[float]] = []
    for offset in heights[order] - steps:  # equal for labels that touch
        groups.append([float(offset)])
        while len(groups) > 1 and fmean(groups[-1]) < fmean(groups[-2]):
            merged = groups.pop()
            groups[-1] += merged
    result = np.empty(len(heights))
    result[order] = np.repeat([fmean(group) for group in groups], [len(group) for group in groups]) + steps
    return result
