"""Live table of `sb-dqn compare`: reading the episodes of a run that goes on, and the rows of the table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from sb_dqn.cli.compare import live_table as module
from sb_dqn.cli.compare.command import _print_result
from sb_dqn.cli.compare.live_table import EpisodeTail, LiveTable, live_table
from sb_dqn.runs.folder import FinalEvaluation, Result, write_result
from sb_dqn.runs.jobs import Job

HEADER = '#{"t_start": 0.0, "env_id": "CartPole-v1"}\nr,l,t\n'


def test_only_new_and_complete_episodes_are_read(tmp_path: Path) -> None:
    """In 12 s of training 60 steps: 5 steps/s; the last line is still being written."""
    path, tail = tmp_path / "monitor.csv", EpisodeTail()
    tail.update(path)
    assert (tail.steps, list(tail.returns), tail.speed) == (0, [], 0)
    path.write_text(HEADER + "10.0,20,4.0\n-2.5,10,6.0\n7.0,1")
    tail.update(path)
    assert (tail.steps, list(tail.returns), tail.speed) == (30, [10.0, -2.5], 5.0)
    with path.open("a") as file:
        file.write("5,9.0\n.5,15,12.0\n")
    tail.update(path)
    assert (tail.steps, list(tail.returns), tail.speed) == (60, [10.0, -2.5, 7.0, 0.5], 5.0)


def test_speed_is_that_of_the_last_half_minute(tmp_path: Path) -> None:
    """1,000 steps in the first 10 s, then 10 steps/s; 28 steps/s would be the mean since the start."""
    rows = [f"1,1000,{10.0}\n", *(f"1,50,{10.0 + 5 * n}\n" for n in range(1, 9))]
    (tmp_path / "monitor.csv").write_text(HEADER + "".join(rows))
    tail = EpisodeTail()
    tail.update(tmp_path / "monitor.csv")
    assert tail.steps == 1400
    assert tail.speed == pytest.approx(10.0)


def test_truncated_file_is_read_again(tmp_path: Path) -> None:
    """A resumed run drops the episodes after its checkpoint."""
    path, tail = tmp_path / "monitor.csv", EpisodeTail()
    path.write_text(HEADER + "1,10,1.0\n2,20,2.0\n")
    tail.update(path)
    path.write_text(HEADER + "1,10,1.0\n")
    tail.update(path)
    assert (tail.steps, list(tail.returns)) == (10, [1.0])


@settings(max_examples=30)
@given(st.lists(st.integers(1, 99), max_size=20), st.lists(st.integers(0, 300), max_size=6))
def test_pieces_of_any_size_give_the_same_steps(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], cuts: list[int]
) -> None:
    path, tail = tmp_path_factory.mktemp("run") / "monitor.csv", EpisodeTail()
    text = HEADER + "".join(f"{length}.0,{length},{n}.5\n" for n, length in enumerate(lengths))
    for cut in sorted(cuts):
        path.write_text(text[:cut])
        tail.update(path)
    path.write_text(text)
    tail.update(path)
    assert (tail.steps, list(tail.returns)) == (sum(lengths), [float(length) for length in lengths])


def make_job(root: Path, label: str, episodes: str = "", result: Result | None = None) -> Job:
    """Returns a job; with episodes or a result it has the folder of a run."""
    home = root / label.replace(" ", "_")
    folder = home / "dqn_it_1"
    if episodes or result:
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump({"env_id": "it"}))
        (folder / "monitor.csv").write_text(HEADER + episodes)
    if result:
        write_result(folder, result)
    return Job(label, home, ("train",))


def rows_of(table: LiveTable, running: list[Job], height: int = 30) -> list[list[str]]:
    """Returns the cells of each row of the table, its caption included."""
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(table.render(running, height))
    lines = console.export_text().splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] or [line.strip()] for line in lines]


def test_rows_say_what_each_run_does(tmp_path: Path) -> None:
    final = FinalEvaluation(2, 100, 1.0)
    done = make_job(tmp_path, "DQN seed 0", "9.0,9,1.0\n", Result(2000, 9.0, (7.0, 8.0), final))
    training = make_job(tmp_path, "DQN seed 1", "10.0,100,4.0\n30.0,400,10.0\n")
    playing = make_job(tmp_path, "DQN seed 2", "5.0,1990,4.0\n", Result(2000, 9.0))
    failed = make_job(tmp_path, "DQN seed 3", "5.0,10,4.0\n")
    starting, waiting = make_job(tmp_path, "PPO seed 0"), make_job(tmp_path, "PPO seed 1")
    table = LiveTable("it", [done, failed, waiting, training, playing, starting], 2000)
    table.render([failed], 30)
    rows = rows_of(table, [training, playing, starting])
    assert "it: 1 of 6 runs finished" in rows[0][0]
    assert [row for row in rows if len(row) > 1] == [
        ["DQN seed 1", "500 of 2,000", "20.00", "50", "0:30"],
        ["DQN seed 2", "2,000 of 2,000", "5.00", "", "final episodes"],
        ["PPO seed 0", "starting", "", "", ""],
        ["DQN seed 3", "10 of 2,000", "5.00", "", "failed"],
        ["PPO seed 1", "waiting", "", "", ""],
        ["DQN seed 0", "2,000", "7.50 final", "", "done"],
    ]


def test_rows_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, f"DQN seed {seed}") for seed in range(20)]
    rows = rows_of(LiveTable("it", jobs, 100), jobs[3:5], height=12)
    assert [row[0] for row in rows if len(row) > 1] == ["DQN seed 3", "DQN seed 4", "DQN seed 0", "DQN seed 1"]
    assert ["and 16 more, waiting or finished"] in rows


def test_the_table_is_refreshed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH", 0.0)
    job = make_job(tmp_path, "DQN seed 0", "10.0,100,4.0\n")
    output = io.StringIO()
    with live_table("it", [job], 2000, Console(file=output, force_terminal=True, width=100, height=30)) as refresh:
        refresh([job])
        assert "100 of 2,000" in output.getvalue()
        with (tmp_path / "DQN_seed_0/dqn_it_1/monitor.csv").open("a") as file:
            file.write("10.0,50,5.0\n")
        refresh([job])
        print("a line")
    assert "150 of 2,000" in output.getvalue()
    assert output.getvalue().index("a line") < output.getvalue().rindex("150 of 2,000")


def test_results_are_printed_above_the_table(tmp_path: Path) -> None:
    """Lines that are written past it leave its title and heads behind."""
    done = make_job(tmp_path, "DQN seed 0", "9.0,9,1.0\n", Result(2000, 9.0, (7.0, 8.0), FinalEvaluation(2, 100, 1.0)))
    output = io.StringIO()
    with live_table("it", [done], 2000, Console(file=output, force_terminal=True, width=100, height=30)):
        _print_result(done, [done])
    assert "DQN seed 0: mean return 7.50 after 9 s (1 of 1)" in output.getvalue()
