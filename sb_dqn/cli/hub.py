"""The commands `sb-dqn push` and `sb-dqn pull`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from sb_dqn.cli.options import number_option, path_option, run_argument

SHOWN = 10
"""Number of files that are named although they were not downloaded."""


@click.command(short_help="Upload a model to the Hugging Face hub, or to a folder.")
@run_argument
@click.argument("repo", metavar="REPO")
@click.option(
    "--env", "env_id", metavar="ID", help="Environment of result and film. Default: the training environment."
)
@number_option(
    "--episodes",
    "n_eval_episodes",
    least=0,
    metavar="N",
    help="Greedy episodes to play for the result; 0 for none. Default: the result of the run, or else 20.",
)
@click.option("--video/--no-video", default=True, show_default=True, help="Record a film of an episode.")
@click.option("--message", "commit_message", metavar="TEXT", help="Message of the commit.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--overwrite", is_flag=True, help="Replace the files of an earlier push.")
def push(run: Path, repo: str, **options: Any) -> None:
    """Upload the model in RUN (the folder of a run, or a zip) with a model card, settings, results, curve and film.

    REPO is USER/NAME on the Hugging Face hub, which is made if it does not exist, or a folder that begins with ./ or /. The
    hub needs the extra `hub` and a token: hf auth login, or the environment variable HF_TOKEN.

    \b
    sb-dqn push runs/dqn_CartPole-v1_1 USER/dqn-CartPole-v1
    sb-dqn push runs/dqn_CartPole-v1_1 ./shared/dqn-CartPole-v1
    """
    from sb_dqn.hub import push_to_hub

    _quiet_unless_terminal()
    pushed = push_to_hub(run, repo, **options)
    for note in pushed.notes:
        click.echo(note)
    click.echo(f"pushed {', '.join(pushed.files)}\n{pushed.url}")


@click.command(short_help="Download a model from the Hugging Face hub, or from a folder.")
@click.argument("repo", metavar="REPO")
@path_option("--out", "--folder", "out", metavar="FOLDER", help="New folder. Default: runs/NAME.")
@click.option("--file", "filename", metavar="NAME", help="Model file in REPO. Default: model.zip, or its only zip.")
@click.option("--revision", metavar="REV", help="Branch, tag or commit. Default: the newest.")
@number_option(
    "--max-size", default=1024, metavar="MB", help="Largest size of all files together, in units of 2^20 bytes."
)
def pull(repo: str, out: Path | None, filename: str | None, revision: str | None, max_size: int) -> None:
    """Download the model in REPO as the folder of a run. No code in it is run, and nothing is unpickled.

    REPO is USER/NAME on the Hugging Face hub (also a repository of Stable-Baselines3), or a folder that begins with ./ or /.

    \b
    sb-dqn pull USER/dqn-CartPole-v1
    sb-dqn pull ./shared/dqn-CartPole-v1 --out runs/theirs
    """
    from sb_dqn.hub import pull_from_hub
    from sb_dqn.runs.folder import CONFIG
    from sb_dqn.runs.training import program_name

    _quiet_unless_terminal()
    pulled = pull_from_hub(repo, out, filename=filename, revision=revision, max_size=max_size << 20)
    for note in pulled.notes:
        click.echo(note)
    if pulled.left_out:
        more = f" and {len(pulled.left_out) - SHOWN} more" if len(pulled.left_out) > SHOWN else ""
        click.echo(f"not downloaded: {', '.join(pulled.left_out[:SHOWN])}{more}")
    click.echo(f"{pulled.algorithm} on {pulled.env_id or 'an environment that is not named'}: {pulled.folder}\n\nnext")
    env = "" if (pulled.folder / CONFIG).is_file() else f" --env {pulled.env_id or 'ID'}"
    for command in ("enjoy", "evaluate"):
        click.echo(f"  {program_name()} {command} {pulled.folder}{env}")


def _quiet_unless_terminal() -> None:
    """Turns off the progress bars of huggingface_hub, which is imported later, where they would fill a log."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
