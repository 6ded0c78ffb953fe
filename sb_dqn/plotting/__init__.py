"""Figures: what is drawn as `Series`, and two ways to draw it: with matplotlib into a file, and as SVG into a page."""

from sb_dqn.plotting.curve import Curve, Points, read_curve, read_evaluations, read_log
from sb_dqn.plotting.picture import new_figure, plot_curve

__all__ = ["Curve", "Points", "new_figure", "plot_curve", "read_curve", "read_evaluations", "read_log"]
