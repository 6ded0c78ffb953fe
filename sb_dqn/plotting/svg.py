"""Charts of a report as inline SVG, with axis labels in HTML so that they keep their size on a narrow screen.

The drawing area is stretched to the width of the page; strokes and dots keep their width by `vector-effect`. Colors are
classes of the style sheet, which has a light and a dark set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from markupsafe import Markup

from sb_dqn.plotting.curve import Points
from sb_dqn.plotting.series import Series, thinned

SIZE = 1000
"""Width and height of the drawing area in its own units."""
MAX_DOTS = 2500
"""Dots of a cloud; of a larger one, evenly spaced dots are drawn."""
COLORS = 8
LOG_RATIO = 100.0
"""Ratio of the largest to the smallest value from which a positive quantity gets a logarithmic axis."""


UNITS = ((1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""Least size, divisor and sign of each unit."""


@dataclass(frozen=True)
class Tick:
    """Label of an axis and its place in percent of the axis."""

    place: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Drawn chart, for the template of the page."""

    title: str
    note: str
    svg: Markup
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    x_label: str
    wide: bool
    legend: Sequence[tuple[str, str]] = field(default=())
    """CSS class of the swatch and text of each entry."""


@dataclass(frozen=True)
class Axis:
    """Range of an axis, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    def share(self, values: Points) -> Points:
        """Returns the place of each value, 0 at `low` and 1 at `high`."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            logs: Points = (np.log(values) - low) / (high - low)
            return logs
        shares: Points = (values - self.low) / (self.high - self.low)
        return shares

    def ticks(self) -> list[Tick]:
        """Returns about five labels at round numbers."""
        values = _powers(self.low, self.high) if self.log else round_numbers(self.low, self.high, 5)
        places = self.share(np.array(values)) * 100
        texts = [text for value in values for text in same_unit([value])] if self.log else same_unit(values)
        return [Tick(round(float(place), 2), text) for place, text in zip(places, texts, strict=True)]


def draw_chart(
    title: str,
    series: Sequence[Series],
    *,
    note: str = "",
    x_label: str = "env steps",
    x_end: float = 0.0,
    wide: bool = False,
    may_be_log: bool = False,
) -> Chart | None:
    """Draws a chart; returns None if no series has a finite point.

    Args:
        title: heading.
        series: marks, from back to front.
        note: explanation next to the heading.
        x_label: label of the horizontal axis.
        x_end: least upper end of the horizontal axis.
        wide: True for the width of the page, False for one of several in a row.
        may_be_log: True for a logarithmic axis if the values are positive and span two decades.
    """
    shown = [cleaned for each in series if len((cleaned := _finite(each)).x)]
    if not shown:
        return None
    last = max(x_end, *(float(each.x.max()) for each in shown))
    x_axis = Axis(0.0, last if last > 0 else 1.0)
    values = np.concatenate([part for each in shown for part in (each.y, each.high) if part is not None])
    log = may_be_log and values.min() > 0 and values.max() / values.min() > LOG_RATIO
    y_axis = Axis(float(values.min()) / 1.2, float(values.max()) * 1.2, True) if log else _padded(values)
    y_ticks = y_axis.ticks()
    grid = "".join(f"M0 {SIZE * (1 - tick.place / 100):.1f}H{SIZE}" for tick in y_ticks)
    marks = "".join(_draw(each, x_axis, y_axis) for each in shown)
    svg = Markup(  # only numbers and classes of this module; titles are escaped
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="grid" d="{grid}"/>{marks}</svg>'
    )
    scale = "log scale" if log else ""
    notes = "; ".join(part for part in (note, scale) if part)
    legend = [(f"{each.kind} c{each.color % COLORS}", each.label) for each in series if each.label]
    return Chart(title, notes, svg, x_axis.ticks(), y_ticks, x_label, wide, legend)


def round_numbers(low: float, high: float, count: int) -> list[float]:
    """Returns about `count` multiples of 1, 2 or 5 times a power of ten within [low, high]."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def same_unit(values: Sequence[float]) -> list[str]:
    """Returns short texts of numbers, all in the unit of the largest: 5000 and 20000 as "5k" and "20k", 0.00001 as "1e-5"."""
    size = max(map(abs, values))
    divisor, unit = next(((each, sign) for least, each, sign in UNITS if size >= least), (1.0, ""))
    if size >= 1e13 or 0 < size < 1e-3:
        power = math.floor(math.log10(size))
        divisor, unit = 10.0**power, f"e{power}"
    texts = [
        f"{value / divisor:.4g}" + unit * (value != 0) if unit or size < 1000 else f"{value:,.0f}" for value in values
    ]
    return [text.replace("-", "\N{MINUS SIGN}") for text in texts]


def _powers(low: float, high: float) -> list[float]:
    """Returns the powers of ten in a range, every second or third if there are many."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**number for number in range(first, last + 1, max(1, (last - first) // 4))]


def _padded(values: Points) -> Axis:
    """Returns a linear axis around the values, which begins at 0 if they do not go far from it."""
    low, high = float(values.min()), float(values.max())
    if 0 < low < (high - low) or low == high > 0:
        low = 0.0
    margin = 0.06 * (high - low) or abs(high) or 1.0
    return Axis(low - margin if low else 0.0, high + margin)


def _finite(series: Series) -> Series:
    """Returns a series without NaN and infinity, and thinned to the size of the drawing."""
    valid = np.isfinite(series.x) & np.isfinite(series.y)
    if series.high is not None:
        valid &= np.isfinite(series.high)
    x, y = series.x[valid], series.y[valid]
    high = None if series.high is None else series.high[valid]
    if series.kind == "cloud" and len(x) > MAX_DOTS:
        chosen = np.linspace(0, len(x) - 1, MAX_DOTS).astype(np.int64)
        x, y = x[chosen], y[chosen]
    elif series.kind == "line":
        x, y = thinned(x, y)
    return replace(series, x=x, y=y, high=high)


def _draw(series: Series, x_axis: Axis, y_axis: Axis) -> str:
    """Returns the SVG elements of a series."""
    x = x_axis.share(series.x) * SIZE
    y = (1 - y_axis.share(series.y)) * SIZE
    style = f"{series.kind} c{series.color % COLORS}{' faint' if series.faint else ''}"
    if series.kind == "line":
        if len(x) == 1:
            return f'<path class="marks c{series.color % COLORS}" d="{_dot(x[0], y[0])}"/>'
        return f'<path class="{style}" d="M{_path(x, y)}"/>'
    if series.kind == "cloud":
        return f'<path class="{style}" d="{"".join(map(_dot, x, y))}"/>'
    if series.kind == "marks":
        titles = [*series.titles, *[""] * (len(x) - len(series.titles))]
        return "".join(
            f'<path class="{style}" d="{_dot(each_x, each_y)}"><title>{Markup.escape(title)}</title></path>'
            for each_x, each_y, title in zip(x, y, titles, strict=False)
        )
    assert series.high is not None
    top = (1 - y_axis.share(series.high)) * SIZE
    if series.kind == "bars":
        bars = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in zip(x, y, top, strict=True))
        return f'<path class="{style}" d="{bars}"/>'
    return f'<path class="{style}" d="M{_path(x, top)}L{_path(x[::-1], y[::-1])}Z"/>'


def _path(x: Points, y: Points) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _dot(x: float, y: float) -> str:
    """Returns a line without length, which its round ends draw as a dot at any stretching."""
    return f"M{x:.1f} {y:.1f}h.01"
