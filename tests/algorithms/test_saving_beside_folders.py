"""A model saved under the name of a folder is written next to the folder, with a warning."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sb_dqn import DQN
from sb_dqn.algorithms import PQN
from tests.marks import SLOW
from tests.tiny import Tiny, quick

pytestmark = pytest.mark.usefixtures("eagerly")


def written(model: Any, save: Callable[[Any, str], Any], path: str) -> tuple[Path, str]:
    """What was answered, and the one warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = save(model, path)
    (warning,) = caught
    return Path(answer), str(warning.message)


VERBS: dict[str, tuple[Any, Callable[[Any, str], Any]]] = {
    "save": (DQN, lambda model, path: model.save(path)),
    "full": (DQN, lambda model, path: model.save(path, full=True)),
    "incremental": (DQN, lambda model, path: model.save(path, full=True, incremental=True)),
    "in the background": (
        DQN,
        lambda model, path: model.save(path, full=True, incremental=True, background=True).wait(),
    ),
    "in the background, without rows": (
        PQN,
        lambda model, path: model.save(path, full=True, incremental=True, background=True).wait(),
    ),
    "save_replay_buffer": (DQN, lambda model, path: model.save_replay_buffer(path)),
}


@pytest.fixture(scope="module")
def learned() -> dict[Any, Any]:
    """A model of each class, which saving leaves as it is."""
    return {algorithm: quick("CartPole-v1", algorithm=algorithm).learn(40) for algorithm, _ in VERBS.values()}


@SLOW
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["folder", "folder/", "v1.5"])
def test_it_is_written_and_the_place_is_said(verb: str, name: str, tmp_path: Path, learned: dict[Any, Any]) -> None:
    algorithm, save = VERBS[verb]
    model = learned[algorithm]
    folder = tmp_path / name
    folder.mkdir()
    path, says = written(model, save, f"{tmp_path}/{name}")
    assert path.resolve() == tmp_path / f"{folder.name}.zip"
    assert path.is_file()
    assert list(folder.iterdir()) == []
    assert (
        f"got '{tmp_path}/{name}', which is a folder; the file is written next to it, to '{folder}.zip'. Load " in says
    )
    assert f"such as '{folder / 'model'}'" in says


def test_a_slash_means_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    path, says = written(quick(), lambda model, path: model.save(path), f"{tmp_path}/new/")
    assert path == tmp_path / "new.zip"
    assert f"'{tmp_path}/new/', which ends as a folder does; the file is written next to it" in says


def test_the_warning_points_to_the_line_that_saved(tmp_path: Path) -> None:
    model = quick(Tiny())
    for save in (model.save, model.save_replay_buffer):
        with pytest.warns(UserWarning, match="is a folder") as caught:
            save(tmp_path)
        assert caught[0].filename == __file__
    (tmp_path.parent / f"{tmp_path.name}.zip").unlink()


def test_what_was_written_beside_is_loaded_by_the_name_that_was_said(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    model = quick(Tiny()).learn(30)
    path, _ = written(model, VERBS["save"][1], str(tmp_path / "folder"))
    assert DQN.load(path).num_timesteps == 30


def test_names_of_files_and_open_files_are_written_without_a_word(tmp_path: Path) -> None:
    model = quick(Tiny())
    (tmp_path / "folder").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.save(tmp_path / "folder" / "model") == tmp_path / "folder" / "model.zip"
        assert model.save(tmp_path / "folder.zip") == tmp_path / "folder.zip"
        assert model.save(tmp_path / "other") == tmp_path / "other.zip"
        assert model.save(io.BytesIO()) is None
