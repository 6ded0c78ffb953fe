"""Push and pull of models: `push_to_hub`, `pull_from_hub`, `load_from_hub`."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sb_dqn.checks import check_int
from sb_dqn.errors import CheckpointError, ConfigurationError, explained
from sb_dqn.files import write_yaml
from sb_dqn.hub.checks import (
    ENV_ID,
    FOREIGN_FILES,
    WRITTEN_BY_TRAINING,
    check_received_evaluations,
    check_received_model,
    check_received_settings,
)
from sb_dqn.hub.package import find_source, make_package
from sb_dqn.remotes.files import BEST, CARD, FILES, MAX_SETTINGS, MAX_SIZE, MODEL, check_names, check_size, model_among
from sb_dqn.remotes.open import new_folder, open_remote
from sb_dqn.runs.trust import ORIGIN, foreign_modules
from sb_dqn.types import Kwargs


@dataclass(frozen=True)
class Pushed:
    """A pushed model."""

    url: str
    """Address of the repository, or path of the folder."""
    files: list[str]
    notes: list[str]
    """One sentence for each part that could not be made."""


@dataclass(frozen=True)
class Pulled:
    """A pulled model."""

    folder: Path
    algorithm: str
    env_id: str | None
    """Environment of the run, or of the model card; None if neither names one."""
    left_out: list[str]
    """Files of the repository that were not downloaded."""
    notes: list[str]
    """One sentence for each path to which a further training would write, and each module that the environment imports."""


def push_to_hub(
    run: object,
    repo_id: str | Path,
    *,
    env_id: str | None = None,
    n_eval_episodes: int | None = None,
    video: bool = True,
    commit_message: str | None = None,
    private: bool = False,
    overwrite: bool = False,
    token: str | None = None,
) -> Pushed:
    """Uploads a model with a model card, its settings, results, learning curve and a film of an episode.

    The model file is uploaded as it is, and the parameters of its policy as a safetensors file, too. Parts that cannot be
    made, such as a film without the extra `video`, are left out, and named in `notes`.

    Args:
        run: folder of a run, model file or model.
        repo_id: `USER/NAME` on the hub, which is made if it does not exist; or a folder: a `Path`, or a text that begins with
            `./`, `/` or `~`.
        env_id: environment of result and film; None: that of the run.
        n_eval_episodes: number of greedy episodes to play for the result; 0: no result; None: the result of the run if there is
            one, otherwise 20.
        video: record a film.
        commit_message: message of the commit on the hub.
        private: make a new repository private.
        overwrite: replace the files of an earlier push; the hub keeps them in its history, a folder does not.
        token: access token of the hub; None: that of `hf auth login` or of the environment variable `HF_TOKEN`.

    Raises:
        ConfigurationError: there is no such model, the remote has other files, or it cannot be reached.
        CheckpointError: the model file is damaged.
    """
    if n_eval_episodes is not None:
        n_eval_episodes = check_int("n_eval_episodes", n_eval_episodes, 0)
    remote = open_remote(repo_id, token=token)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "package"
        folder.mkdir()
        source, manifest = find_source(run, Path(scratch))
        remote.check_push(source.folder, overwrite)
        notes = make_package(source, manifest, folder, remote.card_name, env_id, n_eval_episodes, video)
        files = sorted(path.name for path in folder.iterdir())
        return Pushed(remote.upload(folder, commit_message, private), files, notes)


def pull_from_hub(
    repo_id: str | Path,
    folder: str | Path | None = None,
    *,
    filename: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    max_size: int = MAX_SIZE,
) -> Pulled:
    """Downloads a model as the folder of a run, for `load`, `sb-dqn evaluate`, `enjoy` and `resume`.

    Only files that a push writes are downloaded, models of Stable-Baselines3 as `model.zip`. They are read completely, without
    unpickling, before the folder appears.

    Args:
        repo_id: see `push_to_hub`.
        folder: new or empty folder; None: `runs/NAME`.
        filename: model file of the repository; None: `model.zip`, or its only other zip.
        revision: branch, tag or commit; None: the newest.
        token: see `push_to_hub`.
        max_size: bytes that the files may have together, >= 1.

    Raises:
        ConfigurationError: the folder has files, the repository has no model, is too large, or cannot be reached.
        CheckpointError: a file is damaged, or lies outside the repository.
    """
    max_size = check_int("max_size", max_size, 1)
    remote = open_remote(repo_id, revision, token)
    target = Path("runs") / remote.name if folder is None else Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError(f"the folder must be new or empty, got {target}. Choose another one (--out, folder=).")
    names = remote.names()
    check_names(names, remote.label)
    model = model_among(names, remote.label, filename)
    wanted = {name: name for name in (FILES if model == MODEL else FOREIGN_FILES) if name in names} | {model: MODEL}
    with explained(target, "writable", "Choose another folder (--out, folder=)."):
        check_size(remote.size(wanted), remote.label, max_size)
        with new_folder(target) as temporary:
            for name, kept in wanted.items():
                remote.download(name, temporary / kept)
                check_size(sum(path.stat().st_size for path in temporary.iterdir()), remote.label, max_size)
            algorithm, arguments = _check_models(temporary, remote.label)
            config = check_received_settings(temporary, remote.label)
            check_received_evaluations(temporary / "evaluations.npz", remote.label)
            env_id = config.get("env_id") or _env_of_card(temporary / CARD)
            write_yaml(temporary / ORIGIN, {"repo": remote.label})
    left_out = [name for name in names if name not in wanted and name != ".gitattributes"]
    notes = [
        f"a further training would write to {name}={arguments[name]!r}. Change it: DQN.load(path, {name}=None)."
        for name in WRITTEN_BY_TRAINING
        if arguments.get(name) is not None
    ]
    notes += [
        f"its environment imports the module {module!r}, whose code is run: see who wrote it first."
        for module in foreign_modules(target, {"env_id": env_id, **config})
    ]
    return Pulled(target, algorithm, env_id, sorted(left_out), notes)


def load_from_hub(
    repo_id: str | Path,
    filename: str | None = None,
    *,
    revision: str | None = None,
    token: str | None = None,
    max_size: int = MAX_SIZE,
) -> Path:
    """Downloads the model file of a repository to the cache of huggingface_hub and returns its path, for `DQN.load`.

    Args:
        repo_id, filename, revision, token, max_size: see `pull_from_hub`.

    Raises:
        ConfigurationError: the repository has no model, or a larger one, or cannot be reached.
        CheckpointError: the file is damaged.
    """
    remote = open_remote(repo_id, revision, token)
    names = remote.names()
    check_names(names, remote.label)
    model = model_among(names, remote.label, filename)
    check_size(remote.size([model]), remote.label, check_int("max_size", max_size, 1))
    path = remote.locate(model)
    check_received_model(path)
    return path


def _check_models(folder: Path, repo: str) -> tuple[str, Kwargs]:
    """Reads the model files completely; returns class and arguments of `model.zip`."""
    try:
        found = check_received_model(folder / MODEL)
        if (folder / BEST).exists():
            check_received_model(folder / BEST)
    except CheckpointError as error:
        reason = str(error).replace(f"{folder}/", "").replace(f"{folder}\\", "")
        raise CheckpointError(f"{repo}: {reason}") from error
    return found


def _env_of_card(card: Path) -> str | None:
    """Returns the environment in the metadata of a model card, or None."""
    import yaml

    try:
        with card.open(encoding="utf-8") as file:
            head = file.read(MAX_SETTINGS).split("---\n")[1]
        (entry, *_) = yaml.safe_load(head)["model-index"]
        name = entry["results"][0]["dataset"]["name"]
    except Exception:  # cards are written by people
        return None
    return name if isinstance(name, str) and ENV_ID.fullmatch(name) else None
