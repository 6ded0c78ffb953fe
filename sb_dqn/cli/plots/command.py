"""The command `sb-dqn plot`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import path_option

if TYPE_CHECKING:
    from sb_dqn.cli.plots.watch import Drawn

KINDS = ("curves", "iqm", "profile", "improvement")
SINGLE_RUN_FILES = ("config.yaml", "progress.csv", "evaluations.npz")
"""Files of a run; `*monitor.csv` is another one."""


@click.command(short_help="Draw the learning curve of a run, or an aggregate plot of many.")
@click.argument("targets", metavar="RUN | [NAME=]FOLDER...", nargs=-1, required=True)
@path_option(
    "--output",
    "-o",
    metavar="FILE",
    help="A .png, .svg or .pdf file. Default: curve.png in RUN, plot_KIND.png in FOLDER.",
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="curves: interquartile mean of the evaluations over env steps. iqm: of the final scores. profile: fraction of runs "
    "above each score. improvement: probability to score higher than the baseline. Default: curves.",
)
@click.option(
    "--normalize",
    metavar="HOW",
    help="human (Atari), minmax, none, or a YAML file with lines `ENV: [low, high]`. Default: human if all environments are "
    "Atari games, else minmax; none for one environment.",
)
@click.option("--baseline", metavar="NAME", help="Algorithm to compare with in --kind improvement. Default: the first.")
@click.option(
    "--style",
    type=click.Choice(["screen", "paper"]),
    help="paper: one column wide, serif font, .pdf by default. Default: screen.",
)
@click.option(
    "--watch",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value="10",
    metavar="[SECONDS]",
    help="Draw again every SECONDS until the runs end or Ctrl-C. Default: 10, if it is the last word.",
)
@click.option(
    "--against", type=click.Choice(["steps", "time"]), default="steps", show_default=True, help="x-axis for one RUN."
)
def plot(targets: tuple[str, ...], output: Path | None, against: Any, watch: float | None, **options: Any) -> None:
    """Draw the episodes of RUN, their running mean and the evaluations, during or after training.

    With several runs, or the folder of a comparison, draw an aggregate plot over algorithms, environments and seeds. The
    runs of an algorithm are labeled with its name, those of NAME=FOLDER with NAME.

    \b
    sb-dqn plot runs/dqn_CartPole-v1_1
    sb-dqn plot runs/dqn_CartPole-v1_1 --watch
    sb-dqn plot runs/compare_CartPole-v1 runs/compare_Acrobot-v1 --kind iqm
    sb-dqn plot "slow=runs/a" "fast=runs/b" --style paper --output curves.pdf
    """
    from sb_dqn.cli.plots.runs import parse_target
    from sb_dqn.cli.plots.watch import watch as draw_repeatedly

    parsed = [parse_target(text) for text in targets]
    single = len(parsed) == 1 and parsed[0][0] is None and _is_run(parsed[0][1]) and not any(options.values())
    if single:
        draw = _run_plot(parsed[0][1], output, against)
    else:
        draw = _aggregate_plot(parsed, output, against, **options)
    drawn = draw() if watch is None else draw_repeatedly(draw, [folder for _, folder in parsed], watch)
    for note in drawn.notes:
        click.echo(f"Note: {note}", err=True)
    click.echo("\n".join([*drawn.lines, str(drawn.picture)]))


def _is_run(folder: Path) -> bool:
    """Returns True for the folder of one run, also of a run that has written nothing yet."""
    from sb_dqn.runs.comparison import COMPARISON

    if (folder / COMPARISON).is_file():
        return False
    if any((folder / name).is_file() for name in SINGLE_RUN_FILES) or any(folder.glob("*monitor.csv")):
        return True
    return next(folder.rglob("config.yaml"), None) is None


def _run_plot(folder: Path, output: Path | None, against: Any) -> Callable[[], Drawn]:
    """Returns a function that draws the learning curve of a run."""
    from sb_dqn.cli.plots.watch import Drawn
    from sb_dqn.plotting.picture import check_picture_path, plot_curve
    from sb_dqn.runs.folder import CURVE, read_config
    from sb_dqn.runs.training import title_of

    picture = output or folder / CURVE
    check_picture_path(picture)
    return lambda: Drawn(plot_curve(folder, picture, title_of(read_config(folder)), against))


def _aggregate_plot(
    targets: Sequence[tuple[str | None, Path]],
    output: Path | None,
    against: str,
    kind: str | None,
    normalize: str | None,
    baseline: str | None,
    style: str | None,
) -> Callable[[], Drawn]:
    """Returns a function that draws an aggregate plot of the runs that it finds."""
    from sb_dqn.cli.plots.kinds import Request, draw
    from sb_dqn.cli.plots.normalization import check_choice
    from sb_dqn.cli.plots.runs import find_runs
    from sb_dqn.cli.plots.watch import Drawn
    from sb_dqn.plotting.picture import STYLES, check_picture_path, save_figure, styled
    from sb_dqn.runs.run import common_folder

    request = Request(kind or "curves", STYLES[style or "screen"], normalize, baseline)
    if against != "steps":
        raise click.UsageError("--against time must be used with one RUN, got several runs or --kind. Remove it.")
    if baseline is not None and request.kind != "improvement":
        raise click.UsageError("--baseline must be used with --kind improvement, got another kind. Add it.")
    if normalize is not None and request.kind == "improvement":
        raise click.UsageError(
            "--normalize must be used with another kind, got --kind improvement, which does not depend on the scale. Remove it."
        )
    check_choice(normalize)
    picture = output or common_folder([folder for _, folder in targets]) / f"plot_{request.kind}{request.style.ending}"
    check_picture_path(picture)

    def draw_once() -> Drawn:
        with styled(request.style):
            figure, lines, notes = draw(find_runs(targets), request)
            save_figure(figure, picture)
        return Drawn(picture, lines, notes)

    return draw_once
