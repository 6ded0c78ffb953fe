"""The command `sb-dqn export`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Write the greedy policy as an ONNX file.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), metavar="FILE", help="Default: the model's name with .onnx."
)
@click.option("--best", is_flag=True, help="Use the best model of the evaluations during training.")
def export(run: Path, out: Path | None, best: bool) -> None:
    """Write the greedy policy of the model in RUN (the folder of a run, or a zip) as an ONNX file, and check it."""
    from sb_dqn.core.onnx_export import export_onnx
    from sb_dqn.runs.run import find_run, load_model

    saved_run = find_run(run, best=best)
    target = out or saved_run.model.with_suffix(".onnx")
    model = load_model(saved_run, "cpu")
    try:
        exported = export_onnx(model, target)
    except OSError as error:
        raise click.BadParameter(
            f"must be a file that can be written, got {target} ({error.strerror}). Choose another one.",
            param_hint="--out",
        ) from error
    click.echo(f"{exported.path}: {', '.join(exported.inputs)} -> {', '.join(exported.outputs)}")
    if exported.difference is None:
        click.echo('not compared with predict: onnxruntime is not installed. Run pip install "sb_dqn[onnx]".')
    else:
        click.echo(f"the same actions as predict, largest difference of a number {exported.difference:.1e}")
