"""Reports: what the page says, that it needs nothing else, and runs that are unfinished, damaged or hostile."""

from __future__ import annotations

import base64
import re
import sys
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sb_dqn.cli.report.settings import settings_table
from sb_dqn.errors import ConfigurationError
from sb_dqn.plotting.series import Series, thinned
from sb_dqn.plotting.svg import draw_chart, round_numbers, same_unit
from sb_dqn.presets import find_preset
from sb_dqn.runs.run import Run
from sb_dqn.runs.score import group_runs
from tests.command import call
from tests.marks import SLOW

MONITOR = '#{"t_start": 0.0, "env_id": "CartPole-v1"}\nr,l,t\n20.0,20,1.0\n40.0,40,2.0\n60.0,60,4.0\n'
LOG = "time/total_timesteps,train/q_mean,train/td_error,train/loss\n20,,,\n60,1.5,0.5,0.25\n120,2.5,0.25,0.5\n"
SETTINGS: dict[str, Any] = {"learning_rate": 0.25, "batch_size": 64, "gamma": 0.99, "tau": 0.05}
PRESET: Any = find_preset("DQN", "CartPole-v1")
VOID = {"meta", "img", "br", "path"}
"""Elements without an end tag; `path` closes itself."""


class Page(HTMLParser):
    """Elements, attributes and text of a page; `open` is empty at the end if every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def row(self, first: str) -> list[str]:
        return next(row for row in self.rows if row and row[0] == first)


def make_run(
    folder: Path,
    *,
    returns: Sequence[float] = (10.0, 30.0),
    seed: int = 3,
    settings: Mapping[str, Any] = SETTINGS,
    finished: bool = True,
    **config: Any,
) -> Path:
    """Writes the files of a run of 120 env steps."""
    folder.mkdir(parents=True)
    content = {
        "algorithm": "DQN",
        "env_id": "CartPole-v1",
        "n_envs": 1,
        "env_kwargs": {},
        "policy": "MlpPolicy",
        "n_timesteps": 120,
        "preset": {"name": "CartPole-v1", "source": PRESET.source},
        "settings": {**settings, "seed": seed},
        "versions": {"sb_dqn": "0.2.0", "torch": "2.9.1"},
        "platform": "Linux-6.1",
        "machine": {"cpu": "EPYC", "cores": 2},
        "command": "sb-dqn train dqn CartPole-v1",
        "started": "2026-11-23T23:31:10+00:00",
    }
    (folder / "config.yaml").write_text(yaml.safe_dump({**content, **config}))
    (folder / "monitor.csv").write_text(MONITOR)
    (folder / "progress.csv").write_text(LOG)
    np.savez(folder / "evaluations.npz", timesteps=[60, 120], results=[[1.0, 3.0], [10.0, 30.0]])
    result = {"steps": 120, "seconds": 4.0, "returns": list(returns) if finished else []}
    if finished:
        result["evaluation"] = {"episodes": len(returns), "steps": 40, "seconds": 0.1}
    (folder / "result.yaml").write_text(yaml.safe_dump(result))
    return folder


def page_of(path: Path) -> Page:
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


def test_page_of_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    done = call("report", run)
    assert (done.exit_code, done.output) == (0, f"{run / 'report.html'}\n")
    page = page_of(run / "report.html")
    assert "DQN on CartPole-v1 seed 3 120 env steps 23 November 2026" in page.text
    assert "Final return 20.0 ± 10.0 over 2 greedy episodes" in page.text
    assert "Best evaluation 20.0 at step 120" in page.text
    assert "Training time 4 s 30 env steps/s" in page.text
    for title in ("Return of an episode", "Q-value", "TD error", "Loss", "Episode length", "Speed"):
        assert title in page.words
    assert page.row("torch") == ["torch", "2.9.1"]
    assert page.row("cpu") == ["cpu", "EPYC"]
    assert page.row("mean ± sd") == ["mean ± sd", "20.00 ± 10.00"]
    assert page.row("120") == ["120", "20.0", "10.0", "10.0", "30.0"]  # the second evaluation
    assert "sb-dqn train dqn CartPole-v1" in page.words


def test_page_needs_no_other_file_and_runs_no_script(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "film.gif").write_bytes(b"GIF89a")
    call("report", run)
    page = page_of(run / "report.html")
    assert not set(page.tags) & {"script", "link", "iframe", "object", "embed", "base", "form"}
    addresses = [value for name, value in page.attributes if name in ("src", "href", "data", "poster", "srcset")]
    assert addresses == ["data:image/gif;base64," + base64.b64encode(b"GIF89a").decode()]
    assert [name for name, _ in page.attributes if name.startswith("on")] == []
    text = (run / "report.html").read_text(encoding="utf-8")
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text


ATTACK = "\"><script>alert(1)</script><img src=x onerror='alert(2)'>"


def test_values_of_a_run_are_escaped(tmp_path: Path) -> None:
    attacked: dict[str, Any] = dict.fromkeys(("env_id", "policy", "command", "platform", "algorithm"), ATTACK)
    for number in range(2):
        make_run(
            tmp_path / "runs" / f"<b>{number}",
            seed=number,
            settings={"gamma": ATTACK, ATTACK: 1, "tau": [ATTACK]},
            preset={"name": ATTACK, "source": ATTACK},
            versions={ATTACK: ATTACK},
            **attacked,
        )
    assert {"script", "img"} <= set(Page(ATTACK).tags)  # a page with the bare text would have them
    for path in (tmp_path / "runs" / "<b>0", tmp_path / "runs"):
        assert call("report", path).exit_code == 0
        page = page_of(path / "report.html")
        assert not set(page.tags) & {"script", "img"}
        assert ATTACK in "".join(page.words)
        assert [name for name, _ in page.attributes if name.startswith("on")] == []


def test_settings_that_differ_from_preset_and_defaults_are_marked(tmp_path: Path) -> None:
    run = Run(make_run(tmp_path / "run"))
    (groups,) = group_runs([run]).values()
    special, ordinary = settings_table(groups)
    marks = {row.name: row.cells[0].origin for row in (*special, *ordinary)}
    assert marks["learning_rate"] == "user"  # 0.25, in the preset linear 0.001
    assert marks["batch_size"] == "preset"  # 64, by default 32
    assert marks["gamma"] == "default"
    assert marks["n_timesteps"] == "user"
    assert "seed" not in marks
    (rate,) = [row for row in special if row.name == "learning_rate"]
    assert (rate.cells[0].text, rate.preset, rate.default) == ("0.25", "linear 0.001", "0.0001")
    assert "gamma" in {row.name for row in ordinary}


def test_the_preset_of_a_file_is_not_that_of_the_catalogue(tmp_path: Path) -> None:
    """Files of `sb-dqn tune` name their entry after the environment, too."""
    run = Run(make_run(tmp_path / "run", preset={"name": "CartPole-v1", "source": "sb-dqn tune DQN CartPole-v1"}))
    (groups,) = group_runs([run]).values()
    assert {row.preset for rows in settings_table(groups) for row in rows} == {""}


def test_run_that_goes_on_with_a_line_half_written(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", finished=False, n_timesteps=1000)
    with (run / "monitor.csv").open("a") as file:
        file.write("90.0,9")
    with (run / "progress.csv").open("a") as file:
        file.write("180,3.")
    assert call("report", run).exit_code == 0
    page = page_of(run / "report.html")
    assert "120 env steps of 1,000, not finished" in page.text
    assert "Return while training 40.0 mean of the last 3 episodes" in page.text
    assert "Results" in page.words  # the evaluations so far
    assert "finished greedy episodes" not in page.text


def test_run_that_has_only_begun(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for name in ("monitor.csv", "progress.csv", "evaluations.npz", "result.yaml"):
        (run / name).unlink()
    assert call("report", run).exit_code == 0
    assert "No episode and no evaluation has ended yet." in page_of(run / "report.html").text


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    """Returns the folder of a comparison: DQN with scores 10, 20 and 60, QRDQN with 100, 200 and one unfinished run."""
    out = tmp_path / "comparison"
    for name, scores in (("DQN", [10, 20, 60]), ("QRDQN", [100, 200, None])):
        for seed, score in enumerate(scores):
            folder = out / name / f"seed_{seed}" / f"{name.lower()}_CartPole-v1_1"
            make_run(folder, seed=seed, returns=[score or 0], finished=score is not None, algorithm=name)
    content = {
        "setup": {"env_id": "CartPole-v1", "steps": 120},
        "algorithms": {"DQN": [], "QRDQN": []},
        "seeds": {"DQN": 3, "QRDQN": 3},
    }
    (out / "comparison.yaml").write_text(yaml.safe_dump(content))
    return out


def test_page_of_a_comparison(comparison: Path) -> None:
    done = call("report", comparison)
    assert (done.exit_code, done.output) == (0, f"{comparison / 'report.html'}\n")
    page = page_of(comparison / "report.html")
    assert "DQN and QRDQN on CartPole-v1 6 runs 120 env steps each 23 November 2026 1 not finished" in page.text
    assert page.row("DQN") == ["DQN", "30.0 ± 26.5", "30.0", "[10.0, 60.0]", "", "3", "120", "4 s"]
    assert page.row("QRDQN") == ["QRDQN", "150.0 ± 70.7", "150.0", "[100.0, 200.0]", "", "2", "120", "4 s"]
    runs = [row for row in page.rows if row[-1] == "qrdqn_CartPole-v1_1"]
    assert [row[1] for row in runs] == ["0", "1", "2"]
    assert [row[-2] for row in runs] == ["finished", "finished", "not finished"]
    assert "Return of greedy evaluations" in page.words


@SLOW
def test_table_is_that_of_compare(comparison: Path) -> None:
    call("compare", comparison)
    table = (comparison / "comparison.md").read_text(encoding="utf-8")
    call("report", comparison)
    page = page_of(comparison / "report.html")
    for name in ("DQN", "QRDQN"):
        cells = [cell.strip() for cell in table.partition(f"| {name} |")[2].partition("\n")[0].split("|")[:-1]]
        mean, iqm, interval, _, seeds, steps, seconds = page.row(name)[1:]
        assert cells == [mean, f"{iqm} {interval}", seeds, steps, seconds]


def test_cells_of_the_table_name_their_column_for_a_phone(comparison: Path) -> None:
    """A narrow page shows no heads; each value then stands below its name."""
    call("report", comparison)
    text = (comparison / "report.html").read_text(encoding="utf-8")
    table = text.partition('<table class="scores">')[2].partition("</table>")[0]
    _, *heads = [head for head in re.findall(r"<th scope=\"col\"[^>]*>([^<]*)", table) if head != "Interval and seeds"]
    assert len(heads) == 6
    assert re.findall(r'data-name="([^"]*)"', table) == 2 * heads
    phone = text.partition("@media (max-width: 40rem)")[2]
    assert "content: attr(data-name)" in phone


def test_newest_run_of_a_seed_counts(comparison: Path) -> None:
    make_run(comparison / "DQN" / "seed_0" / "dqn_CartPole-v1_10", seed=0, returns=[20])
    (comparison / "DQN" / "seed_1" / "dqn_CartPole-v1_1" / "config.yaml").unlink()  # killed before its start
    call("report", comparison)
    assert page_of(comparison / "report.html").row("DQN")[1] == "40.0 ± 28.3"  # 20 and 60


def test_several_runs_are_grouped_by_settings_and_environment(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / f"a_{seed}", seed=seed)
        make_run(tmp_path / f"b_{seed}", seed=seed, settings={**SETTINGS, "gamma": 0.5})
    make_run(tmp_path / "c_0", env_id="Acrobot-v1")
    groups = group_runs(map(Run, sorted(tmp_path.iterdir())))
    labels = {env_id: [(group.label, len(group.runs)) for group in same] for env_id, same in groups.items()}
    assert labels == {"CartPole-v1": [("DQN (gamma=0.99)", 2), ("DQN (gamma=0.5)", 2)], "Acrobot-v1": [("DQN", 1)]}
    done = call("report", tmp_path / "a_0", tmp_path / "b_1", tmp_path / "c_0")
    assert done.output == f"{tmp_path / 'report.html'}\n"  # the folder that has all of them
    assert "DQN on CartPole-v1 and Acrobot-v1 3 runs" in page_of(tmp_path / "report.html").text


def test_run_trained_further_is_not_averaged_with_the_others(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / f"a_{seed}", seed=seed)
    longer = yaml.safe_load((tmp_path / "a_1" / "result.yaml").read_text())
    (tmp_path / "a_1" / "result.yaml").write_text(yaml.safe_dump({**longer, "steps": 500}))
    (groups,) = group_runs(Run(tmp_path / f"a_{seed}") for seed in range(2)).values()
    assert [group.label for group in groups] == ["DQN (n_timesteps=120)", "DQN (n_timesteps=500)"]


def test_only_an_earlier_report_is_overwritten(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert [call("report", run).exit_code for _ in range(2)] == [0, 0]
    mine = tmp_path / "thesis.html"
    mine.write_text("<html>my thesis")
    done = call("report", run, "--out", mine)
    assert done.exit_code == 2
    assert "must be a new file or an earlier report" in " ".join(done.output.split())
    assert mine.read_text() == "<html>my thesis"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nothing", "must be the folder of a run or of a comparison, got nothing, which is no folder."),
        ("empty", "got empty, a folder without a config.yaml. Pass a folder"),
        ("model.zip", "got model.zip, which is no folder."),
    ],
)
def test_path_without_a_run(path: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "model.zip").write_bytes(b"")
    done = call("report", path)
    assert done.exit_code == 2
    assert message in " ".join(re.sub("[│╭╮╰╯─]", " ", done.output).split())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "model.zip"]
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize(
    ("out", "message"),
    [("page.pdf", r"must end in \.html"), ("missing/page.html", "the folder of a report must exist")],
)
def test_output_that_cannot_be_written(out: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        call("report", make_run(tmp_path / "run"), "--out", tmp_path / out)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.yaml", "algorithm: DQN\nsettings: {}\n", "unexpected env_id"),
        ("config.yaml", "algorithm: DQN\nenv_id: a\nsettings: [1]\nversions: x\n", "unexpected settings, versions"),
        ("result.yaml", "{steps: 1, seconds: 2, returns: [a]}", "could not convert"),
        ("result.yaml", "{steps: 1, seconds: .nan, returns: []}", "unexpected result.yaml"),
        ("monitor.csv", "#{}\nr,l,t\n1,inf,1\n", "infinite env steps in the curve"),
        ("evaluations.npz", "PK\x03\x04 no archive", "zip"),
    ],
)
def test_damaged_file(name: str, content: str, reason: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / name).write_text(content)
    with pytest.raises(
        ConfigurationError, match=rf"must be as `sb-dqn train` wrote them, got damaged ones in .*run \(.*{reason}"
    ):
        call("report", run)
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    ("content", "got"),
    [
        ("settings: [", r"YAML, got something else \(.*line 1.*\)"),
        ("", "a YAML mapping, got None"),
        ("- 1", r"a YAML mapping, got \[1\]"),
    ],
)
def test_settings_that_are_not_a_yaml_mapping(content: str, got: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "config.yaml").write_text(content)
    with pytest.raises(ConfigurationError, match=rf"config.yaml must be {got}. Restore it from a copy."):
        call("report", run)


def test_evaluations_of_another_shape(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    np.savez(run / "evaluations.npz", timesteps=[60, 120], results=[[1.0, 3.0]])
    with pytest.raises(ConfigurationError, match=r"unexpected shape of evaluations \(1, 2\)"):
        call("report", run)


def test_algorithm_that_this_version_does_not_have(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", algorithm="FutureDQN", preset={"name": "gone.yaml", "source": "gone.yaml"})
    assert call("report", run).exit_code == 0
    page = page_of(run / "report.html")
    assert page.row("gamma") == ["gamma", "0.99", "", ""]


def test_film_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sb_dqn import DQN

    run = make_run(tmp_path / "run")
    DQN("MlpPolicy", "CartPole-v1", buffer_size=100, policy_kwargs={"net_arch": [4]}).save(run / "model.zip")
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    with pytest.raises(ConfigurationError, match=r'pip install "sb_dqn\[video\]"'):
        call("report", run, "--film")
    assert not (run / "report.html").exists()


def test_film_is_recorded_under_a_free_name(tmp_path: Path) -> None:
    pytest.importorskip("pygame", reason="gymnasium renders CartPole with pygame (extra render)")
    pytest.importorskip("imageio_ffmpeg", reason="imageio writes mp4 with ffmpeg (extra video)")
    from sb_dqn import DQN

    run = make_run(tmp_path / "run")
    DQN("MlpPolicy", "CartPole-v1", buffer_size=100, policy_kwargs={"net_arch": [4]}).save(run / "model.zip")
    (run / "film.mp4").write_bytes(b"my own film")
    done = call("report", run, "--film")
    assert done.output == f"{run / 'film_2.mp4'}\n{run / 'report.html'}\n"
    assert (run / "film.mp4").read_bytes() == b"my own film"
    data = base64.b64encode((run / "film_2.mp4").read_bytes()).decode()
    assert ("src", f"data:video/mp4;base64,{data}") in page_of(run / "report.html").attributes
    assert (run / "film_2.mp4").read_bytes()[4:8] == b"ftyp"


def test_film_of_a_comparison_is_that_of_the_median_seed(comparison: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        (comparison / "DQN" / f"seed_{seed}" / "dqn_CartPole-v1_1" / "model.zip").touch()
    filmed: list[Run] = []

    def record(run: Run, best: bool) -> Path:
        filmed.append(run)
        (run.folder / "film.mp4").write_bytes(b"film")
        return run.folder / "film.mp4"

    monkeypatch.setattr("sb_dqn.cli.report.film.record_film", record)
    done = call("report", comparison, "--film")
    assert [(run.config["algorithm"], run.seed) for run in filmed] == [("DQN", 1)]  # scores 10, 20 and 60
    assert "no film of QRDQN: it has no model.zip yet" in done.output
    page = page_of(comparison / "report.html")
    assert "DQN, seed 1, mean return 20.0, film.mp4" in page.text
    assert [value for name, value in page.attributes if name == "src"] == ["data:video/mp4;base64,ZmlsbQ=="]


def test_film_of_a_run_without_a_model(tmp_path: Path) -> None:
    done = call("report", make_run(tmp_path / "run"), "--film")
    assert done.exit_code == 2
    assert "must be a folder with model.zip" in " ".join(done.output.split())


@given(
    low=st.floats(-1e9, 1e9),
    width=st.floats(1e-3, 1e9),
    count=st.integers(3, 8),
)
def test_round_numbers_lie_in_the_range(low: float, width: float, count: int) -> None:
    high = low + width
    numbers = round_numbers(low, high, count)
    slack = 1e-6 * max(abs(low), abs(high), width)
    assert all(low - slack <= number <= high + slack for number in numbers)
    assert len(numbers) <= count + 1
    if width > 1e-6 * abs(low):
        assert len(numbers) >= count // 2.5


def test_round_numbers_by_hand() -> None:
    assert round_numbers(0, 20_000, 5) == [0, 5_000, 10_000, 15_000, 20_000]
    assert round_numbers(-3, 9, 5) == [0, 5]
    assert round_numbers(0, 1, 4) == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0, 5_000, 20_000], ["0", "5k", "20k"]),
        ([0, 2_500, 5_000], ["0", "2,500", "5,000"]),
        ([-0.5, 0, 0.001], ["−0.5", "0", "0.001"]),
        ([0, 500_000, 1_000_000], ["0", "0.5M", "1M"]),
        ([0, 0.0001, 0.0002], ["0", "1e−4", "2e−4"]),
        ([-200, -100], ["−200", "−100"]),
    ],
)
def test_numbers_of_an_axis_have_one_unit(values: list[float], texts: list[str]) -> None:
    assert same_unit(values) == texts


def test_long_lines_are_averaged() -> None:
    x, y = thinned(np.arange(10.0), np.array([0.0, 2, 4, 6, 8, 10, 12, 14, 16, 18]), 5)
    assert x.tolist() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert y.tolist() == [1, 5, 9, 13, 17]


def test_chart_leaves_out_nan_and_places_points() -> None:
    chart = draw_chart("t", [Series("line", np.array([0.0, 5, 10]), np.array([0.0, np.nan, 100]))])
    assert chart is not None
    assert "nan" not in chart.svg
    assert 'd="M0.0 1000.0L1000.0 56.6"' in chart.svg  # 100 on an axis from 0 to 106
    assert draw_chart("t", [Series("line", np.array([1.0]), np.array([np.inf]))]) is None


def test_positive_values_over_decades_get_a_logarithmic_axis() -> None:
    values = np.array([0.01, 1.0, 10.0])
    chart = draw_chart("t", [Series("line", np.arange(3.0), values)], may_be_log=True)
    assert chart is not None
    assert [tick.text for tick in chart.y_ticks] == ["0.01", "0.1", "1", "10"]
    assert chart.note == "log scale"
    linear = draw_chart("t", [Series("line", np.arange(3.0), values - 1)], may_be_log=True)
    assert linear is not None
    assert linear.note == ""


def test_a_second_run_of_a_seed_is_no_further_seed(tmp_path: Path) -> None:
    make_run(tmp_path / "dqn_CartPole-v1_1", returns=[10], started="2026-11-23T10:00:00+00:00")
    make_run(tmp_path / "dqn_CartPole-v1_2", returns=[30], started="2026-11-23T11:00:00+00:00")
    done = call("report", tmp_path)
    assert f"left out: {tmp_path / 'dqn_CartPole-v1_1'}, of the same agent and seed" in done.output
    assert "Final return 30.0" in page_of(tmp_path / "report.html").text


def test_a_film_that_is_a_link_is_not_part_of_the_page(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "dqn_CartPole-v1_1")
    (tmp_path / "secret").write_text("SECRET")
    (folder / "film.gif").symlink_to(tmp_path / "secret")
    call("report", folder)
    assert base64.b64encode(b"SECRET").decode() not in (folder / "report.html").read_text(encoding="utf-8")


def test_copies_of_runs_are_no_newer_runs(comparison: Path) -> None:
    home = comparison / "DQN" / "seed_0"
    make_run(home / "dqn_CartPole-v1_1_backup", seed=0, returns=[400])
    assert call("report", comparison).exit_code == 0
    assert page_of(comparison / "report.html").row("DQN")[1] == "30.0 ± 26.5"
