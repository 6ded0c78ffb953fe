"""Learning curves: reading a run's folder and writing the picture."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sb_dqn.errors import ConfigurationError
from sb_dqn.plotting import plot_curve, read_curve, read_evaluations, read_log
from sb_dqn.plotting.picture import Against
from sb_dqn.plotting.series import running_mean
from tests.marks import SLOW

HEADER = '#{"t_start": 0.0, "env_id": "CartPole-v1"}\n'


def monitors(folder: Path) -> None:
    (folder / "0.monitor.csv").write_text(HEADER + "r,l,t\n10.0,10,1.0\n30.0,30,3.0\n")
    (folder / "1.monitor.csv").write_text(HEADER + "r,l,t\n20.0,20,2.0\n")


def test_episodes_of_all_lanes_are_ordered_by_time(tmp_path: Path) -> None:
    monitors(tmp_path)
    curve = read_curve(tmp_path)
    np.testing.assert_array_equal(curve.steps, [10, 30, 60])
    np.testing.assert_array_equal(curve.seconds, [1, 2, 3])
    np.testing.assert_array_equal(curve.returns, [10, 20, 30])


def test_progress_is_read_without_episode_files(tmp_path: Path) -> None:
    (tmp_path / "progress.csv").write_text(
        "rollout/ep_rew_mean,time/total_timesteps,time/time_elapsed\n,100,1\n21.5,200,2\n23.0,400,4\n"
    )
    curve = read_curve(tmp_path)
    np.testing.assert_array_equal(curve.steps, [200, 400])
    np.testing.assert_array_equal(curve.returns, [21.5, 23.0])


def test_the_last_line_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    monitors(tmp_path)
    (tmp_path / "0.monitor.csv").write_text(HEADER + "r,l,t\n10.0,10,1.0\n30.0,30,3.0\n50.0,5")
    assert read_curve(tmp_path).returns.tolist() == [10, 20, 30]
    (tmp_path / "progress.csv").write_text("a,time/total_timesteps,note\n1.5,100,x\n,200,y\n7,30")
    log = read_log(tmp_path)
    assert log.keys() == {"a", "time/total_timesteps"}  # the column of text has no number
    np.testing.assert_array_equal(log["a"], [1.5, np.nan])
    np.testing.assert_array_equal(log["time/total_timesteps"], [100, 200])


def test_running_mean_uses_only_past_values() -> None:
    np.testing.assert_allclose(running_mean(np.array([1.0, 2.0, 6.0, 1.0]), 2), [1.0, 1.5, 4.0, 3.5])
    np.testing.assert_allclose(running_mean(np.array([3.0, 5.0]), 100), [3.0, 4.0])


@SLOW
@pytest.mark.parametrize("against", ["steps", "time"])
@pytest.mark.parametrize("evaluated", [False, True])
def test_a_picture_is_written(tmp_path: Path, against: Against, evaluated: bool) -> None:
    monitors(tmp_path)
    if evaluated:
        np.savez(
            tmp_path / "evaluations.npz", timesteps=[20, 40], results=[[9.0, 11.0], [25.0, 35.0]], ep_lengths=[[1], [1]]
        )
    picture = plot_curve(tmp_path, tmp_path / "curve.png", "DQN on CartPole-v1, seed 3", against)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000


def test_a_picture_is_the_same_in_a_program_with_a_style_of_its_own(tmp_path: Path) -> None:
    style = pytest.importorskip("matplotlib.style")
    monitors(tmp_path)
    plain = plot_curve(tmp_path, tmp_path / "plain.png").read_bytes()
    with style.context("ggplot"):
        assert plot_curve(tmp_path, tmp_path / "within.png").read_bytes() == plain


@pytest.mark.parametrize("name", ["curve.xyz", "curve"])
def test_an_unknown_ending_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"the name of a picture must end in .*\.png.*\.svg.* got .*{name}"):
        plot_curve(tmp_path, tmp_path / name)


def test_a_picture_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the folder of a picture must exist, got .*curve.png, but .*such does not exist"
    ):
        plot_curve(tmp_path, tmp_path / "no" / "such" / "curve.png")
    monitors(tmp_path)
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ConfigurationError, match=r"cannot write .*folder.png: Is a directory"):
        plot_curve(tmp_path, tmp_path / "folder.png")


def test_an_empty_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "monitor.csv").write_text(HEADER + "r,l,t\n")
    with pytest.raises(ConfigurationError, match=r"folder must have an episode in .*, got .* without them"):
        plot_curve(tmp_path, tmp_path / "curve.png")


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monitors(tmp_path)
    with pytest.raises(ConfigurationError, match=r'pip install "sb_dqn\[plots\]"'):
        plot_curve(tmp_path, tmp_path / "curve.png")


def test_evaluations_are_read_from_a_folder_by_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "evaluations.npz", timesteps=[10, 20], results=[[1.0, 3.0], [5.0, 7.0]])
    steps, returns = read_evaluations(str(tmp_path))
    assert (steps.tolist(), returns.tolist()) == ([10.0, 20.0], [[1.0, 3.0], [5.0, 7.0]])
    assert len(read_evaluations(tmp_path / "none")[0]) == 0


def test_episodes_of_several_lanes_end_at_the_steps_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "monitor.csv").write_text(HEADER + "r,l,t,steps\n10,10,1.0,19\n20,10,1.1,20\n30,10,2.0,40\n")
    curve = read_curve(tmp_path)
    assert curve.steps.tolist() == [19, 20, 40]
    assert curve.lengths.tolist() == [10, 10, 10]


def test_a_curve_over_time_needs_an_episode(tmp_path: Path) -> None:
    np.savez(tmp_path / "evaluations.npz", timesteps=[60], results=[[1.0]])
    with pytest.raises(ConfigurationError, match="against must be 'steps' for a run without an episode"):
        plot_curve(tmp_path, tmp_path / "curve.png", "title", "time")
