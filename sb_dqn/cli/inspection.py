"""The commands `sb-dqn presets` and `sb-dqn info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sb_dqn.cli.options import run_argument

if TYPE_CHECKING:
    from sb_dqn.presets import Preset


@click.command(short_help="List the presets (tuned settings).")
@click.argument("algo", metavar="[ALGO", required=False)
@click.argument("trained", metavar="[ENV]]", required=False)
@click.option("--env", "env_id", metavar="ID", help="Only presets for this environment.")
@click.option("--name", metavar="NAME", help="Show the settings of this preset, for example tmaze-50.")
def presets(algo: str | None, trained: str | None, env_id: str | None, name: str | None) -> None:
    """List the presets of ALGO, or of all algorithms, with the source of their values.

    With ENV, show the settings that `sb-dqn train ALGO ENV` uses.
    """
    from sb_dqn.errors import ConfigurationError, nearest
    from sb_dqn.presets import find_preset, list_presets
    from sb_dqn.runs.settings_syntax import canonical

    if trained is not None and env_id is not None:
        raise click.UsageError(f"--env must be used without ENV, got {env_id} and {trained}. Remove one of them.")
    if algo is not None and trained is not None:
        preset = find_preset(canonical(algo), trained, name)
        if preset is None:
            raise ConfigurationError(
                f"ENV must be an environment with a preset of {algo}, got {trained}: there `sb-dqn train` uses the defaults of "
                f"the class. List the presets with sb-dqn presets {algo}."
            )
        print_yaml(_settings_of(preset))
        return
    listed = list_presets(canonical(algo) if algo else None, env_id)
    if env_id is not None and not listed:
        raise ConfigurationError(f"--env must be an environment with a preset, got {env_id}. List all without --env.")
    if name is None:
        rows = [(preset.algorithm, preset.name, f"{preset.n_timesteps:,}") for preset in listed]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for (algorithm, entry, steps), preset in zip(rows, listed, strict=True):
            measured = f"; {preset.result}" if preset.result else ""
            columns = f"{algorithm:{widths[0]}}  {entry:{widths[1]}}  {steps:>{widths[2]}} steps"
            click.echo(f"{columns}  {preset.source}{measured}")
        return
    chosen = [preset for preset in listed if preset.name == name]
    if not chosen:
        names = sorted({preset.name for preset in listed})
        raise ConfigurationError(
            f"--name must be one of {', '.join(names)}, got {name!r}. Use one of them.{nearest(name, names)}"
        )
    for preset in chosen:
        print_yaml(_settings_of(preset))


def _settings_of(preset: Preset) -> dict[str, Any]:
    return {key: value for key, value in vars(preset).items() if value or key == "name"}


@click.command(short_help="Show class, preset, settings and counters of a saved model.")
@run_argument
def info(run: Path) -> None:
    """Show class, preset, settings, counters and members of RUN (the folder of a run, or a zip) without loading the model."""
    from sb_dqn.checkpoint import model_info
    from sb_dqn.runs.run import find_run

    manifest = model_info(find_run(run).model)
    members = {name: f"{entry['length']:,} bytes" for name, entry in manifest["members"].items()}
    counters = manifest.get("state", {}).get("counters") if manifest.get("kind") == "model" else None
    keys = ("kind", "class", "sb_dqn_version", "format_version", "preset_env", "arguments", "spaces")
    content = {**{key: manifest.get(key) for key in keys}, "counters": counters, "members": members}
    print_yaml({key: value for key, value in content.items() if value is not None})


def print_yaml(content: dict[str, Any]) -> None:
    """Prints plain data as YAML."""
    import yaml

    click.echo(yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=100).rstrip())
