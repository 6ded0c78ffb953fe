"""Logger: recording, conversion of values, failing sinks and log folders."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sb_dqn import DQN
from sb_dqn.callbacks import BaseCallback
from sb_dqn.core.training_run import _run_folder
from sb_dqn.errors import ConfigurationError
from sb_dqn.logger import DEBUG, DISABLED, ERROR, WARN, Image, JSONOutputFormat, KVWriter, Logger, configure
from sb_dqn.logger.core import SINKS
from sb_dqn.logger.entries import FormatUnsupportedError

ROOT = Path(__file__).parents[2]


class Tape(KVWriter):
    """Sink that stores its inputs, or raises `error`."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
        self.error: Exception | None = None
        self.closed = 0

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        if self.error:
            raise self.error
        self.rows.append((step, key_values, key_excluded))

    def close(self) -> None:
        self.closed += 1


def test_importing_the_logger_imports_neither_torch_nor_numpy_nor_tensorboard() -> None:
    program = "import sys, sb_dqn.logger; print([m for m in ('torch', 'numpy', 'tensorboard') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
    )
    assert result.stdout.strip() == "[]"


def test_the_last_value_or_the_mean_is_dumped_and_cleared() -> None:
    tape = Tape()
    logger = Logger(None, [tape])
    for value in (1.0, 2.0, 6.0):
        logger.record("last", value)
        logger.record_mean("mean", value, exclude="stdout")
    logger.record_mean("nothing", None)
    assert logger.name_to_value == {"last": 6.0, "mean": 3.0}
    logger.dump(step=7)
    logger.dump(step=8)  # nothing was recorded: no row
    logger.record_mean("mean", 5.0)
    logger.dump(9)
    assert [(step, row) for step, row, _ in tape.rows] == [(7, {"last": 6.0, "mean": 3.0}), (9, {"mean": 5.0})]
    assert tape.rows[0][2] == {"last": (), "mean": ("stdout",)}


def test_tensors_and_arrays_are_converted_at_the_dump() -> None:
    tape = Tape()
    logger = Logger(None, [tape])
    loss = torch.tensor(1.0, requires_grad=True)
    logger.record("loss", loss)
    logger.record("half", torch.tensor(0.5, dtype=torch.bfloat16))
    logger.record("count", np.int64(3))
    logger.record("zero-d", np.array(2.5))
    logger.record("histogram", torch.ones(3, dtype=torch.bfloat16))
    logger.record_mean("mean", torch.tensor(1.0))
    logger.record_mean("mean", torch.tensor(2.0))
    assert logger.name_to_value["loss"] is loss
    logger.dump()
    row = tape.rows[0][1]
    histogram = row.pop("histogram")
    assert row == {"loss": 1.0, "half": 0.5, "count": 3, "zero-d": 2.5, "mean": 1.5}
    assert [type(row[key]) for key in ("loss", "half", "count", "zero-d", "mean")] == [float, float, int, float, float]
    assert (type(histogram), histogram.tolist()) == (np.ndarray, [1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("a custom sink"), ValueError("closed")]
)
def test_a_failing_sink_is_removed_with_one_message(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    first, second = Tape(), Tape()
    logger = Logger(None, [first, second])
    first.error = error
    for step in range(3):
        logger.record("x", step)
        logger.dump(step)
    assert [step for step, _, _ in second.rows] == [0, 1, 2]
    message = capsys.readouterr().err
    assert message.count("sink Tape failed and was removed, training continues") == 1
    assert str(error) in message
    assert (logger.output_formats, first.closed) == ([second], 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", ["log", "json", "csv"])
def test_a_full_disk_does_not_end_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    file = {"log": "log.txt", "json": "progress.json", "csv": "progress.csv"}[name]
    with configure(tmp_path, [name]) as logger:
        logger.output_formats[0].file.close()  # type: ignore[attr-defined]
        sink: Any = logger.output_formats[0]
        full = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115  # the sink closes it
        sink.__dict__["_file" if name == "log" else "file"] = full
        if name == "csv":
            sink.keys, sink._started = ["x"], True
        logger.record("x", 1)
        logger.dump(1)
        logger.record("x", 2)
        logger.dump(2)
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert (tmp_path / file).exists()
    assert full.closed


def test_a_value_that_a_sink_cannot_write_is_an_error_with_the_fix(tmp_path: Path) -> None:
    image = Image(np.zeros((4, 4, 3)), "HWC")
    for names, formats in ((["stdout"], r"\('stdout', 'log'\)"), (["csv"], r"\('csv',\)"), (["json"], r"\('json',\)")):
        logger = configure(tmp_path, names)
        logger.record("frame", image)
        with pytest.raises(
            FormatUnsupportedError, match=rf"cannot write the image that was logged. .*exclude={formats}"
        ):
            logger.dump()
        logger.record("frame", image, exclude=tuple(names))
        logger.record("x", 1)
        logger.dump()
        assert len(logger.output_formats) == 1
        logger.close()


def test_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = configure(tmp_path, ["stdout"])
    for level in (None, DEBUG, WARN, DISABLED):
        if level is not None:
            logger.set_level(level)
        for log in (logger.debug, logger.info, logger.warn, logger.error):
            log(level, log.__name__)
        logger.record("x", 1)
        logger.dump()
    out = capsys.readouterr().out
    expected = {"None": "info warn error", "10": "debug info warn error", "30": "warn error"}
    assert [line for line in out.splitlines() if not line.startswith(("|", "-"))] == [
        f"{level} {name}" for level, names in expected.items() for name in names.split()
    ]
    assert out.count("| x") == 3
    assert ERROR > WARN


def test_configure_opens_the_sinks_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with configure(str(tmp_path / "a" / "b"), ["stdout", "log", "csv", "json"]) as logger:
        assert logger.get_dir() == str(tmp_path / "a" / "b")
        logger.record("x", 1)
        logger.dump()
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == [
        "log.txt",
        "progress.csv",
        "progress.json",
    ]
    out = capsys.readouterr().out
    assert out.startswith(f"Logging to {tmp_path / 'a' / 'b'}\n")
    assert (tmp_path / "a" / "b" / "log.txt").read_text() == out
    logger.close()  # a second time


def test_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert configure(None, ["stdout"]).get_dir() is None
    assert configure(None, []).output_formats == []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with configure() as logger:
        assert Path(logger.get_dir() or "").parent == tmp_path
        assert len(logger.output_formats) == 3
    monkeypatch.setenv("SB_DQN_LOGDIR", str(tmp_path / "chosen"))
    monkeypatch.setenv("SB_DQN_LOG_FORMAT", "json")
    with configure() as logger:
        assert logger.get_dir() == str(tmp_path / "chosen")
    assert [path.name for path in (tmp_path / "chosen").iterdir()] == ["progress.json"]


def test_an_unknown_sink_is_refused_with_the_nearest() -> None:
    message = r"log format must be one of \['csv', .*, got 'tensorbord'.*Did you mean 'tensorboard'"
    with pytest.raises(ConfigurationError, match=message):
        configure(None, ["tensorbord"])


@pytest.mark.parametrize("name", ["log", "csv", "json", "tensorboard"])
def test_a_folder_that_is_not_writable_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "file").write_text("")
    message = r"log folder must be writable, got .*file/logs \(.*Choose another folder.*chmod u\+w"
    with pytest.raises(ConfigurationError, match=message):
        configure(tmp_path / "file" / "logs", [name])

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sb_dqn.logger.sinks.open", refuse, raising=False)
    monkeypatch.setattr("torch.utils.tensorboard.writer.SummaryWriter", refuse)
    with pytest.raises(ConfigurationError, match=rf"got {tmp_path}/logs \(Permission denied\)"):
        configure(tmp_path / "logs", [name])


def test_open_sinks_are_closed_if_another_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "progress.csv").mkdir()
    opened: list[JSONOutputFormat] = []

    def open_json(folder: str) -> JSONOutputFormat:
        opened.append(JSONOutputFormat(Path(folder) / "progress.json"))
        return opened[0]

    monkeypatch.setitem(SINKS, "json", open_json)
    with pytest.raises(ConfigurationError, match="Is a directory"):
        configure(tmp_path, ["json", "csv"])
    assert opened[0].file.closed


@pytest.mark.parametrize("name", ["plain", "group/run", "lr[1e-3]"])
def test_each_run_has_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        folder = _run_folder(tmp_path, name, new_run=True)
        assert folder == tmp_path / f"{name}_{number}"
        folder.mkdir(parents=True)
    assert _run_folder(tmp_path, name, new_run=False) == tmp_path / f"{name}_3"


def test_entries_for_the_next_line_are_part_of_a_full_checkpoint(tmp_path: Path) -> None:
    class Notes(BaseCallback):
        def _on_step(self) -> bool:
            self.logger.record_mean("own/mean", float(self.num_timesteps))
            if self.num_timesteps == 30:
                self.logger.record("own/event", 1.0)
                self.model.after_tick(lambda: self.model.save(str(tmp_path / "full.zip"), full=True))
            return True

    def lines(model: Any, folder: str) -> list[tuple[str, str]]:
        logger = configure(str(tmp_path / folder), ["csv"])
        model.set_logger(logger)
        model.resume(Notes()) if folder == "b" else model.learn(200, Notes(), log_interval=3)
        logger.close()
        with (tmp_path / folder / "progress.csv").open() as file:
            return [(row["own/mean"], row["own/event"]) for row in csv.DictReader(file)]

    first = lines(DQN("MlpPolicy", "CartPole-v1", buffer_size=100, learning_starts=1_000, seed=0), "a")
    assert first[0][1] == "1.0"
    assert lines(DQN.load(tmp_path / "full.zip", "CartPole-v1"), "b") == first
