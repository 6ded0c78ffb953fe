"""The logger: values in by name, rows out to the sinks, and a sink that breaks does not end the training."""

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
from sb_dqn.logger.sinks import HumanOutputFormat, JSONOutputFormat, KVWriter, SeqWriter
from sb_dqn.logger.tensorboard import TensorBoardOutputFormat
from sb_dqn.logger.values import FormatUnsupportedError, plain

if TYPE_CHECKING:
    from typing_extensions import Self

DEBUG, INFO, WARN, ERROR, DISABLED = 10, 20, 30, 40, 50

Exclude = str | tuple[str, ...] | None


class Logger:
    """Collects values between two dumps.

    Args:
        folder: where the files lie; None if there are none.
        output_formats: the sinks; a user's own are `KVWriter`s.
    """

    def __init__(self, folder: str | None, output_formats: Sequence[KVWriter]) -> None:
        self.name_to_value: dict[str, Any] = defaultdict(float)
        self.name_to_count: dict[str, int] = defaultdict(int)
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        self.level = INFO
        self.dir = folder
        self.output_formats = list(output_formats)

    def record(self, key: str, value: Any, exclude: Exclude = None) -> None:
        """Notes a value; the last one before a dump counts. A 0-d tensor stays on its device until then."""
        self.name_to_value[key] = value
        self.name_to_excluded[key] = _to_tuple(exclude)

    def record_mean(self, key: str, value: Any, exclude: Exclude = None) -> None:
        """Notes a value; the mean of those before a dump counts. None is passed over."""
        if value is None:
            return
        count = self.name_to_count[key]
        self.name_to_value[key] = value if count == 0 else (self.name_to_value[key] * count + value) / (count + 1)
        self.name_to_count[key] = count + 1
        self.name_to_excluded[key] = _to_tuple(exclude)

    def dump(self, step: int = 0) -> None:
        """Writes what was noted to every sink and forgets it. Tensors are read back here: a sync point.

        Raises:
            FormatUnsupportedError: a sink cannot write a video, figure, image or HParam and was not excluded.
        """
        if self.level == DISABLED:
            return
        values = {key: plain(value) for key, value in self.name_to_value.items()}
        excluded = dict(self.name_to_excluded)
        self.name_to_value.clear()
        self.name_to_count.clear()
        self.name_to_excluded.clear()
        if values:
            self._each(lambda sink: sink.write(values, excluded, step))

    def log(self, *args: Any, level: int = INFO) -> None:
        """Writes the arguments as one line to the sinks that take text, if `level` is not below the logger's."""
        if self.level <= level and self.level != DISABLED:
            words = [str(arg) for arg in args]
            self._each(lambda sink: sink.write_sequence(words) if isinstance(sink, SeqWriter) else None)

    def debug(self, *args: Any) -> None:
        """`log` at level DEBUG."""
        self.log(*args, level=DEBUG)

    def info(self, *args: Any) -> None:
        """`log` at level INFO."""
        self.log(*args, level=INFO)

    def warn(self, *args: Any) -> None:
        """`log` at level WARN."""
        self.log(*args, level=WARN)

    def error(self, *args: Any) -> None:
        """`log` at level ERROR."""
        self.log(*args, level=ERROR)

    def set_level(self, level: int) -> None:
        """Messages below this level are passed over; DISABLED stops dumps too."""
        self.level = level

    def get_dir(self) -> str | None:
        """The folder of the log files, or None."""
        return self.dir

    def close(self) -> None:
        """Closes every sink; may be called twice."""
        self._each(lambda sink: sink.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _each(self, action: Callable[[KVWriter], None]) -> None:
        """Does it with every sink; one that fails (disk full, folder gone) is dropped, and that is said once."""
        for sink in list(self.output_formats):
            try:
                action(sink)
            except FormatUnsupportedError:
                raise  # not the sink is broken: it was asked for what it cannot do
            except Exception as error:  # a user's sink may raise anything, and none of it is worth a training run
                self.output_formats.remove(sink)
                with contextlib.suppress(Exception):
                    print(
                        f"sb_dqn: the log sink {type(sink).__name__} failed and is switched off, training goes on "
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
    """A logger with the sinks of these names.

    Args:
        folder: of the files; default `$SB_DQN_LOGDIR`, else a new one among the temporary files.
        format_strings: of "stdout", "log", "csv", "json", "tensorboard"; default `$SB_DQN_LOG_FORMAT`, else the first
            three.

    Raises:
        ConfigurationError: a name is unknown, or the folder cannot be written.
    """
    if format_strings is None:
        format_strings = os.getenv("SB_DQN_LOG_FORMAT", "stdout,log,csv").split(",")
    names = [name for name in format_strings if name]
    for name in names:
        if name not in SINKS:
            raise ConfigurationError(f"unknown log format {name!r}; allowed: {sorted(SINKS)}.{nearest(name, SINKS)}")
    files = [name for name in names if name != "stdout"]
    chosen = os.fspath(folder) if folder is not None else os.getenv("SB_DQN_LOGDIR")
    if chosen is None and files:
        stamp = datetime.datetime.now().strftime("sb_dqn-%Y-%m-%d-%H-%M-%S-%f")
        chosen = os.path.join(tempfile.gettempdir(), stamp)
    logger = Logger(chosen, _open_sinks(chosen, names))
    if files:
        logger.log(f"Logging to {chosen}")
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
            f"the log folder {folder} cannot be written ({error.strerror or error}); choose another folder, change its "
            f"rights (chmod u+w), or log to the terminal alone with format_strings=['stdout']"
        ) from error
    return sinks


def _to_tuple(exclude: Exclude) -> tuple[str, ...]:
    if exclude is None:
        return ()
    return exclude if isinstance(exclude, tuple) else (exclude,)
