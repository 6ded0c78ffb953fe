"""`sb-dqn plot` of many runs: normalization, the runs that it refuses, and pictures."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sb_dqn.cli.plots.kinds import Request, draw
from sb_dqn.cli.plots.normalization import ATARI_ID, human_scores, make_normalization
from sb_dqn.cli.plots.runs import find_runs, parse_target
from sb_dqn.cli.plots.watch import Drawn, is_active, watch
from sb_dqn.errors import ConfigurationError
from sb_dqn.plotting.picture import STYLES, draw_curves, draw_profiles, new_axes, number_text, spread, styled
from sb_dqn.plotting.series import Series
from sb_dqn.runs.folder import Result as RunResult
from sb_dqn.runs.folder import write_result
from sb_dqn.runs.folder_lock import lock_folder
from tests.command import call, run_main
from tests.marks import SLOW, a_few


@settings(max_examples=200)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
def test_labels_are_apart_in_order_and_stay_where_there_is_room(heights: list[float]) -> None:
    given_heights, gap = np.array(heights), 5.0
    placed = spread(given_heights, gap)
    order = np.argsort(given_heights, kind="stable")
    assert (np.diff(placed[order]) >= gap - 1e-6).all()
    assert placed.mean() == pytest.approx(given_heights.mean(), abs=1e-6)
    if (np.diff(given_heights[order]) >= gap).all():
        np.testing.assert_allclose(placed, given_heights)


@pytest.mark.parametrize(
    ("env_id", "game"),
    [
        ("ALE/Pong-v5", "Pong"),
        ("MsPacmanNoFrameskip-v4", "MsPacman"),
        ("BreakoutDeterministic-v0", "Breakout"),
        ("MinAtar/Breakout-v1", None),
        ("my_package:Pong-v0", None),
    ],
)
def test_games_are_recognized_by_id(env_id: str, game: str | None) -> None:
    match = ATARI_ID.fullmatch(env_id)
    assert (match[1] if match else None) == game


def test_human_scores_of_57_games() -> None:
    scores = human_scores()
    assert len(scores) == 57
    assert scores["Pong"] == (-20.7, 14.6)
    normalization = make_normalization(None, {"ALE/Pong-v5": np.zeros(1), "BreakoutNoFrameskip-v4": np.zeros(1)})
    assert normalization.label == "human-normalized score"
    np.testing.assert_allclose(normalization.apply("ALE/Pong-v5", np.array([-20.7, 14.6, 21.0])), [0, 1, 41.7 / 35.3])
    assert normalization.apply("BreakoutNoFrameskip-v4", np.array([16.1])) == pytest.approx(0.5)


def test_minmax_and_file(tmp_path: Path) -> None:
    returns = {"A-v0": np.array([10.0, 30.0, 20.0]), "B-v0": np.array([-1.0, 0.0])}
    minmax = make_normalization(None, returns)
    assert minmax.label == "min-max normalized score"
    np.testing.assert_allclose(minmax.apply("A-v0", returns["A-v0"]), [0, 1, 0.5])
    (tmp_path / "ranges.yaml").write_text("A-v0: [0, 40]\nB-v0: [-2, 0]\n")
    read = make_normalization(str(tmp_path / "ranges.yaml"), returns)
    np.testing.assert_allclose(read.apply("A-v0", returns["A-v0"]), [0.25, 0.75, 0.5])
    np.testing.assert_allclose(make_normalization(None, {"A-v0": returns["A-v0"]}).apply("A-v0", np.ones(1)), [1])


def write_run(
    folder: Path,
    returns: Sequence[float],
    *,
    env_id: str = "CartPole-v1",
    algorithm: str = "DQN",
    seed: int = 0,
    steps: int = 400,
    final: float | None = None,
    **settings: Any,
) -> Path:
    """Writes the files of a run with equally spaced evaluations, finished if it has a final return."""
    folder.mkdir(parents=True)
    config = {
        "algorithm": algorithm,
        "env_id": env_id,
        "n_envs": 1,
        "env_kwargs": {},
        "policy": "MlpPolicy",
        "n_timesteps": steps,
        "settings": {"gamma": 0.99, "seed": seed, "device": "cpu", **settings},
        "started": f"2026-01-01T00:00:{seed:02}",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    if returns:
        timesteps = np.arange(1, len(returns) + 1) * (steps // len(returns))
        np.savez(folder / "evaluations.npz", timesteps=timesteps, results=np.array(returns)[:, None], ep_lengths=[1])
    if final is not None:
        write_result(folder / ".", RunResult(steps, 1.0, (final - 1, final + 1)))
    return folder


def write_study(root: Path, env_ids: Sequence[str] = ("CartPole-v1", "Acrobot-v1")) -> Path:
    """Writes runs of DQN and PPO with three seeds; PPO is better by 5, and Acrobot has twice the steps."""
    for env_id in env_ids:
        for algorithm, bonus in {"DQN": 0, "PPO": 5}.items():
            for seed in range(3):
                level = (-100 if "Acrobot" in env_id else 0) + bonus + seed
                write_run(root / env_id / f"{algorithm}_{seed}", [level, level + 10.0, level + 20], env_id=env_id,
                          algorithm=algorithm, seed=seed, steps=600 if "Acrobot" in env_id else 300,
                          final=level + 20)  # fmt: skip
    return root


def drawing(root: Path, kind: str, style: str = "screen", **options: Any) -> tuple[Any, list[str]]:
    """Returns the axes and the lines of text of a plot."""
    request = Request(kind, STYLES[style], **options)
    with styled(request.style):
        figure, lines, _ = draw(find_runs([parse_target(str(root))]), request)
    return figure.axes[0], lines


def test_curves_of_one_environment(tmp_path: Path) -> None:
    """Three seeds differ by 1, and their interquartile mean is their mean."""
    axes, texts = drawing(write_study(tmp_path, ["CartPole-v1"]), "curves")
    lines = {line.get_color(): line.get_xydata().tolist() for line in axes.lines}
    assert list(lines.values()) == [[[100, 1], [200, 11], [300, 21]], [[100, 6], [200, 16], [300, 26]]]
    assert texts[0].startswith("DQN: IQM 21 [20")
    assert [text.get_text() for text in axes.texts] == ["DQN", "PPO"]
    assert axes.get_ylabel() == "IQM of the return"


def test_curves_of_environments_with_different_steps_are_over_the_share(tmp_path: Path) -> None:
    """The range of minmax is that of all evaluations: 0 to 27 on CartPole, -100 to -73 on Acrobot."""
    axes, texts = drawing(write_study(tmp_path), "curves")
    (first, _) = axes.lines
    np.testing.assert_allclose(first.get_xdata(), [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(first.get_ydata(), np.array([1, 11, 21]) / 27)
    assert axes.get_ylabel() == "IQM of the min-max normalized score"
    assert texts[0].endswith("after 100% of the training")


@SLOW
def test_final_scores_profile_and_improvement(tmp_path: Path) -> None:
    root = write_study(tmp_path)
    assert drawing(root, "iqm", normalize="minmax")[1][0].startswith(f"DQN: IQM {21 / 27:.3g} [")
    assert drawing(root, "profile")[1] == ["DQN: median 0.778", "PPO: median 0.963"]
    assert drawing(root, "improvement")[1] == ["P(PPO > DQN) = 1 [1, 1]"]
    assert drawing(root, "improvement", baseline="PPO")[1] == ["P(DQN > PPO) = 0 [0, 0]"]
    colors = {kind: [line.get_color() for line in drawing(root, kind)[0].lines] for kind in ("curves", "improvement")}
    assert colors["improvement"][-2] == colors["curves"][1]  # PPO has the color that it has in other plots


@SLOW
@pytest.mark.parametrize("kind", a_few(["curves", "iqm", "profile", "improvement"], "curves", "iqm"))
def test_pictures_in_both_styles(tmp_path: Path, kind: str) -> None:
    root = write_study(tmp_path / "runs")
    done = call("plot", root, "--kind", kind)
    assert done.exit_code == 0, done.output
    assert (root / f"plot_{kind}.png").read_bytes().startswith(b"\x89PNG")
    done = call("plot", root / "CartPole-v1", root / "Acrobot-v1", "--kind", kind, "--style", "paper")
    assert done.output.splitlines()[-1] == str(root / f"plot_{kind}.pdf")  # the folder that contains both
    content = (root / f"plot_{kind}.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/Type3" not in content
    assert (b"/FontFile2" in content) is True
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []  # nothing temporary is left


def test_labels_of_folders(tmp_path: Path) -> None:
    for name, gamma in {"low": 0.9, "high": 0.999}.items():
        write_run(tmp_path / name / "run", [1.0, 2.0], gamma=gamma)
    done = call("plot", f"low={tmp_path / 'low'}", f"high={tmp_path / 'high'}", "--output", tmp_path / "a.svg")
    assert done.exit_code == 0, done.output
    assert [line.split(":")[0] for line in done.output.splitlines() if " IQM " in line] == ["low", "high"]


@SLOW
def test_unfinished_and_repeated_runs(tmp_path: Path) -> None:
    """A crashed run is replaced by the finished one with its seed; an unfinished run shortens the curve, with a note."""
    write_run(tmp_path / "a_1", [], seed=0)
    write_run(tmp_path / "a_2", [1.0, 2.0, 3.0, 4.0], seed=0, final=4.0)
    write_run(tmp_path / "b_1", [1.0], seed=1, steps=100)
    config = yaml.safe_load((tmp_path / "b_1/config.yaml").read_text())
    (tmp_path / "b_1/config.yaml").write_text(yaml.safe_dump({**config, "n_timesteps": 400}))
    write_run(tmp_path / "c_1", [], seed=2)
    done = call("plot", tmp_path)
    assert "DQN: IQM 1 [1, 1] after 100 env steps" in done.output
    assert "DQN on CartPole-v1, seed 1" in done.stderr
    assert "the curve of DQN ends where its shortest run ends" in done.stderr
    assert "seed 2" in done.stderr
    assert "a_1" not in done.stderr
    done = call("plot", tmp_path, "--kind", "iqm")
    assert "DQN: IQM 4\n" in done.output
    assert "is left out: it has no result of final episodes yet" in done.stderr


def test_runs_of_different_length_are_reported(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [1.0], final=1.0)
    write_run(tmp_path / "b", [1.0], algorithm="PPO", steps=800, final=1.0)
    done = call("plot", tmp_path, "--kind", "improvement")
    assert "the runs on CartPole-v1 differ in length: DQN has 400 env steps, PPO 800" in done.stderr


def missing_runs(root: Path) -> None:
    write_study(root)
    for path in (root / "Acrobot-v1").glob("PPO_*"):
        path.rename(path.with_name(f"{path.name}_moved")).joinpath("config.yaml").unlink()


def missing_seeds(root: Path) -> None:
    write_study(root)
    (root / "Acrobot-v1/PPO_2/config.yaml").unlink()


def other_settings(root: Path) -> None:
    write_run(root / "a", [1.0], gamma=0.9)
    write_run(root / "b", [1.0], gamma=0.8, seed=1)


def same_seed(root: Path) -> None:
    write_run(root / "a", [1.0], final=1.0)
    write_run(root / "b", [1.0], final=1.0)


def unfinished(root: Path) -> None:
    write_study(root)
    (root / "Acrobot-v1/PPO_2/evaluations.npz").unlink()


def no_runs(root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub/config.yaml").write_text("a: 1\n")


def constant(root: Path) -> None:
    for env_id in ("A-v0", "B-v0"):
        write_run(root / env_id, [9.0], env_id=env_id)


def bad_file(root: Path) -> None:
    write_study(root)
    (root / "bad.yaml").write_text("CartPole-v1: 3\n")


def bad_range(root: Path) -> None:
    write_study(root)
    (root / "bad.yaml").write_text("CartPole-v1: [3, 3]\nAcrobot-v1: [0, .inf]\n")


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (missing_runs, [], "got none of PPO on Acrobot-v1"),
        (missing_seeds, [], "got PPO with 3 on CartPole-v1 and 2 on Acrobot-v1 (seeds 2 are missing)"),
        (unfinished, [], "Train the missing ones. Note: PPO on Acrobot-v1, seed 2 ("),
        (other_settings, [], "must have the same settings, got different gamma in"),
        (same_seed, [], "with the same seed of DQN"),
        (no_runs, [], "in which no config.yaml names an algorithm"),
        (constant, [], "got 9 from all runs on A-v0"),
        (constant, ["--kind", "iqm"], "must be used with runs that have finished final episodes, got 2 without"),
        (write_study, ["--normalize", "human"], "got none of Acrobot-v1, CartPole-v1"),
        (write_study, ["--normalize", "none"], "--normalize none must be used with one environment"),
        (write_study, ["--normalize", "humans"], "--normalize must be one of human, minmax, none or a YAML file, got 'humans'"),
        (bad_file, ["--normalize", "{root}/bad.yaml"], "must have lines `ENV: [low, high]` with numbers"),
        (bad_range, ["--normalize", "{root}/bad.yaml"], "got equal or infinite ones for CartPole-v1, Acrobot-v1"),
        (write_study, ["--kind", "improvement", "--baseline", "PP"], "--baseline must be one of DQN, PPO, got 'PP'"),
        (write_study, ["--kind", "improvement", "--normalize", "minmax"], "does not depend on the scale"),
        (write_study, ["--baseline", "DQN"], "--baseline must be used with --kind improvement"),
        (write_study, ["--against", "time"], "--against time must be used with one RUN"),
        (constant, ["--kind", "improvement"], "finished final episodes"),
        (write_study, ["--output", "a.xyz"], "the name of a picture must end in"),
        (write_study, ["{root}/none"], "is not a folder"),
    ],
)  # fmt: skip
def test_user_error_is_one_message_and_status_2(
    make: Any,
    options: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path)
    words = [option.format(root=tmp_path) for option in options]
    assert run_main("plot", tmp_path, *words) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert "Traceback" not in error
    assert list(tmp_path.glob("plot_*")) == []


def test_colors_and_dashes_tell_many_curves_apart() -> None:
    x, y = np.array([1.0, 2.0]), np.array([0.0, 1.0])
    curves = [Series("line", x, y, color=number, label=f"algorithm {number}") for number in range(12)]
    with styled(STYLES["paper"]):
        figure, axes = new_axes(STYLES["paper"], 2.0, "")
        draw_curves(figure, axes, curves)
    looks = [(line.get_color(), line.get_linestyle()) for line in axes.lines]
    assert len(set(looks)) == 12


def test_legend_of_many_algorithms_fits_into_a_column() -> None:
    x, y = np.arange(3.0), np.array([1.0, 0.5, 0.0])
    lines = [
        Series("line", x, y, color=number, label=f"an algorithm with a long name {number}") for number in range(21)
    ]
    style = STYLES["paper"]
    with styled(style):
        figures = [draw_profiles(style, profiles, "score", "") for profiles in (lines[:2], lines[:9], lines)]
        for figure in figures:
            figure.draw_without_rendering()
    extents = [figure.legends[0].get_window_extent() for figure in figures]
    assert all(
        extent.x0 >= 0 and extent.x1 <= figure.bbox.width for extent, figure in zip(extents, figures, strict=True)
    )
    heights = [figure.axes[0].get_window_extent().height for figure in figures]
    assert min(heights) > 0.8 * heights[0]


def test_few_high_scores_do_not_squeeze_a_profile() -> None:
    thresholds = np.append(np.linspace(0, 1, 101), 14.0)
    values = np.append(np.linspace(1, 0.01, 101), 0.0)
    shown = {}
    for name, end in {"tail": 14.0, "no tail": 1.2}.items():
        places = np.append(thresholds[:-1], end)
        with styled(STYLES["screen"]):
            figure = draw_profiles(STYLES["screen"], [Series("line", places, values, label="DQN")], "score", "")
        shown[name] = figure.axes[0].get_xlim()[1]
    assert shown == {"tail": pytest.approx(0.98), "no tail": 1.2}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.98765, "0.988"),
        (-81.35, "-81.3"),
        (999.4, "999"),
        (999.7, "1,000"),
        (-999.5, "-1,000"),
        (12345.6, "12,346"),
        (0.0, "0"),
    ],
)
def test_numbers_have_three_digits_but_no_exponent(value: float, text: str) -> None:
    assert number_text(value) == text


def test_watch_draws_until_the_run_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last picture is drawn after the run has released its lock; an early error delays the first one."""
    run = write_run(tmp_path / "run", [1.0, 2.0])
    lock = lock_folder(run, "locked")
    events: list[str] = []

    def draw() -> Drawn:
        events.append("active" if is_active(tmp_path) else "ended")
        if len(events) == 1:
            raise ConfigurationError("no episode yet.")
        if len(events) == 3:
            lock.__exit__(None, None, None)
        return Drawn(tmp_path / "a.png")

    lock.__enter__()
    assert watch(draw, [tmp_path], 0.01).picture == tmp_path / "a.png"
    assert events == ["active", "active", "active", "ended"]
    assert capsys.readouterr().out.splitlines() == [
        "waiting: no episode yet.",
        f"drawing {tmp_path / 'a.png'} every 0.01 s until the run ends; Ctrl-C stops",
    ]
    with pytest.raises(ConfigurationError, match="never"):
        watch(lambda: (_ for _ in ()).throw(ConfigurationError("never.")), [tmp_path], 0.01)


def raise_not_implemented(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_without_locks_a_run_ends_with_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filelock, "lock_descriptor", raise_not_implemented)
    run = write_run(tmp_path / "run", [1.0])
    (run / ".lock").touch()
    assert is_active(tmp_path)
    write_result(run, RunResult(400, 1.0, (5.0,)))
    assert not is_active(tmp_path)


@SLOW
@pytest.mark.parametrize("target", ["run", "."])
def test_ctrl_c_ends_watching_with_status_130(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    def interrupt(seconds: float) -> None:
        assert seconds == (10 if target == "." else 2)
        raise KeyboardInterrupt

    run = write_run(tmp_path / "run", [1.0, 2.0])
    monkeypatch.setattr("sb_dqn.cli.plots.watch.time.sleep", interrupt)
    with lock_folder(run, "locked"):
        done = call("plot", tmp_path / target, "--watch", *(["2"] if target == "run" else []))
    assert done.exit_code == 130
    assert done.output.endswith("Ctrl-C stops\n\nstopped\n")
    assert len(list(tmp_path.rglob("*.png"))) == 1


def test_watch_refuses_wrong_options_at_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0])
    with lock_folder(run, "locked"), pytest.raises(ConfigurationError, match="--normalize must be one of"):
        call("plot", tmp_path, "--normalize", "humans", "--watch")
