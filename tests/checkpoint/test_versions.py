"""A file that a newer version of the package wrote is read with a warning that names both versions."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from sb_dqn import DQN
from sb_dqn.checkpoint import model_info
from sb_dqn.checkpoint.format import zip_reader, zip_writer
from sb_dqn.version import __version__
from tests.tiny import Tiny, quick


def written_by(version: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> DQN:
    """A model whose files say that they are of this version."""
    monkeypatch.setattr(zip_writer, "__version__", version)
    model = quick(Tiny())
    model.learn(30).save(path / "model.zip")
    model.save_replay_buffer(path / "rows.zip")
    assert model_info(path / "model.zip")["sb_dqn_version"] == version
    return model


def test_every_verb_that_reads_a_newer_file_names_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = written_by("999.0.0", tmp_path, monkeypatch)
    monkeypatch.setattr(zip_reader, "__version__", "0.1.0")
    for name, read in (
        ("model.zip", lambda file: DQN.load(file, env=Tiny())),
        ("model.zip", lambda file: model.set_parameters(file)),
        ("rows.zip", lambda file: model.load_replay_buffer(file)),
    ):
        with pytest.warns(UserWarning, match="was written by") as caught:
            read(str(tmp_path / name))
        (warning,) = caught
        says = str(warning.message)
        assert says.startswith(
            f"{tmp_path / name} was written by sb_dqn 999.0.0, which is newer than the installed 0.1.0;"
        )
        assert says.endswith("Update: pip install -U sb_dqn.")
        assert warning.filename == __file__


@pytest.mark.parametrize(
    ("written", "installed", "warns"),
    [
        ("0.1.0", "0.1.0", False),
        ("0.1", "0.1.0", False),
        ("0.9.9", "0.10.0", False),
        ("0.10.0", "0.9.9", True),
        ("0.1.1", "0.1", True),
        ("1.0.0rc1", "0.9", True),
        ("0.1.0.dev3+local", "0.1.0", False),
        ("9" * 5000, "0.1.0", True),
        ("unknown", "0.1.0", False),
        (None, "0.1.0", False),
        ([999], "0.1.0", False),
    ],
)
def test_what_is_newer(written: Any, installed: str, warns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zip_reader, "__version__", installed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zip_reader.warn_of_newer(written, "m.zip")
    assert len(caught) == warns


def test_a_file_of_this_version_is_read_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written_by(__version__, tmp_path, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DQN.load(tmp_path / "model")
