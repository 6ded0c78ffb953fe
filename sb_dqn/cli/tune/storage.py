"""Storage of a study: its passwords, which stay out of files and messages, and its errors in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from sb_dqn.errors import ConfigurationError

VARIABLE = "SB_DQN_STORAGE"
"""Environment variable with the URL; unlike an option, it is not in the list of processes."""
MASK = "***"
_IN_ADDRESS = re.compile(r"(://[^/:@\s]*):\S*@")
_IN_QUERY = re.compile(r"([?&]\w*(?:pass|pwd|secret|token)\w*=)[^&\s]*", re.IGNORECASE)


def masked(url: str) -> str:
    """Returns a URL, or a text that contains one, with *** in place of its passwords."""
    return _IN_QUERY.sub(rf"\1{MASK}", _IN_ADDRESS.sub(rf"\1:{MASK}@", url))


def make_storage(optuna: Any, storage: str) -> Any:
    """Returns what `optuna.create_study` takes as storage: a journal for a `.log` file, else a database or its URL.

    Raises:
        ConfigurationError: it is not a URL. Without the reason, which may quote a part of the password.
    """
    if storage.endswith(".log"):
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    import sqlalchemy

    try:
        sqlalchemy.make_url(storage)
    except (ValueError, sqlalchemy.exc.ArgumentError):
        raise ConfigurationError(
            f"storage must be a database URL that can be opened or a .log file, got {masked(storage)}. Write @, : and / of a "
            f"password as %40, %3A and %2F."
        ) from None
    if not storage.startswith("sqlite"):
        return storage
    waits = {"connect_args": {"timeout": 60}}  # for the writes of other processes
    return optuna.storages.RDBStorage(storage, engine_kwargs=waits)


@contextmanager
def storage_errors(storage: str) -> Iterator[None]:
    """Raises an error of the database, such as a full disk, in one line."""
    import optuna
    import sqlalchemy

    try:
        yield
    except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
        raise click.ClickException(
            f"the storage {masked(storage)} failed: {reason_of(error.__cause__ or error)}. The finished trials are in it; when it "
            f"works again, the same command continues."
        ) from error


def reason_of(error: BaseException) -> str:
    """Returns the first line of the message of an error, without passwords."""
    return masked((str(error).strip() or type(error).__name__).splitlines()[0])
