"""Figures of aggregate statistics: curves with direct labels, intervals, profiles; for a screen or for a column of a paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from sb_dqn.plotting import new_figure
from sb_dqn.runs.statistics import Band, Estimate, Points

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
    settings: Mapping[str, Any]
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


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """Sets matplotlib's settings for making and writing a figure.

    Raises:
        ConfigurationError: matplotlib is missing.
    """
    new_figure(1, 1)  # raises the error that names the extra
    from matplotlib import rc_context

    common = {"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": "medium", "legend.frameon": False}
    rc: Any = {**common, **style.settings}
    with rc_context(rc):
        yield


def line_style(number: int) -> dict[str, str]:
    """Returns color and dashes of the algorithm with this number."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": LINES[number // len(COLORS) % len(LINES)]}


def draw_curves(
    style: Style, curves: Mapping[str, tuple[Points, Band]], xlabel: str, ylabel: str, title: str, percent: bool
) -> Any:
    """Draws a curve with its band for each label, and the label at its end.

    Args:
        style: size and fonts.
        curves: positions on the x-axis `[T]` and values, by label.
        xlabel: label of the x-axis.
        ylabel: label of the y-axis.
        title: title, unless the style has none.
        percent: positions are fractions of the training; else env steps.
    """
    from matplotlib.ticker import EngFormatter, PercentFormatter

    figure, axes = _axes(style, style.height, title)
    for number, (positions, band) in enumerate(curves.values()):
        _draw_band(axes, positions, band, number)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0) if percent else EngFormatter(sep=""))
    axes.set_xlim(left=0, right=max(positions[-1] for positions, _ in curves.values()))
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25, lw=0.5)
    _label_ends(figure, axes, [(label, float(band.value[-1])) for label, (_, band) in curves.items()])
    return figure


def draw_profiles(style: Style, thresholds: Points, profiles: Mapping[str, Band], xlabel: str, title: str) -> Any:
    """Draws the fraction of runs above each threshold as steps, for each label."""
    figure, axes = _axes(style, style.height, title)
    for number, (label, band) in enumerate(profiles.items()):
        _draw_band(axes, thresholds, band, number, label, steps="post")
    axes.set_xlim(thresholds[0], _last_shown(thresholds, profiles))
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(f"{xlabel} $\\tau$")
    axes.set_ylabel("fraction of runs above $\\tau$")
    axes.grid(alpha=0.25, lw=0.5)
    _put_legend_above(figure, len(profiles))
    return figure


def _put_legend_above(figure: Any, count: int) -> None:
    """Puts a legend of `count` entries above the axes, in as many columns as fit; the figure grows with its rows."""
    from matplotlib import rcParams

    for columns in range(min(count, 4), 0, -1):
        legend = figure.legend(
            loc="outside upper center", ncols=columns, columnspacing=1.2, handlelength=1.6, labelspacing=0.2
        )
        figure.draw_without_rendering()
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            break
        legend.remove()
    rows = -(-count // columns)
    figure.set_figheight(figure.get_figheight() + (rows - 1) * 1.2 * float(rcParams["font.size"]) / 72)


def _last_shown(thresholds: Points, profiles: Mapping[str, Band]) -> float:
    """Returns the right end of the x-axis: that of the thresholds, unless few runs are far above all others."""
    crowd = thresholds[np.mean([band.value for band in profiles.values()], axis=0) >= FEW]
    end = float(crowd[-1] if len(crowd) else thresholds[-1])
    tail = thresholds[-1] - thresholds[0] > LONG * (end - thresholds[0]) > 0
    return end if tail else float(thresholds[-1])


def draw_estimates(
    style: Style,
    estimates: Mapping[str, Estimate],
    numbers: Sequence[int],
    xlabel: str,
    title: str,
    chance: float | None = None,
) -> Any:
    """Draws a row with a point, its interval and its number for each label.

    Args:
        style: size and fonts.
        estimates: values by label, from top to bottom.
        numbers: number of each label, which selects its color.
        xlabel: label of the x-axis.
        title: title, unless the style has none.
        chance: value at which to draw a line, for probabilities; the axis is then from 0 to 1.
    """
    figure, axes = _axes(style, style.row * (len(estimates) + 1.6) + (0.3 if style.titled else 0.0), title)
    for row, (number, estimate) in enumerate(zip(numbers, estimates.values(), strict=True)):
        color = COLORS[number % len(COLORS)]
        if estimate.interval is not None:
            axes.plot(estimate.interval, [row, row], color=color, lw=6, alpha=0.35, solid_capstyle="butt")
        axes.plot(estimate.value, row, "o", color=color, ms=5, clip_on=False)
        text = number_text(estimate.value) if chance is None else f"{estimate.value:.2f}"
        axes.annotate(text, (1.03, row), xycoords=("axes fraction", "data"), va="center", color=color)
    axes.set_yticks(range(len(estimates)), list(estimates))
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(xlabel)
    axes.grid(axis="x", alpha=0.25, lw=0.5)
    if chance is not None:
        axes.set_xlim(0, 1)
        axes.axvline(chance, color="black", lw=0.8, ls="--")
    return figure


def number_text(value: float) -> str:
    """Returns three significant digits, or all digits before the point from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _axes(style: Style, height: float, title: str) -> tuple[Any, Any]:
    figure = new_figure(style.width, height)
    axes = figure.add_subplot()
    if style.titled:
        axes.set_title(title, loc="left")
    return figure, axes


def _draw_band(
    axes: Any, positions: Points, band: Band, number: int, label: str | None = None, steps: str | None = None
) -> None:
    looks = line_style(number)
    axes.plot(positions, band.value, label=label, drawstyle=f"steps-{steps}" if steps else "default", **looks)
    if band.low is not None and band.high is not None:
        axes.fill_between(positions, band.low, band.high, step=steps, color=looks["color"], alpha=0.18, lw=0)


def _label_ends(figure: Any, axes: Any, ends: Sequence[tuple[str, float]]) -> None:
    """Writes each label to the right of the axes at the height of its value, moved apart where labels would overlap."""
    from matplotlib import rcParams

    figure.draw_without_rendering()  # lays the axes out, so that heights are known
    height = axes.get_window_extent().height / figure.dpi * 72  # points
    fractions = np.array([axes.transAxes.inverted().transform(axes.transData.transform((0, y)))[1] for _, y in ends])
    places = spread(fractions * height, 1.15 * float(rcParams["font.size"])) / height
    for number, ((label, _), place) in enumerate(zip(ends, places, strict=True)):
        axes.annotate(
            label,
            (1.0, place),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=COLORS[number % len(COLORS)],
            annotation_clip=False,
        )


def spread(heights: Points, gap: float) -> Points:
    """Returns heights in the same order that are at least `gap` apart and as near to `heights` as groups of neighbors allow.

    Labels that would overlap form a group around the mean of their heights.
    """
    order = np.argsort(heights, kind="stable")
    groups: list[list[float]] = []
    for height in heights[order]:
        groups.append([float(height)])
        while len(groups) > 1 and _bottom(groups[-1], gap) < _top(groups[-2], gap) + gap:
            merged = groups.pop()
            groups[-1] += merged
    placed = np.concatenate([_bottom(group, gap) + gap * np.arange(len(group)) for group in groups])
    result = np.empty(len(heights))
    result[order] = placed
    return result


def _bottom(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2


def _top(group: Sequence[float], gap: float) -> float:
    return sum(group) / len(group) + gap * (len(group) - 1) / 2
