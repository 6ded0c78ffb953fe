"""The command `sb-dqn report`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sb_dqn.cli.options import path_option
from sb_dqn.files import write_text
from sb_dqn.runs.trust import trust_option

if TYPE_CHECKING:
    from sb_dqn.runs.run import Run
    from sb_dqn.runs.score import Score

REPORT = "report.html"


@click.command(short_help="Write an HTML page about a run or a comparison.")
@click.argument("paths", metavar="RUN...", type=click.Path(path_type=Path), nargs=-1, required=True)
@path_option("--out", "-o", metavar="FILE", help="An .html file. Default: report.html in RUN.")
@click.option("--film", is_flag=True, help="Record a greedy episode first, as film.mp4 in the folder of the run.")
@click.option("--best", is_flag=True, help="Film the best model of the evaluations during training.")
@trust_option
def report(paths: tuple[Path, ...], out: Path | None, film: bool, best: bool, trust: bool) -> None:
    """Write one HTML page about RUN, during or after training: curves, film, settings, versions and results.

    RUN is the folder of a run, of a comparison, or one with several runs. The page needs no other file and no network.
    Several runs are compared; of those that differ by the seed only, mean and interval are drawn.

    \b
    sb-dqn report runs/dqn_CartPole-v1_1 --film
    sb-dqn report runs/compare_CartPole-v1
    sb-dqn report runs/dqn_CartPole-v1_1 runs/ppo_CartPole-v1_1 --out report.html
    """
    from sb_dqn.cli.report.page import render
    from sb_dqn.runs.run import common_folder
    from sb_dqn.runs.score import group_runs

    if best and not film:
        raise click.UsageError("--best must be used with --film, got no --film. Add it, or remove --best.")
    runs = _find_runs(paths)
    target = _check_target(out or common_folder(paths) / REPORT)
    for run in runs:
        run.check()
    groups = group_runs(runs)
    chosen = {run.folder for scores in groups.values() for score in scores for run in score.runs}
    for run in runs:
        if run.folder not in chosen:
            click.echo(f"left out: {run.folder}, of the same agent and seed as another run", err=True)
    if film:
        _record([group for same in groups.values() for group in same], best, trust)
    page = render(groups)
    write_text(target, page)
    click.echo(target)


def _find_runs(paths: Iterable[Path]) -> list[Run]:
    """Returns the runs at or below each path, without duplicates."""
    from sb_dqn.runs.folder import CONFIG, MODEL
    from sb_dqn.runs.run import runs_below

    runs: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise click.BadParameter(
                f"must be the folder of a run or of a comparison, got {path}, which is no folder. Train first, or check the path.",
                param_hint="RUN",
            )
        found = runs_below(path)
        if not found:
            reason = f"with {MODEL} but without {CONFIG}" if (path / MODEL).is_file() else f"without a {CONFIG}"
            raise click.BadParameter(
                f"must be the folder of a run or of a comparison, got {path}, a folder {reason}. Pass a folder that "
                f"`sb-dqn train` or `sb-dqn compare` has written.",
                param_hint="RUN",
            )
        runs |= {run.folder.resolve(): run for run in found}
    return list(runs.values())


def _check_target(target: Path) -> Path:
    """Checks that the page can be written without the loss of another file."""
    from sb_dqn.checks import check_output_path
    from sb_dqn.cli.report.page import GENERATOR

    check_output_path(target, "report", [".html", ".htm"])
    mark = f'name="generator" content="{GENERATOR}'
    if target.exists() and (not target.is_file() or mark not in target.read_text("utf-8", errors="replace")[:1000]):
        raise click.BadParameter(
            f"must be a new file or an earlier report, got {target}, another file. Choose another name.",
            param_hint="--out",
        )
    return target


def _record(groups: Sequence[Score], best: bool, trust: bool) -> None:
    """Records a film of the typical run of each group; of several groups, those without a model are named and left out."""
    from sb_dqn.cli.report.film import record_film
    from sb_dqn.cli.report.page import typical_run
    from sb_dqn.runs.folder import BEST, MODEL
    from sb_dqn.runs.run import find_run
    from sb_dqn.runs.trust import ask_before_import

    name = BEST if best else MODEL
    for group in groups:
        saved = [run for run in group.runs if (run.folder / name).is_file()]
        if saved or len(groups) == 1:
            run = typical_run(saved or group.runs)
            ask_before_import(find_run(run.folder, best=best), trust)
            click.echo(record_film(run, best))
        else:
            click.echo(f"no film of {group.label}: it has no {name} yet")
