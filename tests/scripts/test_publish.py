"""Pages and pictures of the results are those of the data in docs/benchmarks/, and what runs become there."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
import torch
import yaml

from sb_dqn.algorithms import ALGORITHMS
from sb_dqn.cli.benchmark.runs import as_csv, read_suite
from sb_dqn.plotting.svg import COLORS
from scripts.benchmarks import publish
from scripts.benchmarks.publishing import bsuite, cells, pages, paths, pictures
from tests.marks import SLOW

MKDOCS = "nav:\n      - Measurements:\n          - measurements/index.md\n          - results/old.md\n"


def test_pages_and_pictures_are_fresh() -> None:
    """Run `python scripts/benchmarks/publish.py` if this fails."""
    for path, text in publish.outputs().items():
        assert path.read_text(encoding="utf-8") == text, path


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes the script write below a folder with an empty page of DQN."""
    for name, folder in (("ROOT", "."), ("DATA", "data"), ("PAGES", "pages"), ("PICTURES", "pages/pictures")):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.setattr(paths, name, tmp_path / folder)
    monkeypatch.setattr(paths, "NAVIGATION", tmp_path / "mkdocs.yml")
    (tmp_path / "mkdocs.yml").write_text(MKDOCS)
    (tmp_path / "README.md").write_text("# Name\n\n## Results\n\nMore.\n")
    (tmp_path / "pages" / "algorithms").mkdir()
    (tmp_path / "pages" / "algorithms" / "dqn.md").write_text("# DQN\n\n## Results\n\nOlder ones.\n")
    return tmp_path


def finished(out: Path, scores: dict[tuple[str, str, int], float], suite: str = "classic") -> Path:
    """Writes the folder of a benchmark with a score for each library, task and seed."""
    out.mkdir()
    (out / "benchmark.yaml").write_text(yaml.safe_dump({"format": 2, "suite": suite, "runs": {}}))
    keys = [{"library": library, "algorithm": "DQN", "env": env, "seed": seed} for library, env, seed in scores]
    facts: dict[str, Any] = {
        "steps": 50_000,
        "seconds": 9.4,
        "cpu_seconds": 0.0,
        "version": "1",
        "torch": "2",
        "machine": "CPU",
    }
    rows = [
        {**key, "score": score, "best": 400.0, **facts, "commit": "abc"}
        for key, score in zip(keys, scores.values(), strict=True)
    ]
    (out / "results.csv").write_text(as_csv(rows))
    (out / "curves.csv").write_text(as_csv([{**key, "curve": "5000:20 50000:400"} for key in keys]))
    return out


def test_every_line_of_a_panel_has_a_color() -> None:
    for number in range(COLORS):
        assert pictures.STYLE.count(f"--c{number}:#") == 2  # light and dark
        assert f".c{number}{{--c:var(--c{number})}}" in pictures.STYLE


def test_runs_become_data_pages_and_pictures(site: Path) -> None:
    first = finished(site / "a", {("sb_dqn", "CartPole-v1", 100): 1.0, ("sb3", "CartPole-v1", 100): 300.0})
    second = finished(
        site / "b", {("sb_dqn", "CartPole-v1", seed): value for seed, value in ((100, 500.0), (101, 480.0))}
    )
    publish.main([str(first), str(second)])
    with (site / "data" / "classic.csv").open() as file:
        assert [(row["library"], row["seed"], row["score"]) for row in csv.DictReader(file)] == [
            ("sb3", "100", "300.0"), ("sb_dqn", "100", "500.0"), ("sb_dqn", "101", "480.0"),
        ]  # fmt: skip
    page = (site / "pages" / "results" / "classic.md").read_text()
    assert "\n| DQN | 490.0 ± 14.1 | 490.0 [480.0, 500.0] | 400.0 | 50,000 | 9 | – | 100, 101 |\n" in page
    assert "\n| Stable-Baselines3 DQN | 300.0 | 300.0 | 400.0 |" in page
    assert "Machines: CPU. Versions: Stable-Baselines3 1; sb_dqn 1; torch 2. Commits: `abc`." in page
    section = (site / "pages" / "algorithms" / "dqn.md").read_text()
    assert "| 100, 101 | 300.0 (50,000 env steps, – CPU s, 1 of 5 seeds) |" in section
    assert section.endswith("<!-- end -->\n\nOlder ones.\n")
    readme = (site / "README.md").read_text()
    assert "\n| DQN | 490.0 ± 14.1 (2) |\n| Stable-Baselines3 DQN | 300.0 (1) |\n\n<!-- end -->\n\nMore.\n" in readme
    drawn = ElementTree.parse(site / "pages" / "pictures" / "results-classic-dqn.svg").getroot()
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")][:3] == [
        "DQN", "Stable-Baselines3 DQN", "CartPole-v1, env steps",
    ]  # fmt: skip
    assert "CartPole-v1, CPU minutes" in [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert (site / "mkdocs.yml").read_text() == MKDOCS.replace("old", "classic")
    before = {path: path.read_text() for path in site.rglob("*.*")}
    publish.main([])
    assert {path: path.read_text() for path in site.rglob("*.*")} == before


def test_scores_of_others_are_next_to_ours(site: Path) -> None:
    lines = ["suite,source,algorithm,env,score,steps", "classic,XuanCe,DQN,CartPole-v1,488.5 ± 22.9,200000"]
    lines += ["classic,XuanCe,PPO,Acrobot-v1,-500.0,200000", "continuous,RL Baselines3 Zoo,DQN,CartPole-v1,1.0,1"]
    (site / "data" / "published.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    publish.main([str(finished(site / "a", {("sb_dqn", "CartPole-v1", 100): 1.0}))])
    page = (site / "pages" / "results" / "classic.md").read_text()
    table = page.partition("## Published by others")[2].partition("## ")[0]
    assert "xuance-benchmarks" in table
    assert "Zoo" not in table  # of another suite
    assert table.split("\n\n")[2].splitlines() == [
        "| Source | Agent | CartPole-v1 | Acrobot-v1 |", "|---|---|---|---|",
        "| XuanCe | DQN | 488.5 ± 22.9 (200,000) |  |", "| XuanCe | PPO |  | -500.0 (200,000) |",
    ]  # fmt: skip
    section = (site / "pages" / "algorithms" / "dqn.md").read_text()
    assert "| Seeds | Published by others |" in section
    assert "| 100 | XuanCe 488.5 ± 22.9 (200,000 env steps) |" in section


@pytest.mark.parametrize(
    ("seeds", "option"), [((100, 101), "2"), ((100,), "1"), ((102, 103), "102 103"), ((102,), "102")]
)
def test_the_command_of_an_algorithm_names_the_seeds_of_its_rows(seeds: tuple[int, ...], option: str) -> None:
    cell = cells.Cell("sb_dqn", "DQN", "CartPole-v1", [{"seed": str(seed)} for seed in seeds], [])
    assert pages.seeds_option([cell]) == option


def test_the_readme_has_our_agent_above_a_peer_of_another_name() -> None:
    keys = [("sb_dqn", "PPO"), ("sb3", "RecurrentPPO"), ("sb_dqn", "R2D2")]
    found = [
        cells.Cell(library, name, "sb_dqn/CartPoleNoVelocity-v0", [{"score": "450.0"}], []) for library, name in keys
    ]
    text = "\n\n".join(pages.beside_peers(read_suite("memory"), found))
    assert "\n| PPO | 450.0 (1) |\n| Stable-Baselines3 RecurrentPPO | 450.0 (1) |" in text
    assert "R2D2" not in text  # no peer


def test_curves_of_runs_that_evaluate_at_different_steps_are_interpolated() -> None:
    curves = ["100:0 200:100 300:200", "110:10 190:90 310:210"]
    (_, line) = sorted(cells.Cell("sb_dqn", "VPG", "CartPole-v1", [], curves).series(0), key=lambda each: each.kind)
    assert line.kind == "line"
    assert line.x.tolist() == [110, 200, 300]
    assert line.y.tolist() == pytest.approx([10, 100, 200])


def test_an_algorithm_whose_preset_makes_the_agent_of_another_one_has_its_runs() -> None:
    (task,) = (task for task in read_suite("classic").tasks if task.name == "LunarLander-v3")
    rows = [{"score": "1.0"}]
    found = cells.twins(task, [cells.Cell("sb_dqn", name, task.name, rows, []) for name in ("DQN", "DuelingDQN")])
    assert [(cell.algorithm, cell.twin, cell.rows) for cell in found] == [
        ("DoubleDQN", "DQN", rows), ("NStepDQN", "DQN", rows),
    ]  # fmt: skip
    assert found[0].note == " (the runs of DQN, which has the same settings here)"
    assert cells.twins(task, [cells.Cell("sb3", "DQN", task.name, rows, [])]) == []


@SLOW
@pytest.mark.parametrize("pair", [("DQN", "NStepDQN"), ("DQN", "DoubleDQN"), ("Rainbow", "DataEfficientRainbow")])
def test_algorithms_with_the_same_settings_are_the_same_agent(pair: tuple[str, str]) -> None:
    """Their runs are published as those of both."""
    first, second = (ALGORITHMS[name].from_preset("LunarLander-v3", seed=7).learn(1_100) for name in pair)
    assert first._n_updates == second._n_updates > 0
    for left, right in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(left, right)


def test_the_scale_of_minatar_ends_at_the_mean_of_dqn() -> None:
    suite = read_suite("minatar")
    means = {cell.task: fmean(cell.numbers("score")) for cell in cells.cells_of(suite) if cell.algorithm == "DQN"}
    assert {task.name: task.reference[1] for task in suite.tasks} == {
        name: round(mean, 1) for name, mean in means.items()
    }


def test_curves_over_minutes_have_the_cpu_time_of_their_runs() -> None:
    rows = [
        {"steps": "1000", "seconds": "500.0", "cpu_seconds": "120.0"},
        {"steps": "1000", "seconds": "60.0", "cpu_seconds": "0.0"},  # as on systems that do not count it
    ]
    cell = cells.Cell("sb_dqn", "DQN", "CartPole-v1", rows, ["500:1 1000:3", "500:3 1000:5"])
    (_, line) = sorted(cell.series(0, minutes=True), key=lambda each: each.kind)
    assert line.x.tolist() == pytest.approx([0.75, 1.5])  # 90 s on average
    assert line.y.tolist() == pytest.approx([2, 4])


def test_seeds_that_presets_are_tuned_on_are_not_published(site: Path) -> None:
    with pytest.raises(SystemExit, match="seeds must be 100 or more, got 99"):
        publish.main([str(finished(site / "a", {("sb_dqn", "CartPole-v1", 99): 1.0}))])
    assert not (site / "data" / "classic.csv").exists()


def test_scores_over_all_tasks_are_normalized_and_compared_with_the_peer(site: Path) -> None:
    tasks = {
        "CartPole-v1": (20, 500),
        "Acrobot-v1": (-500, -65),
        "MountainCar-v0": (-200, -97),
        "LunarLander-v3": (-180, 280),
    }
    scores = {
        (library, env, seed): low + share * (high - low)
        for env, (low, high) in tasks.items()
        for library, share in (("sb_dqn", 0.9), ("sb3", 0.6))
        for seed in (100, 101)
    }
    publish.main([str(finished(site / "a", scores))])
    page = (site / "pages" / "results" / "classic.md").read_text()
    assert "| DQN | 4 | 2 | 0.90 [0.90, 0.90] | 1.00 [1.00, 1.00] |\n| Stable-Baselines3 DQN | 4 | 2 | 0.60" in page
    not_run = page.partition("## Not run yet")[2]
    assert "\n- CartPole-v1: A2C, " in not_run
    assert " DQN (2 of 5), " in not_run
    assert " Stable-Baselines3 DQN (2 of 5), Stable-Baselines3 QRDQN, " in not_run
    profile = ElementTree.parse(site / "pages" / "pictures" / "results-classic.svg").getroot()
    assert len([path for path in profile.iter() if "line" in path.get("class", "").split()]) == 4  # with the legend


def test_a_suite_that_compares_settings_becomes_one_table(site: Path) -> None:
    scores = {
        ("sb_dqn", f"LunarLander x 1,000, {head}", seed): 5_000.0 * seed
        for head in ("scalar", "C51")
        for seed in (100, 102)
    }
    publish.main([str(finished(site / "run", scores, "values"))])
    page = (site / "pages" / "results" / "values.md").read_text()
    assert (
        "| LunarLander x 1,000, scalar | 505,000 ± 7,071 | 505,000 [500,000, 510,000] | 1.49 [1.48, 1.50] | 210.0 ± 0.00 |"
        in page
    )
    tables, _, not_run = page.partition("## Not run yet")
    assert "## " not in tables
    assert "\n- LunarLander x 1,000, scalar: DQN (2 of 5)\n" in not_run
    assert "\n- LunarLander x 1, scalar: DQN\n" in not_run
    (panel,) = ElementTree.parse(site / "pages" / "pictures" / "results-values.svg").iterfind("{*}svg")
    assert len(panel.findall(".//{*}path[@class]")) >= 2
    assert (site / "pages" / "algorithms" / "dqn.md").read_text() == "# DQN\n\n## Results\n\nOlder ones.\n"


KIT = [
    ("sb_dqn", f"{game}{arm}")
    for game in ("Breakout", "SpaceInvaders")
    for arm in ("", ", replay ratio 1", ", kit", ", 500k", ", kit, 500k")
]


@pytest.mark.parametrize(
    ("page", "suite", "shown", "digits"),
    [
        ("index.md", "classic", [("sb_dqn", "CartPole-v1"), ("sb3", "CartPole-v1")], 0),
        (
            "networks.md",
            "switches",
            [
                *[("sb_dqn", f"replay ratio {ratio}{resets}") for ratio in (4, 1) for resets in ("", ", resets")],
                *[("sb_dqn", f"replay ratio 4, ReDo{counts}") for counts in ("", " and counts")],
            ],
            0,
        ),
        ("networks.md", "kit", KIT, 1),
        ("algorithms/data-efficient-rainbow.md", "kit", [("sb_dqn", "Breakout, kit"), ("sb_dqn", "Breakout, 500k")], 1),
    ],
)
def test_scores_in_the_text_are_those_of_the_data(
    page: str, suite: str, shown: list[tuple[str, str]], digits: int
) -> None:
    found = {(cell.library, cell.task): cell for cell in cells.cells_of(read_suite(suite)) if cell.algorithm == "DQN"}
    text = " ".join((paths.PAGES / page).read_text(encoding="utf-8").split())
    for cell in shown:
        scores = found[cell].numbers("score")
        assert f"{fmean(scores):.{digits}f} ± {stdev(scores):.{digits}f}" in text, cell


def test_the_table_of_boxing_is_that_of_its_file() -> None:
    with (paths.PAGES.parent / "benchmarks" / "boxing-bbf-nature-seed100.csv").open(encoding="utf-8") as file:
        returns = [round(float(row["mean_return"])) for row in csv.DictReader(file)]
    text = (paths.PAGES / "algorithms" / "data-efficient-rainbow.md").read_text(encoding="utf-8")
    for start in range(0, 100_000, 20_000):
        ten = returns[start // 2_000 : start // 2_000 + 10]
        assert f"| {start:,} | {' | '.join(map(str, ten))} |" in text


def test_scores_of_bsuite_become_a_page_and_a_radar_chart(site: Path) -> None:
    kinds = {"bandit": "basic", "catch": "basic credit_assignment", "deep_sea": "exploration"}
    scores = {"DQN": (0.5, 1.0, 0.0), "R2D2": (0.25, 0.25)}  # R2D2 has no deep_sea yet
    rows = [
        {
            "agent": agent,
            "experiment": name,
            "kinds": kinds[name],
            "score": score,
            "settings": 2 if name == "deep_sea" else 5,
            "of": 20,
            "commit": "a",
        }
        for agent, values in scores.items()
        for name, score in zip(kinds, values, strict=False)
    ]
    published = [
        {"agent": "theirs", "experiment": name, "score": score} for name, score in (("catch", 0.92), ("mnist", 0.75))
    ]
    (site / "data" / "bsuite.csv").write_text(as_csv(rows))
    (site / "data" / "bsuite-published.csv").write_text(as_csv(published))
    publish.main([])
    page = (site / "pages" / "results" / "bsuite.md").read_text()
    assert "\n| catch | basic, credit assignment | 20 | 1.00 (5) | 0.25 (5) | 0.92 |\n" in page
    assert "\n| deep_sea | exploration | 20 | 0.00 (2) |  |  |\n" in page
    assert [line.split("bsuite_scores.py ")[1] for line in page.splitlines() if line.startswith("python ")] == [
        "DQN --settings 2 --out runs/bsuite --experiments deep_sea",
        "DQN --settings 5 --out runs/bsuite --experiments bandit catch",
        "R2D2 --settings 5 --out runs/bsuite --experiments bandit catch",
    ]
    two_settings = [{"agent": "DQN", "experiment": name, "settings": "2"} for name in ("bandit", "catch")]
    assert bsuite.bsuite_commands(two_settings) == [
        "python scripts/benchmarks/bsuite_scores.py DQN --settings 2 --out runs/bsuite"
    ]
    assert "\n| **mean** |  |  | 0.50 of 3 | 0.25 of 2 | 0.92 of 1 |\n" in page
    assert bsuite.by_kind(cells.read(site / "data" / "bsuite.csv")) == {
        "DQN": {"basic": 0.75, "credit_assignment": 1.0, "exploration": 0.0},
        "R2D2": {"basic": 0.25, "credit_assignment": 0.25},
    }
    drawn = ElementTree.parse(site / "pages" / "pictures" / "results-bsuite.svg").getroot()
    lines = {
        line.get("class"): line.get("d", "").strip("MZ").split("L") for line in reversed(drawn.findall(".//{*}path"))
    }
    basic, _, exploration = lines["line c0"]  # clockwise from the top: basic, credit assignment, exploration
    assert (basic, exploration) == (f"220.0 {150 - 0.75 * 110:.1f}", "220.0 150.0")
    assert len(lines["line c1"]) == 2  # not a score of 0 where it has none
    alone = ElementTree.fromstring(pictures.radar({"a": {"x": 1.0, "y": 1.0}, "b": {"y": 0.5}}))
    assert 'd="M220.0 150.0L220.0 205.0Z"' in ElementTree.tostring(alone, encoding="unicode")
