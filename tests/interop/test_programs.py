"""Programs for Stable-Baselines3, run with `stable_baselines3` replaced by `sb_dqn.sb3` and with nothing else changed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.marks import FULL, SLOW

pytest.importorskip("stable_baselines3", reason="the peer, installed by the test extra")
pytest.importorskip("sb3_contrib", reason="the peer's second package, installed by the test extra")
PROGRAMS = Path(__file__).parent / "programs"
OURS = "sb_dqn.sb3"
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*__array__ implementation doesn't accept a copy keyword"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


def run(name: str, library: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs a program in a folder with one of the two libraries, and returns its `RESULT`."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    source = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    changed = source.replace("from stable_baselines3", f"from {library}")
    assert (changed == source) is (library == "stable_baselines3")
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    names = vars(main)
    exec(compile(changed, f"{name}.py", "exec"), names)
    used = {value.__module__ for key, value in names.items() if key in ("DQN", "PPO")}
    assert all(module.startswith(library) for module in used)
    result: dict[str, Any] = names["RESULT"]
    return result


@SLOW
def test_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = run("readme", OURS, tmp_path / "ours", monkeypatch)
    assert ours["ends"] <= 3  # a random player drops the pole nine times in 200 steps
    assert ours["episodes"] > 5


@FULL
def test_atari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = run("atari", OURS, tmp_path / "ours", monkeypatch)
    theirs = run("atari", "stable_baselines3", tmp_path / "theirs", monkeypatch)
    assert ours["updates"] == theirs["updates"]  # train_freq counts steps of all environments
    assert ours == theirs


@FULL
def test_own_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = run("own_parts", OURS, tmp_path / "ours", monkeypatch)
    assert ours["mean"] == 1.0
    assert ours["prefers left"]
    assert ours["episodes"] == ours["monitored"] > 20


@FULL
def test_normalized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = run("normalized", OURS, tmp_path / "ours", monkeypatch)
    assert min(ours["returns"]) < -300  # raw, as the Monitor reports them
    assert ours["mean"] < -100
    assert ours["count"] > 1_000


@FULL
def test_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = run("zoo", OURS, tmp_path / "ours", monkeypatch)
    assert ours["evaluated"][:2] == [1_000, 2_000]
    assert ours["best"] > 150
    assert ours["loaded"]
    assert ours["updates"] == (ours["timesteps"] // 64 - 500 // 64) * 32
    assert 0.0 <= ours["rate"] < 2.3e-3
