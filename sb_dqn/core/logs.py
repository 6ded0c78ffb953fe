"""The log of a model: whose logger it is, and one line of it."""

from __future__ import annotations

import re
from pathlib import Path

from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import Logger, configure


class Logs:
    """Holds the logger: one that the user gave, or one of our own that lives for one `learn`.

    Args:
        verbose: 0 writes nothing to stdout.
        tensorboard_log: folder of TensorBoard runs, or None.
    """

    def __init__(self, verbose: int, tensorboard_log: str | None) -> None:
        self.verbose, self.tensorboard_log = verbose, tensorboard_log
        self.is_ours = True
        self.name = ""
        """Of the run, in TensorBoard."""
        self._logger: Logger | None = None

    @property
    def logger(self) -> Logger:
        """The logger; one without outputs before there is any."""
        if self._logger is None:
            self._logger = configure(None, [])
        return self._logger

    def take(self, logger: Logger) -> None:
        """Uses a logger of the user's, who closes it.

        Raises:
            ConfigurationError: it is none.
        """
        lacking = [name for name in ("record", "dump", "output_formats") if getattr(logger, name, None) is None]
        if lacking:
            raise ConfigurationError(
                f"logger={logger!r} has no {', '.join(lacking)}: give one that sb_dqn.logger.configure(folder, formats) makes"
            )
        self._logger, self.is_ours = logger, False

    def open(self, name: str, begin_anew: bool) -> None:
        """Opens a logger of our own, if the user gave none; TensorBoard in `{tensorboard_log}/{name}_{id}`."""
        self.name = name
        if not self.is_ours:
            return
        formats = ["stdout"] if self.verbose else []
        folder: str | None = None
        if self.tensorboard_log is not None:
            folder = str(_run_folder(Path(self.tensorboard_log), name, begin_anew))
            formats.append("tensorboard")
        self._logger = configure(folder, formats)

    def close(self) -> None:
        """Closes the files of a logger of our own; the next `open` goes on."""
        if self.is_ours and self._logger is not None:
            self._logger.close()
            self._logger = None


def _run_folder(parent: Path, name: str, begin_anew: bool) -> Path:
    matches = [re.fullmatch(rf"{re.escape(name)}_(\d+)", found.name) for found in parent.glob(f"{name}_*")]
    latest = max((int(match[1]) for match in matches if match), default=0)
    return parent / f"{name}_{latest + 1 if begin_anew or not latest else latest}"
