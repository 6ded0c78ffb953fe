"""Progress bar callback: a live bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from sb_dqn.callbacks import CallbackList, ProgressBarCallback, as_callback, progress
from tests.full import FULL

pytestmark = pytest.mark.usefixtures("eagerly")

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""Escape sequences that hide and show the cursor of a terminal."""


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False, _environ={"TERM": "xterm"})


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_lines_without_a_terminal(make_model: Any, make_loop: Any, capsys: Any) -> None:
    model = make_model(4)
    model.ep_info_buffer.extend({"r": r, "l": 1, "t": 0.0} for r in (10.0, 20.5))
    make_loop(model, ProgressBarCallback()).learn(ticks=250)
    lines = capsys.readouterr().out.splitlines()
    expected = [f"{n:,}/1,000 steps ({n // 10}%)" for n in range(100, 1001, 100)]
    assert [line.split("  ")[0] for line in lines] == expected
    assert all("steps/s  mean return 15.25" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_a_second_learn_starts_at_0_percent(model: Any, make_loop: Any, capsys: Any) -> None:
    model.num_timesteps = 1000
    make_loop(model, ProgressBarCallback()).learn(ticks=20)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "1,002/1,020 steps (10%)"
    assert lines[-1].split("  ")[0] == "1,020/1,020 steps (100%)"
    assert "mean return" not in lines[0]  # no finished episode


def test_more_steps_per_tick_than_per_line(make_model: Any, make_loop: Any, capsys: Any) -> None:
    make_loop(make_model(64), ProgressBarCallback()).learn(ticks=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["64/128 steps (50%)", "128/128 steps (100%)"]


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
    assert "3/3" in written(console)


@FULL
def test_rich_is_not_imported_before_a_bar_is_shown() -> None:
    code = "import sys, sb_dqn.callbacks.progress as p; p.ProgressBarCallback(); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
