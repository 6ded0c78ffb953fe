"""Names of the files of a repository, and checks of those that others wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from sb_dqn.errors import CheckpointError, ConfigurationError, nearest

CONFIG = "config.yaml"
RESULT = "result.yaml"
MODEL = "model.zip"
BEST = "best_model.zip"
CURVE = "curve.png"
CARD = "README.md"
LIBRARY = "library_name: sb_dqn"
"""Line in the metadata of every card that `push` writes."""
FILM = "replay.mp4"
WEIGHTS = "policy.safetensors"
"""The member of the model file with the parameters of the policy, byte for byte, for tools that read safetensors."""
LOGS = ("progress.csv", "monitor.csv", "evaluations.npz")
FILES = (CARD, MODEL, BEST, WEIGHTS, CONFIG, RESULT, CURVE, FILM, *LOGS)
"""Files that are pushed and pulled. None of them is run or unpickled by a command of this package."""
MAX_SIZE = 2**30
"""Bytes of all files of a pull, unless it says otherwise."""
MAX_SETTINGS = 2**18
"""Bytes of settings that are read."""
NOT_MODELS = ("train_eval_metrics.zip",)
"""Zips in repositories of RL Zoo that are no models."""


def check_names(names: Iterable[str], repo: str) -> None:
    """Checks that the files of a repository lie inside it.

    Raises:
        CheckpointError: one does not; the message names it.
    """
    for name in names:
        for path in (PurePosixPath(name), PureWindowsPath(name)):
            outside = path.is_absolute() or path.drive or ".." in path.parts or not path.parts
            if outside or not name.isprintable():
                raise CheckpointError(
                    f"files of {repo} must lie inside its folder, got {name!r}. The repository is damaged or hostile; nothing was "
                    f"downloaded. Use another one."
                )


def inside(folder: Path, name: str) -> Path:
    """Returns the path of a file of a folder, with links resolved.

    Raises:
        CheckpointError: a link leads out of the folder.
    """
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise CheckpointError(
            f"{folder / name} must lie inside its folder, got a link to {path}. Put the file itself there, or remove the link."
        )
    return path


def check_size(size: int, repo: str, max_size: int) -> None:
    """Checks the size of all files of a pull.

    Raises:
        ConfigurationError: it is larger than `max_size`.
    """
    if size > max_size:
        raise ConfigurationError(
            f"the files of {repo} must have at most {max_size:,} bytes, got {size:,}. Raise the limit (--max-size, max_size=)."
        )


def model_among(names: list[str], repo: str, filename: str | None = None) -> str:
    """Returns the name of the model file of a repository.

    Args:
        names: all of its files.
        repo: name for messages.
        filename: file that the user selects; None: `model.zip`, or the only other zip.

    Raises:
        ConfigurationError: there is no such file, or there are several.
    """
    if filename is not None:
        if filename not in names:
            raise ConfigurationError(
                f"filename must be a file of {repo}, got {filename!r}. It has {', '.join(sorted(names)) or 'no files'}."
                f"{nearest(filename, names)}"
            )
        return filename
    if MODEL in names:
        return MODEL
    zips = sorted(name for name in names if name.endswith(".zip") and "/" not in name and name not in NOT_MODELS)
    if len(zips) == 1:
        return zips[0]
    if not zips:
        raise ConfigurationError(
            f"{repo} must have a {MODEL} or another zip with a model, got {', '.join(sorted(names)) or 'no files'}. Name a "
            f"repository with a model of sb_dqn or Stable-Baselines3."
        )
    raise ConfigurationError(
        f"{repo} must have a {MODEL} or only one other zip, got {', '.join(zips)}. Name one of them (--file, filename=)."
    )


def check_plain(path: Path) -> None:
    """Checks that a YAML file is small, and names no part of it twice: written out, such names can grow without limit.

    Raises:
        ValueError: it is not.
    """
    import yaml

    if not path.is_file():
        return
    if path.stat().st_size > MAX_SETTINGS:
        raise ValueError(f"it has more than {MAX_SETTINGS} bytes")
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(path.read_text(encoding="utf-8"))):
        raise ValueError("it has an alias")
