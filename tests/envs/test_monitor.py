"""Monitor files: the format of Stable-Baselines3, and loading in order of time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb_dqn.envs.monitor import Monitor, ResultsWriter, load_results
from sb_dqn.errors import ConfigurationError
from tests.toys import ToyGame


def play(env: Monitor, episodes: int) -> list[float]:
    returns = []
    for _ in range(episodes):
        env.reset()
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, info = env.step(np.int64(3))
            total, over = total + float(reward), terminated or truncated
        assert info["episode"]["r"] == pytest.approx(total, abs=1e-6)
        returns.append(total)
    return returns


def test_header_columns_and_episodes(tmp_path: Path) -> None:
    env = Monitor(ToyGame(seed=1), str(tmp_path / "0"), info_keywords=("lives",))
    returns = play(env, 6)
    env.close()
    lines = (tmp_path / "0.monitor.csv").read_text().splitlines()
    assert json.loads(lines[0][1:]).keys() == {"t_start", "env_id"}
    assert lines[1] == "r,l,t,lives"
    assert len(lines) == 8
    assert [float(line.split(",")[0]) for line in lines[2:]] == [round(value, 6) for value in returns]
    assert env.get_episode_rewards() == pytest.approx(returns)
    assert sum(env.get_episode_lengths()) == env.get_total_steps()
    assert env.get_episode_times() == sorted(env.get_episode_times())


def test_the_peer_writes_the_same_file(tmp_path: Path) -> None:
    peer = pytest.importorskip("stable_baselines3.common.monitor", reason="the peer, installed by the bench extra")
    for monitor, folder in ((Monitor, "ours"), (peer.Monitor, "theirs")):
        (tmp_path / folder).mkdir()
        env = monitor(ToyGame(seed=1), str(tmp_path / folder))  # a folder: the file is named monitor.csv
        play(env, 4)
        env.close()
    ours, theirs = ((tmp_path / name / "monitor.csv").read_text().splitlines() for name in ("ours", "theirs"))
    assert json.loads(ours[0][1:]).keys() == json.loads(theirs[0][1:]).keys()
    assert [line.split(",")[:2] for line in ours[1:]] == [line.split(",")[:2] for line in theirs[1:]]
    assert load_results(tmp_path / "theirs")["r"].tolist() == load_results(tmp_path / "ours")["r"].tolist()


def test_files_of_several_lanes_are_merged_by_time(tmp_path: Path) -> None:
    for lane, start, times in ((0, 100.0, (1.0, 5.0)), (1, 102.0, (1.0, 2.0))):
        header: dict[str, float | str] = {"t_start": start, "env_id": "Toy-v0"}
        writer = ResultsWriter(str(tmp_path / str(lane)), header)
        for t in times:
            writer.write_row({"r": lane, "l": 10 * lane + t, "t": t})
        writer.close()
    results = load_results(tmp_path)
    assert results["t"].tolist() == [1.0, 3.0, 4.0, 5.0]
    assert results["r"].tolist() == [0, 1, 1, 0]


def test_a_file_without_episodes_is_empty_and_an_old_one_may_be_continued(tmp_path: Path) -> None:
    header: dict[str, float | str] = {"t_start": 0.0, "env_id": "Toy-v0"}
    ResultsWriter(str(tmp_path / "0"), header).close()
    assert load_results(tmp_path)["r"].shape == (0,)
    for _ in range(2):
        writer = ResultsWriter(str(tmp_path / "0"), header, override_existing=False)
        writer.write_row({"r": 1, "l": 2, "t": 3})
        writer.close()
    assert load_results(tmp_path)["l"].tolist() == [2, 2]


def test_a_continued_file_keeps_its_start_time(tmp_path: Path) -> None:
    Monitor(ToyGame(), str(tmp_path / "0")).close()
    file = tmp_path / "0.monitor.csv"
    header, *rest = file.read_text().splitlines(keepends=True)
    began = json.loads(header.removeprefix("#"))["t_start"] - 100
    file.write_text(f'#{{"t_start": {began}, "env_id": "None"}}\n' + "".join(rest))
    env = Monitor(ToyGame(), str(tmp_path / "0"), override_existing=False)
    play(env, 2)
    env.close()
    times = load_results(tmp_path)["t"]
    assert len(times) == 2
    assert (np.abs(times - 150) < 50).all()
    file.write_text("hello\n")
    with pytest.raises(ConfigurationError, match="monitor file must"):
        Monitor(ToyGame(), str(tmp_path / "0"), override_existing=False)


def test_early_resets_and_late_steps_raise() -> None:
    env = Monitor(ToyGame(seed=2), allow_early_resets=False)
    with pytest.raises(RuntimeError, match="Call reset"):
        env.step(np.int64(2))
    play(env, 1)
    env.reset()
    with pytest.raises(RuntimeError, match="allow_early_resets=True"):
        env.reset()


def test_bad_files_and_keywords_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"path must be a folder with \*monitor.csv files"):
        load_results(tmp_path)
    (tmp_path / "0.monitor.csv").write_text("hello\n")
    with pytest.raises(ConfigurationError, match="monitor file must"):
        load_results(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="must be in a writable folder"):
        ResultsWriter(str(tmp_path / "file" / "0"), {})
    with pytest.raises(ConfigurationError, match="info_keywords must be keys of .*got 'score'"):
        play(Monitor(ToyGame(), info_keywords=("score",)), 1)


def test_keywords_are_lists_of_names(tmp_path: Path) -> None:
    for name in ("info_keywords", "reset_keywords"):
        for wrong in ("foo", 3, None, [3]):
            arguments: Any = {name: wrong}
            with pytest.raises(ConfigurationError, match=f"{name} must be a tuple of names.* got .*"):
                Monitor(ToyGame(), str(tmp_path / "0"), **arguments)
    assert not list(tmp_path.iterdir())
    env = Monitor(ToyGame(), str(tmp_path / "0"), reset_keywords=["seed"], info_keywords=["lives"])
    env.close()
    assert (tmp_path / "0.monitor.csv").read_text().splitlines()[1] == "r,l,t,seed,lives"


def test_reset_keywords_are_recorded(tmp_path: Path) -> None:
    class Levels(ToyGame):
        def reset(self, **kwargs: Any) -> Any:
            self.difficulty = kwargs.get("difficulty")
            return super().reset(seed=kwargs.get("seed"))

    game = Levels()
    env = Monitor(game, str(tmp_path / "0"), reset_keywords=("seed", "difficulty"))
    with pytest.raises(ConfigurationError, match="reset_keywords=.*got none for 'seed'"):
        env.reset()
    env.reset(seed=4, difficulty=3)
    assert game.difficulty == 3
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(np.int64(2))
        over = terminated or truncated
    assert (info["episode"]["seed"], info["episode"]["difficulty"]) == (4, 3)
    env.close()


def test_flags_are_numbers_of_the_results(tmp_path: Path) -> None:
    (tmp_path / "monitor.csv").write_text(
        '#{"t_start": 0.0, "env_id": "x"}\nr,l,t,is_success\n1,2,0.1,True\n2,2,0.2,False\n'
    )
    assert load_results(tmp_path)["is_success"].tolist() == [1.0, 0.0]


def test_a_file_with_other_columns_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "monitor.csv").write_text('#{"t_start": 0.0, "env_id": "x"}\nr,l,t,score\n')
    with pytest.raises(
        ConfigurationError, match=r"columns must be those .* \('r', 'l', 't', 'score'\), got \('r', 'l', 't'\)"
    ):
        ResultsWriter(str(tmp_path), {}, override_existing=False)
