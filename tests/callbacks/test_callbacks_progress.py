from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from sb_dqn.callbacks import CallbackList, ProgressBarCallback, as_callback, progress

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
"""What hides and shows the cursor of a terminal."""


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False, _environ={"TERM": "xterm"})


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_lines_where_there_is_no_terminal(make_model: Any, make_loop: Any, capsys: Any) -> None:
    model = make_model(4)
    model.ep_info_buffer.extend({"r": r, "l": 1, "t": 0.0} for r in (10.0, 20.5))
    make_loop(model, ProgressBarCallback()).learn(ticks=250)
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in said] == [f"{n:,}/1,000 steps ({n // 10}%)" for n in range(100, 1001, 100)]
    assert all("steps/s  mean return 15.25" in line for line in said)
    assert "\x1b" not in "".join(said)


def test_a_run_that_goes_on_starts_at_its_own_zero(model: Any, make_loop: Any, capsys: Any) -> None:
    model.num_timesteps = 1000
    make_loop(model, ProgressBarCallback()).learn(ticks=20)
    said = capsys.readouterr().out.splitlines()
    assert (said[0].split("  ")[0], said[-1].split("  ")[0]) == ("1,002/1,020 steps (10%)", "1,020/1,020 steps (100%)")
    assert "mean return" not in said[0]  # no episode has ended


def test_more_steps_in_a_tick_than_in_a_tenth(make_model: Any, make_loop: Any, capsys: Any) -> None:
    make_loop(make_model(64), ProgressBarCallback()).learn(ticks=2)
    said = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in said] == ["64/128 steps (50%)", "128/128 steps (100%)"]


def test_bar_in_a_terminal_is_live_and_leaves_it_as_it_was(model: Any, make_loop: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(progress, "REFRESH", 0.0)
    model.ep_info_buffer.append({"r": 7.0, "l": 1, "t": 0.0})
    console = terminal()
    make_loop(model, ProgressBarCallback(console)).learn(ticks=30)
    text = written(console)
    assert all(part in text for part in ("15/30", "30/30", "mean return 7.00"))
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert text.rindex(SHOW) > text.rindex(HIDE)


def test_an_error_gives_the_terminal_back(model: Any, make_loop: Any) -> None:
    stdout, console = sys.stdout, terminal()

    def fail(locals_: Any, globals_: Any) -> bool:
        assert sys.stdout is not stdout or HIDE in written(console)
        raise RuntimeError("mine")

    bar = ProgressBarCallback(console)
    with pytest.raises(RuntimeError, match="mine"):
        make_loop(model, CallbackList([bar, as_callback(fail)])).learn(ticks=30)
    assert sys.stdout is stdout
    assert written(console).rindex(SHOW) > written(console).rindex(HIDE)
    bar.close()  # once more does no harm
    make_loop(model, bar).learn(ticks=3)  # and the next run has a bar again
    assert "3/3" in written(console)


def test_rich_is_imported_when_a_bar_is_shown_and_not_before() -> None:
    code = "import sys, sb_dqn.callbacks.progress as p; p.ProgressBarCallback(); sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
