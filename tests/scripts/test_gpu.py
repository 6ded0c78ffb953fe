"""Tests of `scripts/gpu` on a machine without CUDA: stages that need it are not run, and never passed."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import sb_dqn
from sb_dqn.accelerate import cuda_graph
from sb_dqn.accelerate.backends import MAKERS
from sb_dqn.core.arguments import constructor_arguments
from scripts.benchmarks import gpu, gpu_models, gpu_stages
from scripts.benchmarks.gpu_models import Run
from scripts.benchmarks.gpu_stages import STAGES, Setup
from scripts.benchmarks.peer_game import Game
from tests.graphs import CpuGraph
from tests.marks import FULL, SLOW


def lines_of(out: Path) -> dict[str, dict[str, object]]:
    return {line["stage"]: line for line in map(json.loads, out.read_text().splitlines())}


@FULL
def test_stages_without_a_device_are_reported_as_not_run(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--device", "cpu", "--out", str(out)]) == 0
    lines = lines_of(out)
    assert list(lines) == list(STAGES)
    assert lines["facts"]["status"] == "passed"
    assert {line["status"] for name, line in lines.items() if name != "facts"} == {"not run"}


@FULL
def test_a_stage_that_fails_is_reported_and_the_next_one_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES, "memory", STAGES["memory"]._replace(limit=1e-3, needs_cuda=False))
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--device", "cpu", "--out", str(out), "--stages", "memory", "facts"]) == 1
    first, second = map(json.loads, out.read_text().splitlines())
    assert (first["status"], second["status"]) == ("failed", "passed")
    assert "not finished" in first["why"]


def test_a_stage_that_raises_has_a_reason() -> None:
    """The stage of another device's rows fails in its process, before it imports torch."""
    line = gpu.run_stage("training", Setup("cpu", rehearse=True, names=("BTR",)), timeout=60.0)
    assert line["status"] == "failed"
    assert "names must be among" in str(line["why"])


def script_of(monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """Replaces the process of a stage by one that runs `lines`."""
    run = gpu.run_with_children
    monkeypatch.setattr(gpu, "run_with_children", lambda command, limit: run([sys.executable, "-c", lines], limit))


FIGURE = "import time; print('figures: {\"one\": 1.0}', flush=True)"


@SLOW
@pytest.mark.parametrize("end", ["time.sleep(60)", "raise OSError"])
def test_figures_of_a_stage_that_does_not_reach_its_end_are_kept(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script_of(monkeypatch, f"{FIGURE}; {end}")
    line = gpu.run_stage("updates", Setup("cuda"), timeout=5.0)
    assert line["status"] == "failed"
    assert line["figures"] == {"one": 1.0}


@SLOW
def test_a_line_that_was_cut_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    script_of(monkeypatch, f"{FIGURE}; print('figures: {{\"one\": 1.0, \"tw', end='', flush=True); time.sleep(60)")
    line = gpu.run_stage("updates", Setup("cuda"), timeout=3.0)
    assert line["status"] == "failed"
    assert line["figures"] == {"one": 1.0}


@SLOW
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc")
def test_processes_that_a_stage_started_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    child = "import subprocess, sys, time; child = subprocess.Popen(['sleep', '600']); "
    script_of(monkeypatch, f"{child}print('figures: {{\"child\": %d}}' % child.pid, flush=True); time.sleep(60)")
    pid = gpu.run_stage("updates", Setup("cuda"), timeout=3.0)["figures"]["child"]
    deadline = time.monotonic() + 10.0
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def is_running(pid: int) -> bool:
    """Returns True for a process that has not ended; one that nobody has waited for has."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_the_stages_of_each_call_fit_in_its_time() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pages" / "training-on-a-gpu.md").read_text()
    calls = re.findall(r"scripts/gpu --stages ([a-z_ ]+) --minutes (\d+)", page)
    assert [name for names, _ in calls for name in names.split()] == [*STAGES]
    for names, minutes in calls:
        assert sum(STAGES[name].limit for name in names.split()) <= 60 * int(minutes) <= 600
    for name, stage in STAGES.items():
        assert f"| {stage.limit:.0f} | `{name}` |" in page


@SLOW
def test_games_of_the_peer_need_no_opencv() -> None:
    game = Game(gpu_models.ATARI)
    frames, _ = game.reset(seed=0)
    assert (frames.shape, frames.dtype) == ((84, 84, 1), np.uint8)
    assert game.observation_space.contains(frames)
    for _ in range(2_000):  # Pong ends at 21 points
        following, reward, terminated, truncated, _ = game.step(game.action_space.sample())
        assert reward in (-1.0, 0.0, 1.0)
        if terminated or truncated:
            break
    assert terminated
    assert not np.array_equal(frames, following)
    assert game.reset()[0].shape == (84, 84, 1)


def test_output_after_the_figures_is_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    script_of(monkeypatch, f"{FIGURE}; print('{{}}')")
    assert gpu.run_stage("updates", Setup("cuda"), timeout=30.0) | {"seconds": 0} == {
        "stage": "updates", "status": "passed", "seconds": 0, "figures": {"one": 1.0}
    }  # fmt: skip


def test_results_go_to_the_folder_that_out_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUT", str(tmp_path))
    assert gpu._parse([]).out == tmp_path / "gpu.jsonl"


@FULL
def test_a_rehearsal_is_never_passed(tmp_path: Path) -> None:
    out = tmp_path / "gpu.jsonl"
    assert gpu.main(["--rehearse", "--out", str(out), "--stages", "facts"]) == 0
    assert lines_of(out)["facts"]["status"] == "rehearsed"


@FULL
def test_stages_run_in_small() -> None:
    """One row of each kind; `scripts/gpu --rehearse` runs all of them."""
    figures = [
        gpu_stages.updates(Setup("cpu", True, ("DQN 64-64", "SAC 256-256", "PPO Nature"))),
        gpu_stages.training(Setup("cpu", True, ("DQN CartPole on the CPU", "PQN Nature, 128 lanes"))),
        gpu_stages.rates(Setup("cpu", True, ("DQN Nature, 8 lanes, overlapped",))),
        gpu_stages.truth(Setup("cpu", True)),
    ]
    assert all(each and not each.failures for each in figures), figures
    assert list(figures[0])[:2] == ["DQN 64-64, eager", "DQN 64-64, traced"]


def failing(function: Any, example: Any) -> Any:
    raise RuntimeError("no compiler")


@SLOW
@pytest.mark.parametrize("name", ["DQN 64-64", "PPO 64-64"])
def test_there_is_no_figure_of_a_mode_that_falls_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = {**gpu_models.UPDATES, "PPO 64-64": SMALL_PPO}[name]
    monkeypatch.setitem(MAKERS, "traced", (failing, "tracing"))
    figures = gpu_stages.Figures()
    figures.measure(name, lambda: gpu_stages.update_time(run, "traced", Setup("cpu", rehearse=True)))
    assert "tracing failed, running without it: no compiler" in figures[name]
    assert figures.failures == [figures[name]]


def test_there_is_no_figure_of_a_graph_where_the_update_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graph, "CudaGraph", lambda device: CpuGraph())
    model = gpu_models.make_model(gpu_models.UPDATES["DQN 64-64"], "cpu", rehearse=True)
    model.mode = "eager"
    gpu_models.warm_up(model)
    with pytest.raises(RuntimeError, match="the update must be a CUDA graph, got partial"):
        gpu_models.traced_update(model, "cuda")
    model.mode = "captured"
    model.gradient_step()
    assert isinstance(gpu_models.traced_update(model, "cuda")[1], cuda_graph.Captured)


SMALL_PPO = Run("PPO", "MlpPolicy", "CartPole-v1", 2, {})


@SLOW
def test_the_time_of_an_update_of_ppo_holds_no_environment_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it does not depend on how fast the environment is."""
    steps: list[Any] = []
    updates: list[Any] = []
    step = CartPoleEnv.step

    def counted(env: CartPoleEnv, action: Any) -> Any:
        steps.append(action)
        return step(env, action)

    def measured(call: Callable[[], Any], seconds: float) -> float:
        before = len(steps)
        assert before
        updates.extend(call() for _ in range(40))  # more than one epoch's
        assert len(steps) == before
        return 1.0

    monkeypatch.setattr(CartPoleEnv, "step", counted)
    monkeypatch.setattr(gpu_stages, "_microseconds", measured)
    assert gpu_stages.update_time(SMALL_PPO, "traced", Setup("cpu", rehearse=True)) == 1.0
    assert all(update.loss.isfinite() for update in updates)


TABLES = (gpu_models.UPDATES, gpu_models.GRAPHS, gpu_models.TRAINING, gpu_models.RATES)
ROWS = {name: run for table in TABLES for name, run in table.items() if run.library == "sb_dqn"}


@pytest.mark.parametrize("name", ROWS)
def test_settings_are_keywords_of_their_algorithm(name: str) -> None:
    run = ROWS[name]
    assert run.settings.keys() <= constructor_arguments(getattr(sb_dqn, run.algorithm)).keys()
    assert set(gpu_models.COMPILED) <= set(gpu_models.UPDATES)
