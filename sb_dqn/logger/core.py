"""Logger: collects values by name and writes them to sinks; a failing sink does not end the training."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sb_dqn.errors import ConfigurationError, nearest
from sb_dqn.logger.csv_sink import CSVOutputFormat
from sb_dqn.logger.entries import FormatUnsupportedError, plain
from sb_dqn.logger.sinks import HumanOutputFormat, JSONOutputFormat, KVWriter, SeqWriter, TensorBoardOutputFormat

if TYPE_CHECKING:
    from typing_extensions import Self

DEBUG, INFO, WARN, ERROR, DISABLED = 10, 20, 30, 40, 50

Exclude = str | tuple[str, ...] | None


class Logger:
    """Collects values between two dumps.

    Args:
        folder: folder of the log files; None without files.
        output_formats: sinks, instances of `KVWriter`.
    """

    def __init__(self, folder: str | None, output_formats: Sequence[KVWriter]) -> None:
        self.name_to_value: dict[str, Any] = defaultdict(float)
        self.name_to_count: dict[str, int] = defaultdict(int)
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        self.level = INFO
        self.dir = folder
        self.output_formats = list(output_formats)

    def record(self, key: str, value: object, exclude: Exclude = None) -> None:
        """Records a value, which replaces earlier ones since the last dump. A tensor stays on its device until the dump."""
        self.name_to_value[key] = value
        self.name_to_excluded[key] = _to_tuple(exclude)

    def record_mean(self, key: str, value: object, exclude: Exclude = None) -> None:
        """Records a value to be averaged with earlier ones since the last dump; None is ignored."""
        if value is None:
            return
        count = self.name_to_count[key]
        self.name_to_value[key] = value if count == 0 else (self.name_to_value[key] * count + value) / (count + 1)
        self.name_to_count[key] = count + 1
        self.name_to_excluded[key] = _to_tuple(exclude)

    def dump(self, step: int = 0) -> None:
        """Writes the recorded values to every sink and clears them. Tensors are copied to the host, which synchronizes.

        Raises:
            FormatUnsupportedError: a video, figure, image or HParam was recorded without excluding a sink that cannot
                write it.
        """
        if self.level == DISABLED:
            return
        values = {key: plain(value) for key, value in self.name_to_value.items()}
        excluded = dict(self.name_to_excluded)
        self.name_to_value.clear()
        self.name_to_count.clear()
        self.name_to_excluded.clear()
        if values:
            self._for_each_sink(lambda sink: sink.write(values, excluded, step))

    def log(self, *args: object, level: int = INFO) -> None:
        """Writes the arguments as one line to every text sink, if `level` is at least the level of the logger."""
        if self.level <= level and self.level != DISABLED:
            words = [str(arg) for arg in args]
            self._for_each_sink(lambda sink: sink.write_sequence(words) if isinstance(sink, SeqWriter) else None)

    def debug(self, *args: object) -> None:
        """Logs a line at level DEBUG."""
        self.log(*args, level=DEBUG)

    def info(self, *args: object) -> None:
        """Logs a line at level INFO."""
        self.log(*args, level=INFO)

    def warn(self, *args: object) -> None:
        """Logs a line at level WARN."""
        self.log(*args, level=WARN)

    def error(self, *args: object) -> None:
        """Logs a line at level ERROR."""
        self.log(*args, level=ERROR)

    def set_level(self, level: int) -> None:
        """Sets the lowest level of messages that are written; DISABLED also stops dumps."""
        self.level = level

    def get_dir(self) -> str | None:
        """Returns the folder of the log files, or None."""
        return self.dir

    def close(self) -> None:
        """Closes every sink; may be called twice."""
        self._for_each_sink(lambda sink: sink.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _for_each_sink(self, action: Callable[[KVWriter], None]) -> None:
        """Applies `action` to every sink; removes a sink that fails (disk full, folder deleted) with a message."""
        for sink in list(self.output_formats):
            try:
                action(sink)
            except FormatUnsupportedError:
                raise  # a mistake of the caller, not of the sink
            except Exception as error:  # a custom sink may raise any exception, and none may end a training run
                self.output_formats.remove(sink)
                with contextlib.suppress(Exception):
                    print(
                        f"sb_dqn: log sink {type(sink).__name__} failed and was removed, training continues "
                        f"({type(error).__name__}: {error})",
                        file=sys.stderr,
                    )
                with contextlib.suppress(Exception):
                    sink.close()


SINKS: dict[str, Callable[[str], KVWriter]] = {
    "stdout": lambda folder: HumanOutputFormat(None),
    "log": lambda folder: HumanOutputFormat(os.path.join(folder, "log.txt")),
    "csv": lambda folder: CSVOutputFormat(os.path.join(folder, "progress.csv")),
    "json": lambda folder: JSONOutputFormat(os.path.join(folder, "progress.json")),
    "tensorboard": TensorBoardOutputFormat,
}


def configure(folder: str | os.PathLike[str] | None = None, format_strings: Sequence[str] | None = None) -> Logger:
    """Creates a logger with the named sinks.

    Args:
        folder: folder of the log files. If None, it is `$SB_DQN_LOGDIR`, or a new temporary folder.
        format_strings: names out of "stdout", "log", "csv", "json", "tensorboard". If None, they are those of
            `$SB_DQN_LOG_FORMAT`, or else "stdout,log,csv".

    Raises:
        ConfigurationError: a name is unknown, or the folder is not writable.
    """
    if format_strings is None:
        format_strings = os.getenv("SB_DQN_LOG_FORMAT", "stdout,log,csv").split(",")
    names = [name for name in format_strings if name]
    for name in names:
        if name not in SINKS:
            raise ConfigurationError(
                f"log format must be one of {sorted(SINKS)}, got {name!r}. Use one of them.{nearest(name, SINKS)}"
            )
    files = [name for name in names if name != "stdout"]
    path = os.fspath(folder) if folder is not None else os.getenv("SB_DQN_LOGDIR")
    if path is None and files:
        stamp = datetime.datetime.now().strftime("sb_dqn-%Y-%m-%d-%H-%M-%S-%f")
        path = os.path.join(tempfile.gettempdir(), stamp)
    logger = Logger(path, _open_sinks(path, names))
    if files:
        logger.log(f"Logging to {path}")
    return logger


def _open_sinks(folder: str | None, names: Sequence[str]) -> list[KVWriter]:
    sinks: list[KVWriter] = []
    try:
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
        for name in names:
            sinks.append(SINKS[name](folder or ""))
    except OSError as error:
        for sink in sinks:
            sink.close()
        raise ConfigurationError(
            f"log folder must be writable, got {folder} ({error.strerror or error}). Choose another folder, change its "
            f"permissions (chmod u+w), or log to the terminal only with format_strings=['stdout']."
        ) from error
    return sinks


def _to_tuple(exclude: Exclude) -> tuple[str, ...]:
    if exclude is None:
        return ()
    return exclude if isinstance(exclude, tuple) else (exclude,)
