"""`sb-dqn presets`, `sb-dqn info` and `sb-dqn plot`: look at what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command(short_help="List the tuned settings.")
@click.argument("algo", metavar="[ALGO]", required=False)
@click.option("--name", metavar="NAME", help="Show the settings of this entry, e.g. CartPole-v1.")
def presets(algo: str | None, name: str | None) -> None:
    """List the presets, of every algorithm or of ALGO, with where their numbers come from."""
    from sb_dqn.cli.train.settings_syntax import canonical
    from sb_dqn.errors import ConfigurationError, nearest
    from sb_dqn.presets import list_presets

    listed = list_presets(canonical(algo) if algo else None)
    if name is None:
        rows = [(preset.algorithm, preset.name, f"{preset.n_timesteps:,}") for preset in listed]
        wide, wider, widest = (max(map(len, column)) for column in zip(*rows, strict=True))
        for (of, entry, count), preset in zip(rows, listed, strict=True):
            measured = f"; {preset.result}" if preset.result else ""
            click.echo(f"{of:{wide}}  {entry:{wider}}  {count:>{widest}} steps  {preset.source}{measured}")
        return
    chosen = [preset for preset in listed if preset.name == name]
    if not chosen:
        names = sorted({preset.name for preset in listed})
        raise ConfigurationError(f"no preset {name!r}; there are: {', '.join(names)}.{nearest(name, names)}")
    for preset in chosen:
        show({name: value for name, value in vars(preset).items() if value or name == "name"})


@click.command(short_help="What a saved model says of itself.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
def info(run: Path) -> None:
    """Show class, settings, counters and members of a zip (or of the model in a run's folder) without loading it."""
    from sb_dqn.checkpoint import model_info
    from sb_dqn.cli.train.folder import find_run

    manifest = model_info(find_run(run).model)
    members = {name: f"{entry['length']:,} bytes" for name, entry in manifest["members"].items()}
    counters = manifest.get("state", {}).get("counters") if manifest.get("kind") == "model" else None
    shown = {
        key: manifest.get(key) for key in ("kind", "class", "sb_dqn_version", "format_version", "arguments", "spaces")
    }
    show(
        {key: value for key, value in {**shown, "counters": counters, "members": members}.items() if value is not None}
    )


@click.command(short_help="Draw the learning curve of a run.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help=".png, .svg or .pdf. Default: curve.png in the folder."
)
@click.option("--against", type=click.Choice(["steps", "time"]), default="steps", show_default=True)
def plot(run: Path, output: Path | None, against: Any) -> None:
    """Draw every episode of RUN, their running mean and the evaluations, while it trains or afterwards."""
    from sb_dqn.cli.compare.folder import COMPARISON
    from sb_dqn.cli.train.folder import CURVE, read_config
    from sb_dqn.cli.train.training import title_of
    from sb_dqn.plotting import plot_curve

    if (run / COMPARISON).is_file():
        raise click.UsageError(
            f"{run} is the folder of a comparison; draw it with `sb-dqn compare {run}`, or name the folder of one of its runs"
        )
    click.echo(plot_curve(run, output or run / CURVE, title_of(read_config(run)), against))


def show(content: dict[str, Any]) -> None:
    """Print plain data as YAML."""
    import yaml

    click.echo(yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100).rstrip())
