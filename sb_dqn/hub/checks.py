"""Checks of models and settings that others wrote, and of a run before it is pushed."""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sb_dqn.checkpoint import read_archive
from sb_dqn.errors import CheckpointError, ConfigurationError
from sb_dqn.remotes.files import CARD, CONFIG, FILES, FILM, MODEL, RESULT, check_plain, inside
from sb_dqn.runs.folder import read_config, read_result
from sb_dqn.runs.run import model_manifest
from sb_dqn.sb3_files import algorithm_of, is_sb3_zip, read_sb3_zip
from sb_dqn.types import Kwargs, Settings

FOREIGN_FILES = (CARD, FILM)
"""Files that are pulled with a model file of another name."""
ENV_ID = re.compile(r"[\w:./-]{1,200}", re.ASCII)
"""Ids of environments; what a command prints can be pasted into a shell."""
CONFIG_TYPES: dict[str, type] = {
    "algorithm": str, "env_id": str, "env_kwargs": Mapping, "n_envs": int, "n_timesteps": int, "settings": Mapping,
}  # fmt: skip
WRITTEN_BY_TRAINING = ("buffer_path", "tensorboard_log")
"""Settings with a path, to which the next training writes."""


def check_links(folder: Path, besides: str = "") -> None:
    """Checks that the files that a push reads lie inside the folder of the run, except one that the user named.

    Raises:
        CheckpointError: one is a link that leads out of it.
    """
    for path in folder.iterdir():
        read = path.name in FILES or path.name.endswith("monitor.csv")
        if path.is_symlink() and read and path.name != besides:
            inside(folder, path.name)


def cluster_of(arguments: Settings) -> str | None:
    """Returns the address of a Ray cluster to which a training with these settings would connect, or None."""
    actors = arguments.get("actors")
    if isinstance(actors, Mapping):
        fields = actors.get("fields", actors)
        address = fields.get("address") if isinstance(fields, Mapping) else None
    else:
        address = str(actors or "").partition("@")[2]
    return None if address in (None, "", "auto") else str(address)


def check_cluster(arguments: Settings, label: str) -> None:
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
    manifest = model_manifest(path)
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
    manifest = model_manifest(path)
    read_archive(path)
    check_cluster(manifest["arguments"], str(path))
    return str(manifest["class"]), manifest["arguments"]


def check_received_settings(folder: Path, repo: str) -> Kwargs:
    """Reads `config.yaml` and `result.yaml` as plain data; returns the former, empty without a file.

    Raises:
        CheckpointError: one of them has another content.
    """
    name = CONFIG
    try:
        for name in (CONFIG, RESULT):
            check_plain(folder / name)
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


def _check_config(config: Settings) -> None:
    """Checks the entries of `config.yaml` that commands read."""
    for name, kind in CONFIG_TYPES.items():
        if not isinstance(config.get(name), kind):
            raise ValueError(f"{name} is {config.get(name)!r:.80}")
    if not isinstance(config.get("eval_env_kwargs", {}), dict):
        raise ValueError(f"eval_env_kwargs is {config['eval_env_kwargs']!r:.80}")
    if not ENV_ID.fullmatch(config["env_id"]):
        raise ValueError(f"env_id is {config['env_id']!r:.80}")
