"""Names of the files of a repository, and checks of models and settings that others wrote."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from sb_dqn.checkpoint import model_info, read_archive
from sb_dqn.checkpoint.format.sb3_zip import is_sb3_zip, read_sb3_zip
from sb_dqn.core.sb3_model_file import algorithm_of
from sb_dqn.errors import CheckpointError, ConfigurationError, nearest
from sb_dqn.runs.folder import BEST, CONFIG, CURVE, MODEL, RESULT, read_config, read_result

CARD = "README.md"
FILM = "replay.mp4"
WEIGHTS = "policy.safetensors"
"""The member of the model file with the parameters of the policy, byte for byte, for tools that read safetensors."""
LOGS = ("progress.csv", "monitor.csv", "evaluations.npz")
FILES = (CARD, MODEL, BEST, WEIGHTS, CONFIG, RESULT, CURVE, FILM, *LOGS)
"""Files that are pushed and pulled. None of them is run or unpickled by a command of this package."""
FOREIGN_FILES = (CARD, FILM)
"""Files that are pulled with a model file of another name."""
ENV_ID = re.compile(r"[\w:./-]{1,200}", re.ASCII)
"""Ids of environments; what a command prints can be pasted into a shell."""
MAX_SIZE = 2**30
"""Bytes of all files of a pull, unless it says otherwise."""
MAX_SETTINGS = 2**18
"""Bytes of settings that are read."""
CONFIG_TYPES: dict[str, type] = {
    "algorithm": str, "env_id": str, "env_kwargs": Mapping, "n_envs": int, "n_timesteps": int, "settings": Mapping,
}  # fmt: skip
WRITTEN_BY_TRAINING = ("buffer_path", "tensorboard_log")
"""Settings with a path, to which the next training writes."""
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


def check_links(folder: Path, besides: str = "") -> None:
    """Checks that the files that a push reads lie inside the folder of the run, except one that the user named.

    Raises:
        CheckpointError: one is a link that leads out of it.
    """
    for path in folder.iterdir():
        read = path.name in FILES or path.name.endswith("monitor.csv")
        if path.is_symlink() and read and path.name != besides:
            inside(folder, path.name)


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


def cluster_of(arguments: Mapping[str, Any]) -> str | None:
    """Returns the address of a Ray cluster to which a training with these settings would connect, or None."""
    actors = arguments.get("actors")
    if isinstance(actors, Mapping):
        fields = actors.get("fields", actors)
        address = fields.get("address") if isinstance(fields, Mapping) else None
    else:
        address = str(actors or "").partition("@")[2]
    return None if address in (None, "", "auto") else str(address)


def check_cluster(arguments: Mapping[str, Any], label: str) -> None:
    """Checks that a training with these settings connects to no Ray cluster of others, which could run code here.

    Raises:
        CheckpointError: it does.
    """
    if (address := cluster_of(arguments)) is not None:
        raise CheckpointError(
            f"{label} must name no Ray cluster, got actors at {address!r}, to which a further training would connect. Save the model "
            f"again without: DQN.load(path, actors=None).save(path)."
        )


def check_own_model(path: Path) -> dict[str, Any]:
    """Reads a model file of this library completely and returns its manifest.

    Raises:
        CheckpointError: it is damaged, or holds no model.
        ConfigurationError: it is a full checkpoint, or a model of Stable-Baselines3.
    """
    if is_sb3_zip(path):
        raise ConfigurationError(
            f"the model must be a file of sb_dqn, got {path}, which Stable-Baselines3 wrote. Load it with sb_dqn and save it, or "
            f"push it with huggingface_sb3."
        )
    manifest = _model_manifest(path)
    if "full" in manifest:
        raise ConfigurationError(
            f"the model must be a file without a replay buffer, got {path}, a full checkpoint. Push the {MODEL} of the run, or "
            f"load it and save it with model.save(path)."
        )
    read_archive(path)  # compares the digests of all members
    check_cluster(manifest["arguments"], str(path))
    return manifest


def check_received_model(path: Path) -> tuple[str, dict[str, Any]]:
    """Reads a model file that others wrote completely; returns its class and arguments. Nothing is unpickled.

    Raises:
        CheckpointError: it is damaged, or `load` reads no such model.
    """
    if is_sb3_zip(path):
        return algorithm_of(read_sb3_zip(path)), {}
    manifest = _model_manifest(path)
    read_archive(path)
    check_cluster(manifest["arguments"], str(path))
    return str(manifest["class"]), manifest["arguments"]


def check_received_settings(folder: Path, repo: str) -> dict[str, Any]:
    """Reads `config.yaml` and `result.yaml` as plain data; returns the former, empty without a file.

    Raises:
        CheckpointError: one of them has another content.
    """
    name = CONFIG
    try:
        for name in (CONFIG, RESULT):
            _check_plain(folder / name)
        name = CONFIG
        config = read_config(folder)
        if config:
            _check_config(config)
        name = RESULT
        read_result(folder)
    except Exception as error:  # PyYAML and other content raise almost anything
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"{name} of {repo} must be that of a run of sb-dqn, got another content ({reason}). Pull another revision."
        ) from error
    check_cluster(config.get("settings", {}), f"{CONFIG} of {repo}")
    return config


def _check_plain(path: Path) -> None:
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


def check_received_evaluations(path: Path, repo: str) -> None:
    """Checks that `evaluations.npz` of others is not compressed, so that it takes no more memory than it has bytes.

    Raises:
        CheckpointError: it is, or it is no zip.
    """
    if not path.is_file():
        return
    try:
        with zipfile.ZipFile(path) as archive:
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, struct.error):
        stored = False
    if not stored:
        raise CheckpointError(
            f"{path.name} of {repo} must be an uncompressed zip of arrays, got another content. Pull another revision."
        )


def _check_config(config: Mapping[str, Any]) -> None:
    """Checks the entries of `config.yaml` that commands read.

    Raises:
        ValueError: an entry is missing, or of another type.
    """
    for name, kind in CONFIG_TYPES.items():
        if not isinstance(config.get(name), kind):
            raise ValueError(f"{name} is {config.get(name)!r:.80}")
    if not isinstance(config.get("eval_env_kwargs", {}), dict):
        raise ValueError(f"eval_env_kwargs is {config['eval_env_kwargs']!r:.80}")
    if not ENV_ID.fullmatch(config["env_id"]):
        raise ValueError(f"env_id is {config['env_id']!r:.80}")


def _model_manifest(path: Path) -> dict[str, Any]:
    manifest = model_info(path)
    if manifest.get("kind") != "model":
        raise CheckpointError(f"{path} must hold a model, got a {manifest.get('kind')!r}. Use the file of a model.")
    if not str(manifest.get("class")).isidentifier() or not isinstance(manifest.get("arguments"), dict):
        raise CheckpointError(f"{path} has a manifest without class or arguments, so it is damaged. Use another copy.")
    return manifest
