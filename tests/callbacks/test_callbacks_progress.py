"""Progress bar callback: a live bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from sb_dqn.callbacks import CallbackList, ProgressBarCallback, as_callback, progress
from tests.marks import FULL

pytestmark = pytest.mark.usefixtures("eagerly")

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""Escape sequences that hide and show the cursor of a terminal."""


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False, _environ={"TERM": "xterm"})


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the clock by one on which each look takes a second."""
    seconds = iter(range(10_000))
    monkeypatch.setattr("sb_dqn.callbacks.progress.time.perf_counter", lambda: next(seconds))


def test_a_line_every_ten_seconds_without_a_terminal(make_model: Any, make_loop: Any, capsys: Any, clock: None) -> None:
    model = make_model(4)
    model.ep_info_buffer.extend({"r": r, "l": 1, "t": 0.0} for r in (10.0, 20.5))
    make_loop(model, ProgressBarCallback()).learn(ticks=250)
    lines = capsys.readouterr().out.splitlines()
    steps = [int(line.split("/")[0].replace(",", "")) for line in lines]
    assert steps == [40, *range(76, 1000, 36), 1000]  # 10 ticks of 4 steps, then 9: a line itself reads the clock, too
    assert lines[-1].startswith("1,000/1,000 steps (100%)")
    assert all("steps/s  mean return 15.25" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_resumed_run_begins_where_it_was(model: Any, make_loop: Any, capsys: Any, clock: None) -> None:
    model.num_timesteps = 1000
    make_loop(model, ProgressBarCallback()).learn(ticks=20)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "1,010/1,020 steps (99%)"
    assert lines[-1].split("  ")[0] == "1,020/1,020 steps (100%)"
    assert "mean return" not in lines[0]  # no finished episode


def test_the_bar_of_a_resumed_run_begins_where_it_was(model: Any, make_loop: Any) -> None:
    model.num_timesteps, console = 1000, terminal()
    make_loop(model, ProgressBarCallback(console)).learn(ticks=20)
    assert "1000/1020" in written(console)
    assert "1020/1020" in written(console)
    assert " 0/20 " not in written(console)


def test_a_run_of_less_than_ten_seconds_prints_its_end(make_model: Any, make_loop: Any, capsys: Any) -> None:
    make_loop(make_model(64), ProgressBarCallback()).learn(ticks=2)
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["128/128 steps (100%)"]


def test_a_live_bar_restores_the_terminal(model: Any, make_loop: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    model.ep_info_buffer.append({"r": 7.0, "l": 1, "t": 0.0})
    console = terminal()
    make_loop(model, ProgressBarCallback(console)).learn(ticks=30)
    text = written(console)
    assert all(part in text for part in ("15/30", "30/30", "mean return 7.00"))
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert text.rindex(SHOW) > text.rindex(HIDE)


def test_the_terminal_is_restored_after_an_error(model: Any, make_loop: Any) -> None:
    stdout, console = sys.stdout, terminal()

    def fail(locals_: Any, globals_: Any) -> bool:
        assert sys.stdout is not stdout or HIDE in written(console)
        raise RuntimeError("mine")

    bar = ProgressBarCallback(console)
    with pytest.raises(RuntimeError, match="mine"):
        make_loop(model, CallbackList([bar, as_callback(fail)])).learn(ticks=30)
    assert sys.stdout is stdout
    assert written(console).rindex(SHOW) > written(console).rindex(HIDE)
    bar.close()  # a second time
    make_loop(model, bar).learn(ticks=3)  # the next learn shows a bar again
    assert "4/4" in written(console)


@FULL
def test_rich_is_not_imported_before_a_bar_is_shown() -> None:
    code = "import sys, sb_dqn.callbacks.progress as p; p.ProgressBarCallback(); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
