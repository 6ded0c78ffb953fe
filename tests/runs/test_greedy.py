"""Evaluation episodes of the commands: progress output, and a limit on env steps."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from sb_dqn.callbacks import progress
from sb_dqn.evaluation import Episodes
from sb_dqn.runs import greedy
from sb_dqn.runs.folder import read_result
from tests.command import call
from tests.marks import SLOW

pytestmark = pytest.mark.usefixtures("eagerly")

TRAIN = ["train", "dqn", "CartPole-v1", "--timesteps", "300", "--seed", "1", "--set", "learning_starts=50", "--eval-freq", "0",
         "--set", "policy_kwargs={net_arch: [16]}", "--set", "gradient_steps=1", "--no-progress"]  # fmt: skip


def train(folder: Path, *options: str | int) -> tuple[Path, str]:
    """Trains a run; returns its folder and the output."""
    done = call(*TRAIN, "--folder", folder, *options)
    assert done.exit_code == 0, done.output
    return folder / "dqn_CartPole-v1_1", done.output


@SLOW
def test_final_episodes_option_is_kept_on_resume(tmp_path: Path) -> None:
    run, output = train(tmp_path, "--final-episodes", 3)
    assert "over 3 greedy episodes" in output
    result = read_result(run)
    assert (result.steps, len(result.returns), result.unfinished_episodes) == (300, 3, 0)
    assert result.evaluation is not None
    assert result.evaluation.steps >= sum(result.returns)  # CartPole pays a reward of 1 per step
    assert "over 3 greedy episodes" in call("resume", run, "--timesteps", 40, "--no-progress").output
    assert "over 4 greedy episodes" in call("resume", run, "-n", 40, "--no-progress", "--final-episodes", 4).output


@SLOW
def test_run_without_final_episodes_is_finished(tmp_path: Path) -> None:
    run, output = train(tmp_path, "--final-episodes", 0)
    assert "not evaluated, because --final-episodes is 0" in output
    assert (read_result(run).returns, read_result(run).finished) == ((), True)
    assert "has finished its 300 steps. Pass the number of further steps with --timesteps N" in " ".join(
        call("resume", run).output.split()
    )


@SLOW
def test_step_limit_reports_how_many_episodes_finished(tmp_path: Path) -> None:
    run, output = train(tmp_path, "--final-steps", 30)  # 6 steps in each of 5 lanes; CartPole takes at least 8
    assert "no mean return: none of 20 greedy episodes finished within 30 env steps" in output
    assert "--final-steps N" in output
    result = read_result(run)
    assert result.evaluation is not None
    assert (result.returns, result.finished, result.unfinished_episodes, result.evaluation.steps) == ((), True, 20, 30)
    assert yaml.safe_load((run / "result.yaml").read_text())["evaluation"]["episodes"] == 20
    cut = call("evaluate", run, "--episodes", 40, "--max-steps", 60).output
    assert " of 40 episodes that finished within 60 env steps; short episodes are over-represented" in cut


def test_step_limit_follows_the_training_steps() -> None:
    limits = [greedy.final_step_limit(None, trained) for trained in (1_200, 50_000, 10_000_000)]
    assert limits == [20_000, 50_000, 100_000]
    assert greedy.final_step_limit(700, 50_000) == 700
    assert greedy.final_step_limit(0, 50_000) is None


@SLOW
def test_long_evaluation_prints_progress_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, output = train(tmp_path, "--final-episodes", 2)
    assert "evaluating:" not in output, "a short evaluation prints no lines"
    monkeypatch.setattr(progress, "LINE_INTERVAL", 0.0)
    lines = [line for line in call("evaluate", run, "--episodes", 3).output.splitlines() if "evaluating:" in line]
    assert lines[0] == "evaluating: 0 of 3 episodes, 3 env steps"
    assert any(line.startswith("evaluating: 2 of 3 episodes, ") and ", mean return " in line for line in lines)


def test_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=screen, force_terminal=True, width=120))
    monkeypatch.setattr(progress, "REFRESH", 0.0)

    def play_one(*_: Any, watch: Callable[[Episodes], None], **__: Any) -> Episodes:
        played = Episodes(returns=[3.0], lengths=[7], steps=9)
        watch(played)
        return played

    monkeypatch.setattr("sb_dqn.evaluation.play_episodes", play_one)
    greedy.play(None, None, 4, bar=True, max_steps=1_000)  # type: ignore[arg-type]
    assert "episodes evaluated" in screen.getvalue()
    assert "1/4" in screen.getvalue()
    assert "9 of at most 1,000 env steps, mean return 3.00" in screen.getvalue()
