"""Scores that other collections of tasks define: bsuite's environments and logs, and the estimate of Atari-5."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from sb_dqn.cli.plots.normalization import human_scores
from sb_dqn.runs.folder import Result, write_result
from scripts.benchmarks import atari5, bsuite_scores
from tests.marks import SLOW


def test_setting_of_bsuite_is_finished_after_its_episodes(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    assert bsuite_scores.logged_episodes(path) == 0
    path.write_text("steps,episode,total_return\n9,1,0\n90,10,3\n")
    assert bsuite_scores.logged_episodes(path) == 10


@SLOW
@pytest.mark.filterwarnings("ignore::FutureWarning:pandas", "ignore:.*grouping columns:FutureWarning")
def test_bsuite_scores_a_finished_setting(tmp_path: Path) -> None:
    pytest.importorskip("bsuite")
    rows = "".join(f"{9 * episode},{episode},{episode},0,0,1,0\n" for episode in (1, 10, 100, 1_000, 10_000))
    header = "steps,episode,total_return,episode_len,episode_return,best_episode,total_regret\n"
    (tmp_path / "bsuite_id_-_catch-0.csv").write_text(header + rows)
    (tmp_path / "bsuite_id_-_catch-1.csv").write_text(header + "9,1,-1,0,0,1,2\n")  # not finished
    header = "steps,episode,total_return,episode_len,episode_return,total_bad_episodes,denoised_return\n"
    # solved by 2^size + 100 episodes, if a tenth of them are good: size 10 is, size 50 is not
    for setting, bad in ((0, 0.8), (20, 0.95)):
        log = "".join(f"0,{episode},0,0,0,{bad * episode:.0f},0\n" for episode in (1_000, 10_000))
        (tmp_path / f"bsuite_id_-_deep_sea-{setting}.csv").write_text(header + log)
    scores = bsuite_scores.scores_of(tmp_path)
    assert scores == {"catch": (1.0, 1), "deep_sea": (0.5, 2)}
    table = tmp_path / "bsuite.csv"
    for agent, found in (
        ("DQN", {"bandit": (0.75, 1), "catch": (0.25, 1)}),
        ("R2D2", {"catch": (0.5, 1)}),
        ("DQN", {"catch": (1.0, 1)}),
    ):
        (tmp_path / agent).mkdir(exist_ok=True)
        (tmp_path / agent / "commits.txt").write_text("b\na\nb\n")
        bsuite_scores.save(table, tmp_path / agent, 100, found)
    with table.open(newline="") as file:
        saved = [(row["agent"], row["kinds"], row["score"], row["of"], row["commit"]) for row in csv.DictReader(file)]
    kinds = "basic credit_assignment"
    assert saved == [
        ("DQN", "basic", "0.75", "20", "a b"),
        ("R2D2", kinds, "0.5", "20", "a b"),
        ("DQN", kinds, "1.0", "20", "a b"),
    ]


def test_experiment_that_bsuite_does_not_have_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("bsuite")
    with pytest.raises(SystemExit) as error:
        bsuite_scores.main(["DQN", "--experiments", "catch", "ctach", "--out", str(tmp_path / "runs")])
    assert error.value.code == 2
    assert capsys.readouterr().err.endswith("umbrella_distract, umbrella_length, got ctach\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.filterwarnings("ignore::FutureWarning:pandas", "ignore:.*grouping columns:FutureWarning")
def test_bsuite_without_a_finished_setting_has_no_score(tmp_path: Path) -> None:
    pytest.importorskip("bsuite")
    assert bsuite_scores.scores_of(tmp_path) == {}
    header = "steps,episode,total_return,episode_len,episode_return,best_episode,total_regret\n"
    (tmp_path / "bsuite_id_-_catch-1.csv").write_text(header + "9,1,-1,0,0,1,2\n")
    assert bsuite_scores.scores_of(tmp_path) == {}


def test_settings_of_bsuite_are_evenly_spaced() -> None:
    ids = [f"catch_noise/{i}" for i in range(20)] + [f"memory_size/{i}" for i in range(3)]
    chosen = [f"catch_noise/{i}" for i in (0, 5, 10, 14, 19)]  # five scales, each four times
    assert bsuite_scores.settings_of(ids, 5) == chosen + ids[20:]
    assert bsuite_scores.settings_of(ids, None) == ids


def test_median_of_agents_as_good_as_a_human_is_near_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights add up to 0.966; a human has 100 percent in all games."""
    humans = {game: human_scores()[game][1] for game in atari5.WEIGHTS}
    assert atari5.estimated_median(humans) == pytest.approx((101**0.966 - 1) / 100)
    for game, score in humans.items():
        folder = tmp_path / "runs" / f"dqn_{game}_1"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(
            yaml.safe_dump({"algorithm": "DQN", "env_id": f"ALE/{game}-v5", "settings": {}})
        )
        write_result(folder, Result(9, 9.0, (score,)))
    atari5.main([str(tmp_path)])
    assert capsys.readouterr().out == "DQN: estimated median 0.853\n"
    atari5.main([str(folder)])
    assert capsys.readouterr().out == "DQN: no runs of BattleZone, DoubleDunk, NameThisGame, Phoenix\n"
