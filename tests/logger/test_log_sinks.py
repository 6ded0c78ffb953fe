"""Logger sinks: table, JSON lines, CSV and TensorBoard events."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sb_dqn.errors import ConfigurationError, printable
from sb_dqn.logger import (
    CSVOutputFormat,
    Figure,
    HParam,
    HumanOutputFormat,
    Image,
    JSONOutputFormat,
    TensorBoardOutputFormat,
    configure,
)
from sb_dqn.schedules import Linear
from tests.marks import SLOW


def table(entries: dict[str, Any], max_length: int = 36, excluded: dict[str, tuple[str, ...]] | None = None) -> str:
    file = io.StringIO()
    HumanOutputFormat(file, max_length).write(entries, excluded or {})
    return file.getvalue()


def test_the_table_has_the_format_of_stable_baselines3() -> None:
    entries = {
        "time/fps": 312,
        "rollout/ep_rew_mean": 21.456,
        "rollout/ep_len_mean": 21.0,
        "train/loss": 1.23456e-05,
        "note": "hi",
    }
    assert table(entries).splitlines() == [
        "-----------------------------",
        "| note           | hi       |",
        "| rollout/       |          |",
        "|    ep_len_mean | 21       |",
        "|    ep_rew_mean | 21.5     |",
        "| time/          |          |",
        "|    fps         | 312      |",
        "| train/         |          |",
        "|    loss        | 1.23e-05 |",
        "-----------------------------",
    ]


def test_long_keys_and_values_are_truncated_but_stay_distinct() -> None:
    text = table({"a/" + "k" * 40 + "1": "v" * 50, "a/" + "k" * 40 + "2": 1}, max_length=20)
    assert "|    kkkkkkkkkkkkkk..." in text
    assert "k" * 40 + "2" in text
    assert "v" * 17 + "..." in text


def test_excluded_entries_and_arrays_in_the_table() -> None:
    assert "x" not in table({"x": 1, "y": 2}, excluded={"x": ("stdout",)})
    assert table({"x": 1}, excluded={"x": ("log", "csv")}) == ""
    assert "array(3, 2)" in table({"h": np.zeros((3, 2))})


def test_standard_output_is_looked_up_when_written(capsys: pytest.CaptureFixture[str]) -> None:
    sink = HumanOutputFormat(None)
    sink.write_sequence(["hello", "there"])
    assert capsys.readouterr().out == "hello there\n"
    with pytest.raises(ConfigurationError, match="must be a path, a text file or None, got 3"):
        HumanOutputFormat(3)  # type: ignore[arg-type]


def test_text_files_are_appended_to(tmp_path: Path) -> None:
    for run in range(2):
        with configure(tmp_path, ["log", "json"]) as logger:
            logger.record("run", run)
            logger.dump(run)
    assert (tmp_path / "log.txt").read_text().count("| run |") == 2
    assert [json.loads(line) for line in (tmp_path / "progress.json").read_text().splitlines()] == [
        {"run": 0},
        {"run": 1},
    ]


def test_json_lines(tmp_path: Path) -> None:
    sink = JSONOutputFormat(tmp_path / "p.json")
    sink.write({"a": 1.5, "b": math.nan, "c": np.array([1.0, np.inf]), "d": "x", "e": None, "f": True}, {}, 3)
    sink.write({"a": 1, "hidden": 2}, {"hidden": ("json",)})
    sink.close()
    first, second = (
        json.loads(line, parse_constant=pytest.fail) for line in (tmp_path / "p.json").read_text().splitlines()
    )
    assert first == {"a": 1.5, "b": None, "c": [1.0, None], "d": "x", "e": None, "f": True}
    assert second == {"a": 1}


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


cells = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=6),
)


@SLOW
@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "b,c", 'd"e', "f/g"]), cells, min_size=1), min_size=1, max_size=6)
)
def test_csv_keeps_every_row_under_a_growing_header(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "progress.csv"
    sink = CSVOutputFormat(path)
    for row in rows:
        sink.write(row, {})
    sink.close()
    header = {key for row in rows for key in row}
    assert rows_of(path) == [{key: printable(str(row.get(key, ""))) for key in header} for row in rows]
    assert os.listdir(path.parent) == ["progress.csv"]


def test_csv_keeps_odd_text(tmp_path: Path) -> None:
    sink = CSVOutputFormat(tmp_path / "progress.csv")
    for row in ({"a": "one\r\ntwo\rthree"}, {"a": "\x85 \u2028 \x0c", "b": "\ud800"}, {"c": 1}):
        sink.write(row, {})
    sink.close()
    assert [row["a"] for row in rows_of(tmp_path / "progress.csv")] == ["one\ntwo\nthree", "\\x85 \u2028 \\x0c", ""]


ESCAPES = "\x1b]0;title\x07\x1b[2J \x9b1m \u202etxet"


def test_control_characters_are_written_as_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("log.txt", "progress.csv", "progress.json")]
    sinks = [
        HumanOutputFormat(None, 200),
        HumanOutputFormat(files[0], 200),
        CSVOutputFormat(files[1]),
        JSONOutputFormat(files[2]),
    ]
    for sink in sinks:
        sink.write({f"a/{ESCAPES}": 1, "a/text": ESCAPES}, {})
        if isinstance(sink, HumanOutputFormat):
            sink.write_sequence([ESCAPES])
        sink.close()
    for text in (capsys.readouterr().out, *(path.read_text(encoding="utf-8") for path in files)):
        assert text.count("1b") >= 4
        assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert printable("Ünïcode 漢字 🙂\n\t") == "Ünïcode 漢字 🙂\n\t"


def test_csv_continues_the_file_of_a_resumed_run(tmp_path: Path) -> None:
    for first in (0, 2):
        sink = CSVOutputFormat(tmp_path / "progress.csv")
        for step in (first, first + 1):
            extra = {"train/loss": 0.5} if step == 3 else {}
            sink.write({"time/total_timesteps": step, "reward": 10 * step} | extra, {"reward": ("stdout",)})
        sink.close()
    columns = ("time/total_timesteps", "reward", "train/loss")
    rows = [tuple(row[column] for column in columns) for row in rows_of(tmp_path / "progress.csv")]
    assert rows == [("0", "0", ""), ("1", "10", ""), ("2", "20", ""), ("3", "30", "0.5")]
    assert os.listdir(tmp_path) == ["progress.csv"]


@pytest.mark.parametrize(
    "entries",
    [{"time/total_timesteps": 5, "reward": 1}, {"another": 1}],
    ids=["smaller step", "no common key"],
)
def test_csv_of_another_run_is_renamed(tmp_path: Path, entries: dict[str, Any]) -> None:
    for number in range(3):
        sink = CSVOutputFormat(tmp_path / "progress.csv")
        sink.write({"time/total_timesteps": 9 - number, "reward": number} if number < 2 else entries, {})
        sink.close()
    assert sorted(os.listdir(tmp_path)) == ["progress.1.csv", "progress.2.csv", "progress.csv"]
    assert [rows_of(tmp_path / f"progress.{n}.csv")[0]["reward"] for n in (1, 2)] == ["0", "1"]
    assert rows_of(tmp_path / "progress.csv") == [{key: str(value) for key, value in entries.items()}]


def test_csv_without_rows_does_not_change_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text("a,b\n1,2\n")
    sink = CSVOutputFormat(tmp_path / "progress.csv")
    sink.write({"a": 1}, {"a": ("csv",)})
    sink.close()
    assert (tmp_path / "progress.csv").read_text() == "a,b\n1,2\n"


def test_csv_completes_the_last_line_of_a_killed_run(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text("a,b,c\n1,2,3\n4,5.12")
    sink = CSVOutputFormat(tmp_path / "progress.csv")
    sink.write({"a": 7, "b": 8, "c": np.array([1.0, 2.0])}, {})
    sink.close()
    assert (tmp_path / "progress.csv").read_text() == 'a,b,c\n1,2,3\n4,,\n7,8,"[1.0, 2.0]"\n'


def test_csv_keeps_its_rows_if_adding_a_column_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = CSVOutputFormat(tmp_path / "progress.csv")
    sink.write({"a": 1}, {})

    def refuse(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        sink.write({"a": 2, "b": 3}, {})
    sink.close()
    assert (tmp_path / "progress.csv").read_text() == "a\n1\n"
    assert os.listdir(tmp_path) == ["progress.csv"]


def events(folder: Path) -> Any:
    loader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")  # without types
    accumulator = loader.EventAccumulator(
        str(folder), size_guidance={"histograms": 0, "scalars": 0, "images": 0, "tensors": 0}
    )
    accumulator.Reload()
    return accumulator


def test_tensorboard_writes_every_kind_of_value(tmp_path: Path) -> None:
    import matplotlib.figure

    with configure(tmp_path, ["tensorboard"]) as logger:
        for step in (10, 20):
            logger.record("train/loss", torch.tensor(step / 10))
            logger.record("flag", True)
            logger.record("hidden", 1.0, exclude="tensorboard")
            logger.record("weights", torch.arange(4.0))
            logger.record("bad weights", np.array([np.nan, np.inf]))
            logger.record("note", "text")
            logger.record("frame", Image(np.zeros((4, 4, 3), np.uint8), "HWC"))
            logger.record("curve", Figure(matplotlib.figure.Figure(figsize=(1, 1)), close=True))
            logger.record("hparam", HParam({"lr": 0.1, "name": "x", "none": "none"}, {"train/loss": 0.0}))
            logger.dump(step)
        assert len(logger.output_formats) == 1
    log = events(tmp_path)
    assert [(event.step, event.value) for event in log.Scalars("train/loss")] == [(10, 1.0), (20, 2.0)]
    tags = log.Tags()
    assert set(tags["scalars"]) == {"train/loss", "flag"}
    assert tags["histograms"] == ["weights"]
    assert log.Histograms("weights")[0].histogram_value.num == 4
    assert set(tags["images"]) == {"frame", "curve"}
    assert "note/text_summary" in tags["tensors"]
    assert any("hparams" in tag for tag in log.summary_metadata)
    assert [path.is_file() for path in tmp_path.iterdir()] == [True], (
        "hyperparameters must not open a second run folder"
    )


def test_hyperparameters_of_every_type(tmp_path: Path) -> None:
    """Checks that a schedule as learning rate does not break the sink."""
    data = importlib.import_module("tensorboard.plugins.hparams.plugin_data_pb2")  # without types
    rate = Linear(0.1, 0.0)
    hparams = {
        "rate": rate,
        "net_arch": [64, 64],
        "steps": np.int64(3),
        "on": True,
        "size": torch.tensor(2.5),
        "none": None,
    }
    with configure(tmp_path, ["tensorboard"]) as logger:
        logger.record("hparam", HParam(hparams, {"train/loss": 0.0}))
        logger.record("train/loss", 1.0)
        logger.dump(1)
        assert len(logger.output_formats) == 1
    log = events(tmp_path)
    assert log.Scalars("train/loss")[0].value == 1.0
    content = log.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    written = data.HParamsPluginData.FromString(content).session_start_info.hparams
    assert {name: getattr(value, value.WhichOneof("kind")) for name, value in written.items()} == {
        "rate": str(rate),
        "net_arch": "[64, 64]",
        "steps": 3,
        "on": True,
        "size": 2.5,
    }


def test_tensorboard_may_be_closed_twice(tmp_path: Path) -> None:
    sink = TensorBoardOutputFormat(tmp_path)
    sink.close()
    sink.close()


def test_hparam_without_metrics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="metric_dict must have at least one entry, got {}"):
        HParam({"lr": 0.1}, {})
