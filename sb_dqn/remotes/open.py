"""Remotes: a folder, or a repository of the Hugging Face hub."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sb_dqn.errors import CheckpointError, ConfigurationError, explained, import_extra
from sb_dqn.files import atomic_write
from sb_dqn.remotes.files import CARD, FILES, LIBRARY, MODEL, inside
from sb_dqn.version import __version__

REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
UNCOUNTED = (".gitattributes",)
"""Files that the hub adds to an empty repository."""


class FolderRemote:
    """Folder with the files of a repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self.name = self.folder.resolve().name
        self.label = str(self.folder)
        self.card_name = f"./{self.name}"

    def check_push(self, source: Path, overwrite: bool) -> None:
        """Checks that no file is lost by a push.

        Args:
            source: folder of the model.
            overwrite: replace the files of an earlier push.

        Raises:
            ConfigurationError: the folder is that of the model, or has other files.
        """
        if self.folder.resolve() == source.resolve():
            raise ConfigurationError(
                f"the remote must not be the folder of the run, got {self.folder}. Name another folder."
            )
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"the remote must be a folder, got the file {self.folder}. Name another one.")
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        if names and not overwrite:
            raise ConfigurationError(_not_empty(self.label, len(names), "or name another folder"))
        if names and not (MODEL in names and self._has_card()):
            raise ConfigurationError(
                f"overwrite requires the folder of a pushed model, got {self.folder}, which has no {MODEL} with a {CARD} of this "
                f"library. Name another folder."
            )

    def _has_card(self) -> bool:
        """Returns True if the folder has the card that `push` writes."""
        card = self.folder / CARD
        return card.is_file() and LIBRARY in card.read_text(encoding="utf-8", errors="replace").partition("\n---\n")[0]

    def upload(self, package: Path, message: str | None, private: bool) -> str:
        """Copies the files of a package; returns the path of the folder."""
        with explained(self.label, "writable", "Name another folder."):
            if not self.folder.is_dir() or not any(self.folder.iterdir()):
                with new_folder(self.folder) as temporary:
                    for path in package.iterdir():
                        shutil.copyfile(path, temporary / path.name)
                return self.label
            for path in package.iterdir():
                with path.open("rb") as source, atomic_write(self.folder / path.name) as copy:
                    shutil.copyfileobj(source, copy)
            for name in FILES:
                if not (package / name).exists():
                    (self.folder / name).unlink(missing_ok=True)
        return self.label

    def names(self, inner: bool = False) -> list[str]:
        """Returns the names of all files.

        Args:
            inner: also those of inner folders, as paths with slashes; links to folders are not followed.

        Raises:
            ConfigurationError: it does not exist.
        """
        if not self.folder.is_dir():
            raise ConfigurationError(f"the remote must be a folder that exists, got {self.folder}. Check its path.")
        if not inner:
            return [path.name for path in self.folder.iterdir() if path.is_file()]
        found = [Path(folder, name) for folder, _, names in os.walk(self.folder) for name in names]
        return [path.relative_to(self.folder).as_posix() for path in found if path.is_file()]

    def download(self, name: str, target: Path) -> None:
        """Copies one of the files."""
        with explained(f"{self.label}/{name}", "readable", "Name another folder."):
            shutil.copyfile(inside(self.folder, name), target)

    def locate(self, name: str) -> Path:
        """Returns the path of one of the files."""
        return inside(self.folder, name)

    def size(self, names: Iterable[str]) -> int:
        """Returns the bytes of some of the files."""
        return sum(inside(self.folder, name).stat().st_size for name in names)


class HubRepository:
    """Repository of the Hugging Face hub.

    Args:
        repo_id: `USER/NAME`.
        revision: branch, tag or commit to download; None: the newest.
        token: access token; None: that of `hf auth login` or `HF_TOKEN`.

    Raises:
        ConfigurationError: huggingface_hub is missing.
    """

    def __init__(self, repo_id: str, revision: str | None = None, token: str | None = None) -> None:
        hub = import_extra("huggingface_hub", "hub", "for repositories of the hub")
        self.label = self.card_name = repo_id
        self.name = repo_id.partition("/")[2]
        self.revision = revision
        self._api = hub.HfApi(token=token, library_name="sb_dqn", library_version=__version__)
        self._exists = False
        self._old: list[str] = []
        self._sizes: dict[str, int] = {}

    def check_push(self, source: Path, overwrite: bool) -> None:
        """Checks the token, and that the repository is new or may be overwritten; see `FolderRemote.check_push`."""
        with _hub_errors(self):
            self._api.whoami()
            self._exists = self._api.repo_exists(self.label)
            self._old = self._api.list_repo_files(self.label) if self._exists else []
        counted = [name for name in self._old if name not in UNCOUNTED]
        if counted and not overwrite:
            raise ConfigurationError(
                _not_empty(
                    self.label, len(counted), "which keeps them in the history of the repository, or name another one"
                )
            )

    def upload(self, package: Path, message: str | None, private: bool) -> str:
        """Makes one commit with the files of a package, and makes the repository if it is new; returns its address."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        new = sorted(path.name for path in package.iterdir())
        operations: list[Any] = [CommitOperationAdd(name, package / name) for name in new]
        operations += [CommitOperationDelete(name) for name in FILES if name in self._old and name not in new]
        with _hub_errors(self):
            if not self._exists:
                self._api.create_repo(self.label, private=True if private else None, exist_ok=True)
            self._api.create_commit(self.label, operations, commit_message=message or "Push a model of sb_dqn")
        return f"{self._api.endpoint}/{self.label}"

    def names(self, inner: bool = True) -> list[str]:
        """Returns the paths of all files, and selects their commit for `download`; `inner` has no effect."""
        with _hub_errors(self):
            info = self._api.model_info(self.label, revision=self.revision, files_metadata=True)
        self.revision = info.sha
        self._sizes = {sibling.rfilename: int(sibling.size or 0) for sibling in info.siblings or []}
        return list(self._sizes)

    def size(self, names: Iterable[str]) -> int:
        """Returns the bytes of some of the files of `names`."""
        return sum(self._sizes[name] for name in names)

    def download(self, name: str, target: Path) -> None:
        """Downloads one of the files."""
        scratch = target.with_name(f".{secrets.token_hex(6)}")
        with _hub_errors(self):
            path = self._api.hf_hub_download(self.label, name, revision=self.revision, local_dir=scratch)
        os.replace(path, target)
        shutil.rmtree(scratch)

    def locate(self, name: str) -> Path:
        """Downloads one of the files to the cache of huggingface_hub; returns its path."""
        with _hub_errors(self):
            return Path(self._api.hf_hub_download(self.label, name, revision=self.revision))


Remote = FolderRemote | HubRepository


def open_remote(repo: str | Path, revision: str | None = None, token: str | None = None) -> Remote:
    """Returns the remote of a repository id, or of a path.

    Args:
        repo: `USER/NAME` on the hub; or a folder: a `Path`, or a text that begins with `.`, `/`, `~` or a drive.
        revision: see `HubRepository`.
        token: see `HubRepository`.

    Raises:
        ConfigurationError: it is neither, or huggingface_hub is missing.
    """
    text = str(repo)
    if isinstance(repo, Path) or text.startswith((".", "/", "~")) or "\\" in text or Path(text).is_absolute():
        if revision is not None:
            raise ConfigurationError(f"revision must not be set for a folder, got {revision!r} for {text}. Remove it.")
        return FolderRemote(Path(text))
    if not REPO_ID.fullmatch(text):
        raise ConfigurationError(
            f"repo must be USER/NAME on the Hugging Face hub, or a folder that begins with ./ or /, got {text!r}. For a folder write "
            f"./{text}."
        )
    return HubRepository(text, revision, token)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Makes a folder whose files are complete: yields a temporary one that is renamed at the end, or removed on an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.tmp")
    temporary.mkdir()
    try:
        yield temporary
        if folder.is_dir():
            folder.rmdir()  # raises unless it is empty
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _not_empty(label: str, count: int, other: str) -> str:
    return (
        f"the remote must be new or empty, got {label} with {count} files. Replace an earlier push with --overwrite "
        f"(overwrite=True), {other}."
    )


@contextmanager
def _hub_errors(remote: HubRepository) -> Iterator[None]:
    """Raises all errors of huggingface_hub, whose HTTP client differs between its versions, as one sentence.

    Raises:
        OSError: a file cannot be written.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise _explained(error, remote) from error


def _explained(error: Exception, remote: HubRepository) -> Exception:
    """Returns the error to raise for one of huggingface_hub."""
    from huggingface_hub import errors

    name, endpoint = remote.label, remote._api.endpoint
    cause = _cause(error)
    line = " ".join(str(cause).split())[:200]
    if "Consistency check failed" in line:
        return CheckpointError(f"a file of {name} arrived damaged: {line}. Try again.")
    status = cause.response.status_code if isinstance(cause, errors.HfHubHTTPError) else None
    login = "og in with `hf auth login`, or set HF_TOKEN"
    of_class = {
        errors.LocalTokenNotFoundError: f"a token must be set to push to {name}, got none. L{login}.",
        errors.GatedRepoError: f"{name} must be open to you, got a gated repository. Accept its terms at {endpoint}/{name}.",
        errors.RevisionNotFoundError: f"revision must be a branch, tag or commit of {name}, got {remote.revision!r}. Check it.",
        errors.RepositoryNotFoundError: f"{name} must be a repository that exists and that you may read, got none at {endpoint}. "
        f"Check its name; for a private one l{login}; for a folder write ./{name}.",
        errors.HFValidationError: f"repo must be a valid repository id, got {name!r} ({line}). Change it.",
    }
    of_status = {
        401: f"the token must be valid, got one that {endpoint} refuses (401). L{login}.",
        403: f"the token must have write access to {name}, got one that may not do this (403). Create such a token, or push to "
        f"your own namespace.",
        None: f"{endpoint} must be reachable and answer as the Hugging Face hub does, got {type(cause).__name__} ({line}). Check "
        f"the connection, or use a folder: ./{remote.name}.",
    }
    other = f"{endpoint} must accept the request, got status {status} ({line}). Try again later."
    texts = [text for kind, text in of_class.items() if isinstance(cause, kind)]
    return ConfigurationError([*texts, of_status.get(status, other)][0])


def _cause(error: BaseException) -> BaseException:
    """Returns the answer of the server that caused an error, or the error itself below those that only wrap another."""
    from huggingface_hub import errors

    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    answers = [each for each in chain if isinstance(each, errors.HfHubHTTPError)]
    wrapping = (errors.LocalEntryNotFoundError, RuntimeError)
    return answers[0] if answers else next((each for each in chain if not isinstance(each, wrapping)), chain[-1])
